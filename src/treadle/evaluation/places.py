"""Where an attempt works: a private copy of the task's tree. `open_place` is the seam: whatever gives a root to work in
and a second one to check can stand in its place."""

import os
import shutil
import tarfile
from pathlib import Path
from typing import Protocol

from treadle.errors import InvalidInput
from treadle.evaluation.tasks import GitState, Task
from treadle.file_system import replace_file
from treadle.sandbox.supervisor.removal import remove_tree
from treadle.subprocesses import Launch, run_blocking

PATCH = ".treadle-check.patch"
_GIT_S = 300.0


class Place(Protocol):
    @property
    def root(self) -> Path:
        """The tree that the model works in."""

    def checked(self, number: int) -> Path:
        """A copy of the tree as the model left it, with what the check needs laid over it."""

    def close(self) -> None:
        """Remove the copies that were checked; the tree stays to be looked at."""


class CopiedPlace:
    def __init__(self, task: Task, folder: Path) -> None:
        self._task = task
        self._folder = folder

    @property
    def root(self) -> Path:
        return self._folder / "tree"

    def checked(self, number: int) -> Path:
        copy = self._folder / f"checked-{number}"
        if copy.exists():
            remove_tree(str(copy))
        shutil.copytree(self.root, copy, symlinks=True)
        lay_over(self._task.check_files, copy)
        if self._task.check_patch:
            replace_file(str(copy / PATCH), self._task.check_patch.encode(), mode=0o644)
        return copy

    def close(self) -> None:
        for copy in self._folder.glob("checked-*"):
            remove_tree(str(copy))


def open_place(task: Task, folder: Path) -> Place:
    """The place of an attempt in a folder of its own, made at first and found again after a crash: a tree that was not
    wholly made has not got its name yet."""
    place = CopiedPlace(task, folder)
    if not place.root.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = folder / "tree.new"
        if new.exists():
            remove_tree(str(new))
        copy_start(task, new)
        os.rename(new, place.root)
    return place


def copy_start(task: Task, target: Path) -> None:
    if isinstance(task.start, GitState):
        _export(task.start, target)
    else:
        shutil.copytree(task.start, target, symlinks=True)


def lay_over(files: Path | None, target: Path) -> None:
    """Copy files over a tree. A link that the model left in the way is replaced, and not followed out of the tree."""
    if files is None:
        return
    for source in sorted(files.rglob("*")):
        path = target / source.relative_to(files)
        if path.is_symlink() or (path.exists() and path.is_dir() != source.is_dir()):
            path.unlink() if not path.is_dir() or path.is_symlink() else remove_tree(str(path))
        if source.is_dir():
            path.mkdir(exist_ok=True)
        else:
            shutil.copy2(source, path, follow_symlinks=False)


def with_patch(task: Task) -> str:
    """The check as a command. The patch is applied by the confined command itself: git reads the settings of the
    repository, and the model may have written those."""
    return f"git apply {PATCH} && {{ {task.check}\n}}" if task.check_patch else task.check


def _export(state: GitState, target: Path) -> None:
    """The tree of a commit, in a repository of its own with one commit: git works there, and knows nothing else."""
    target.mkdir(parents=True)
    archive = target.with_name(f"{target.name}.tar").absolute()
    if said := _git(["archive", "--format=tar", f"--output={archive}", state.commit], state.repository):
        raise InvalidInput(f"{state.repository} has no commit {state.commit} to begin with: {said}")
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter="data")
    archive.unlink()
    name = ["-c", "user.name=treadle", "-c", "user.email=treadle@localhost", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "-A", "-f"], [*name, "commit", "-q", "--allow-empty", "-m", "start"]):
        if said := _git(words, target):
            raise InvalidInput(f"git {' '.join(words)} failed in {target}: {said}")


_ALONE = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "protocol.allow=never")


def _git(words: list[str], cwd: Path) -> str:
    """Run git without anyone's settings, hooks, helpers and fetches; what it complains of."""
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_TERMINAL_PROMPT": "0"}
    env["GIT_NO_LAZY_FETCH"] = "1"
    said = bytearray()
    done = run_blocking(Launch(["git", *_ALONE, *words], env, str(cwd)), said.extend, _GIT_S)
    return "" if done.ending == "exited" and done.code == 0 else (done.errors or said.decode() or done.ending).strip()
