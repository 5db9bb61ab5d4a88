"""No set of changes makes or alters a folder that git takes for a repository, however it is put together (S-23, faults
28 and 35). The real git says of random trees what it takes for one."""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from treadle.chat.change_rules import explain_left_out
from treadle.protocol.files import DiffStat, FileChange, FileState, make_file_change

pytestmark = [
    pytest.mark.thorough(one_of=4),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]

FOLDERS = ("", "a/", "a/b/", "fixture.git/")
PARTS = {
    "HEAD": "ref: refs/heads/main\n",
    "config": "[core]\n\trepositoryformatversion = 0\n\tbare = true\n",
    "commondir": "../store\n",
    "hooks/post-checkout": "#!/bin/sh\n",
    "objects/info/packs": "",
    "objects/pack": None,
    "refs/heads/main": "0" * 40 + "\n",
    "refs/tags": None,
    "README": "x\n",
}
"""Entries that may come into a folder; None: a folder."""
LINKS = {"objects": "../store/objects", "refs": "../store/refs", "HEAD": "refs/heads/main"}
TREES = 40


def is_git_directory(folder: Path) -> bool:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    env["GIT_CEILING_DIRECTORIES"] = str(folder.parent)
    ran = subprocess.run(["git", "-C", str(folder), "rev-parse", "--git-dir"], env=env, capture_output=True, text=True)
    return ran.stdout.strip() == "."


def state_of(path: Path) -> FileState | None:
    if path.is_symlink():
        return FileState("link", target=os.readlink(path))
    if path.is_dir():
        return FileState("directory", 0o755)
    return FileState("file", 0o644, "ab", 2) if path.exists() else None


def plan_changes(root: Path, entries: dict[str, tuple[str, str]], *, folders: bool) -> list[FileChange]:
    """With the folders that come into being as changes of their own, as a command's effect has them, or without, as a
    patch has them."""
    changes: dict[str, FileChange] = {}
    for path, (kind, content) in entries.items():
        above = path.split("/")[:-1]
        for depth in range(1, len(above) + 1):
            folder = "/".join(above[:depth])
            if folders and state_of(root / folder) is None:
                changes[folder] = make_file_change(folder, None, FileState("directory", 0o755), DiffStat())
        new_state = FileState("link", target=content) if kind == "link" else FileState("file", 0o644, "cd", 2)
        new_state = FileState("directory", 0o755) if kind == "directory" else new_state
        changes[path] = make_file_change(path, state_of(root / path), new_state, DiffStat())
    return list(changes.values())


def make(root: Path, entries: dict[str, tuple[str, str]], path: str) -> None:
    kind, content = entries.get(path, ("directory", ""))
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    if kind == "directory":
        place.mkdir(exist_ok=True)
    elif kind == "link":
        os.symlink(content, place)
    else:
        place.write_text(content)


def step(dice: random.Random, root: Path) -> dict[str, tuple[str, str]]:
    entries: dict[str, tuple[str, str]] = {}
    for folder in dice.sample(FOLDERS, dice.randint(1, 2)):
        for name in dice.sample(sorted(PARTS), dice.randint(1, len(PARTS))):
            content = PARTS[name]
            entries[folder + name] = ("directory", "") if content is None else ("file", content)
        if folder and dice.random() < 0.3:
            name = dice.choice(sorted(LINKS))
            if not any(path.startswith(f"{folder}{name}") for path in entries):
                entries[folder + name] = ("link", LINKS[name])
    return {path: value for path, value in entries.items() if fits(root, path, value[0])}


def fits(root: Path, path: str, kind: str) -> bool:
    """True if it can be written there: no link on the way, nothing of another kind in its place."""
    parts = path.split("/")
    if any((root / "/".join(parts[:depth])).is_symlink() for depth in range(1, len(parts) + 1)):
        return False
    now = state_of(root / path)
    return now is None or (now.kind == "file" == kind)


@pytest.mark.parametrize("seed", range(TREES))
def test_git_takes_no_changed_folder_for_a_repository(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    print(f"seed {seed}")
    store, root = tmp_path / "store", tmp_path / "project"
    for place in (store, root):
        (place / "objects").mkdir(parents=True) if place == store else place.mkdir()
    (store / "refs").mkdir()
    shutil.copytree(store, root / "store")
    if dice.random() < 0.5:  # a bare repository that lies in the project since before
        subprocess.run(["git", "init", "-q", "--bare", str(root / "fixture.git")], check=True, capture_output=True)
    for _ in range(4):
        entries = step(dice, root)
        changes = plan_changes(root, entries, folders=dice.random() < 0.5)
        excluded_paths = frozenset(explain_left_out(changes, lambda path: os.path.lexists(root / path)))
        made_paths = [change.path for change in changes if change.path not in excluded_paths]
        for path in made_paths:
            if not any(path.startswith(f"{each}/") for each in excluded_paths):
                make(root, entries, path)
        for folder in (root, *(path for path in root.rglob("*") if path.is_dir() and not path.is_symlink())):
            inside = [path for path in made_paths if (root / path).is_relative_to(folder) and (root / path) != folder]
            relevant_paths = [path for path in inside if (root / path).relative_to(folder).parts[0] != "README"]
            own_paths = [
                path
                for path in relevant_paths
                if not any(part in FOLDERS_OF_OTHERS for part in _parts(root, folder, path))
            ]
            assert not own_paths or not is_git_directory(folder), (seed, folder, own_paths)


FOLDERS_OF_OTHERS = ("a", "fixture.git")


def _parts(root: Path, folder: Path, path: str) -> tuple[str, ...]:
    return (root / path).relative_to(folder).parts


@pytest.mark.parametrize("name", ["config", "hooks/post-checkout", "HEAD", "packed-refs"])
def test_a_bare_repository_of_the_project_is_not_changed(tmp_path: Path, name: str) -> None:  # fault 35
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "t/fixture")], check=True, capture_output=True)
    changes = plan_changes(tmp_path, {f"t/fixture/{name}": ("file", "x")}, folders=True)
    assert f"t/fixture/{name}" in explain_left_out(changes, lambda path: os.path.lexists(tmp_path / path))
    other_changes = plan_changes(tmp_path, {"t/fixture/README": ("file", "x"), "t/other": ("file", "x")}, folders=True)
    assert explain_left_out(other_changes, lambda path: os.path.lexists(tmp_path / path)) == {}


def test_one_patch_without_folders_of_its_own_makes_none(tmp_path: Path) -> None:  # fault 35
    entries = {f"x/{name}": ("file", "x") for name in ("HEAD", "objects/a", "refs/heads/a", "config")}
    assert set(explain_left_out(plan_changes(tmp_path, entries, folders=False), lambda _path: False)) == set(entries)
