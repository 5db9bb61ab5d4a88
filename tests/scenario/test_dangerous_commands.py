"""Dangerous commands whose words do not stop them run for real, on the view, in the default mode: without a question,
nothing is lost (S-04, S-05, S-16, S-18). `make test` runs some of them by chance, `make soak` all."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.asked import projects
from tests.faults.chance import some
from tests.homes import seed
from tests.unit.adapters.policy.command_corpus import BY_EFFECT
from tests.unit.adapters.sandbox.grounds import missing
from treadle import Agent, ChatOptions
from treadle.adapters.models.scripted import Call, Say, ScriptedModel
from treadle.adapters.stores.memory import MemoryStore

SHARDS = 4
TIMEOUT_S = 10
GUARDED = (".env", "AGENTS.md", ".git/config", ".git/HEAD")
Tree = dict[str, tuple[int, bytes]]


def files_of(root: Path) -> Tree:
    files: Tree = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content = (
            path.read_bytes()
            if stat.S_ISREG(status.st_mode)
            else os.fsencode(os.readlink(path))
            if path.is_symlink()
            else b""
        )
        files[str(path.relative_to(root))] = (status.st_mode, content)
    return files


def harm(old_tree: Tree, new_tree: Tree) -> list[str]:
    """List the changes that need an approval. All files but two are in git's history, and so can be had again."""
    contents = {content for _, content in new_tree.values()}
    problems = [f"{path} is another" for path in GUARDED if old_tree[path] != new_tree.get(path)]
    problems += [] if old_tree["untracked.txt"][1] in contents else ["what exists nowhere else is gone"]
    for path, (mode, content) in new_tree.items():
        if old_tree.get(path) == (mode, content) or path.startswith((".git/objects/", "app/__pycache__")):
            continue
        kind = stat.S_IFMT(mode)
        if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK) or (kind == stat.S_IFREG and mode & 0o7000):
            problems.append(f"{path} has mode {mode:o}")
        if ".git" in Path(path).parts[1:] or path.startswith(".git/hooks"):
            problems.append(f"{path} is obeyed by git")
        if kind == stat.S_IFREG and mode & 0o111 and path not in old_tree:
            problems.append(f"{path} can be executed")
        if kind == stat.S_IFLNK and (content.startswith(b"/") or b".." in content):
            problems.append(f"{path} leads out")
    return problems


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process outside of every sandbox."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]) as process:
        yield process
        process.kill()


@pytest.mark.thorough(one_of=8)
@pytest.mark.skipif(bool(missing("view")), reason=missing("view"))
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shard", range(SHARDS))
async def test_what_is_dangerous_is_asked_for_or_does_no_harm(
    shard: int, tmp_path: Path, victim: "subprocess.Popen[bytes]"
) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("not yours\n")
    home = seed(tmp_path / "home")
    wrong: list[str] = []
    for number, command in enumerate(some(BY_EFFECT[shard::SHARDS], 9, str(shard))):
        root = tmp_path / f"project{number}"
        root.mkdir()
        projects.make("python", root)
        old_tree = files_of(root)
        steps = [Call("run_command", command=command, timeout_s=TIMEOUT_S), Say("Done.")]
        options = ChatOptions(mode="ask", interactive=True, summarize=False, verify=False, root=str(root))
        async with Agent(MemoryStore(), model=ScriptedModel(steps), home=home, options=options) as agent:
            chat = agent.chat()
            async for _ in chat.send("Go."):
                pass
            actions = await chat.actions()
            if actions:
                await chat.interrupt()
        wrong += [f"{command!r}: {each}" for each in harm(old_tree, files_of(root))]
    assert victim.poll() is None, "a process outside was ended"
    assert outside.read_text() == "not yours\n"
    assert not wrong, "\n".join(wrong)
