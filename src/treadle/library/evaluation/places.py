"""Where an attempt works: in a world of its own over a tree that all attempts at its task share, so that nothing is
copied for it where the system has overlays (W-11). The check runs in a world of that world."""

import hashlib
import os
import shutil
import tarfile
from asyncio import to_thread
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from re import sub

from treadle.adapters.sandbox.supervisor.removal import remove_tree
from treadle.base.file_system import replace_file
from treadle.base.subprocesses import Launch, run_blocking
from treadle.base.types import new_id
from treadle.errors import InvalidInput, NotFound, ToolError
from treadle.library.agent import Agent
from treadle.library.evaluation.tasks import GitState, Task
from treadle.library.worlds.record import World

PATCH = ".treadle-check.patch"
LABEL = "eval"
_STARTS = "starts"
_GIT_S = 300.0


async def open_place(agent: Agent, task: Task, folder: Path, name: str) -> World:
    """The world of an attempt, by its name in the evaluation of this folder: made at first and found again after a
    crash, over the tree that it began with even if the task has changed meanwhile."""
    id = _id(folder, name)
    try:
        return await agent.worlds.get(id)
    except NotFound:
        start = await to_thread(start_of, task, folder)
        return await agent.worlds.open(start, label=f"{LABEL} {task.name}", id=id)


async def leave_place(agent: Agent, folder: Path, name: str) -> None:
    """Remove the world of an attempt, if there is one."""
    id = _id(folder, name)
    for world in reversed(await agent.worlds.list()):
        if id in (world.id, world.parent):
            await agent.worlds.drop(world.id)


@asynccontextmanager
async def checked(agent: Agent, task: Task, world: World) -> AsyncIterator[World]:
    """A world of the attempt's, with what the check needs laid over what the model left. One that a process left that
    was killed is not used again: its check may still be running."""
    used_ids = {each.id for each in await agent.worlds.list()}
    number = next(number for number in count(1) if f"{world.id}-check{number}" not in used_ids)
    check_world = await agent.worlds.open(world.root, world.id, label=f"{LABEL} check", id=f"{world.id}-check{number}")
    try:
        await to_thread(_lay_check, agent, task, check_world)
        yield check_world
    finally:
        for each in await agent.worlds.list():
            if each.parent == world.id:
                with suppress(ToolError):  # something that the check left still runs there
                    await agent.worlds.drop(each.id)


def _lay_check(agent: Agent, task: Task, world: World) -> None:
    with agent.worlds.reached(world.id) as top:
        lay_over(task.check_files, Path(top))
        if task.check_patch:
            replace_file(f"{top}/{PATCH}", task.check_patch.encode(), mode=0o644)


def _id(folder: Path, name: str) -> str:
    return f"world_{hashlib.sha256(f'{folder}/{name}'.encode()).hexdigest()[:20]}"


# -- start trees of attempts ----------------------------------------------------------------------------------------


def start_of(task: Task, folder: Path) -> Path:
    """The tree that attempts at a task begin with, made once: away from the check and the reference, which commands
    could read. A tree that was not wholly made has not got its name yet."""
    if isinstance(task.start, GitState):
        mark = task.start.commit
    else:  # changes whenever the start of the task does
        digest = hashlib.sha256()
        for path in sorted(task.start.rglob("*")):
            name, facts = path.relative_to(task.start), path.lstat()
            digest.update(f"{name} {facts.st_mode} {facts.st_size} {facts.st_mtime_ns}\n".encode())
        mark = digest.hexdigest()
    tree = folder / _STARTS / f"{plain(task.name)}-{mark[:12]}"
    if not tree.exists():
        tree.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = tree.with_name(new_id(".new"))
        if isinstance(task.start, GitState):
            _export(task.start, new)
        else:
            shutil.copytree(task.start, new, symlinks=True)
        try:
            os.rename(new, tree)
        except OSError:  # another attempt at it was faster
            remove_tree(str(new))
    return tree


def sweep_starts(folder: Path) -> None:
    """Remove what processes that were killed left half made."""
    for leftover in (folder / _STARTS).glob(".new*"):
        remove_tree(str(leftover)) if leftover.is_dir() else leftover.unlink()


def plain(name: str) -> str:
    return sub(r"[^\w.-]+", "_", name).lstrip(".") or "_"


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


def _export(state: GitState, target: Path) -> None:
    """The tree of a commit, in a repository of its own with one commit: git works there, and knows nothing else."""
    target.mkdir(parents=True)
    archive = target.with_name(f"{target.name}.tar").absolute()
    if error_text := _git(["archive", "--format=tar", f"--output={archive}", state.commit], state.repository):
        raise InvalidInput(f"{state.repository} has no commit {state.commit} to begin with: {error_text}")
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter="data")
    archive.unlink()
    name = ["-c", "user.name=treadle", "-c", "user.email=treadle@localhost", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "-A", "-f"], [*name, "commit", "-q", "--allow-empty", "-m", "start"]):
        if error_text := _git(words, target):
            raise InvalidInput(f"git {' '.join(words)} failed in {target}: {error_text}")


_ALONE = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "protocol.allow=never")


def _git(words: list[str], cwd: Path) -> str:
    """Run git without any user's settings, hooks, helpers and fetches. Return its error text; empty on success."""
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_TERMINAL_PROMPT": "0"}
    env["GIT_NO_LAZY_FETCH"] = "1"
    output = bytearray()
    completed = run_blocking(Launch(["git", *_ALONE, *words], env, str(cwd)), output.extend, _GIT_S)
    if completed.ending == "exited" and completed.code == 0:
        return ""
    return (completed.errors or output.decode() or completed.ending).strip()
