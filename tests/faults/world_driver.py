"""A program that opens, commits, rebases and drops a world and is struck at every point of it, each time in a folder of
its own: killed, in a fork, or by an exception. Then it is done again. Prints what was wrong, as JSON.

    python -m tests.faults.world_driver FOLDER ACT (kill|memory|full|cancel) (overlay|copy) [UID PYTHON PACKAGE]
"""

import asyncio
import errno
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tests.trees import Node, tree
from tests.writing import write
from treadle.adapters.sandbox.launcher import Launcher
from treadle.adapters.workspace.history.snapshots import ProjectSnapshots
from treadle.adapters.workspace.root import Root
from treadle.base import file_system
from treadle.library.worlds import home as ground
from treadle.library.worlds.home import WorldHome
from treadle.library.worlds.record import WorldFolders

RAISED: dict[str, BaseException] = {
    "memory": MemoryError(),
    "full": OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "cancel": asyncio.CancelledError(),
}
AFTER = {"a": b"world's\n", "new/b": b"b\n"}
NAME = "chat/1.0"


class Case:
    """A project with a world in which something was changed."""

    def __init__(self, folder: Path, world_kind: str = "overlay", *, has_world: bool = True) -> None:
        self.project, self.home = folder / "project", folder / "home"
        self.project.mkdir(parents=True)
        (self.project / "a").write_text("old\n")
        (self.project / "gone").write_text("gone\n")
        self.before = tree(self.project)
        self.grounds: dict[str, ground.WorldGround] = {}
        self.worlds = WorldHome(WorldFolders(str(self.home)), self.ground, self.history)
        if world_kind == "copy":
            self.worlds._explain_no_layers = lambda *_: "for a test"  # type: ignore[method-assign]
        self.world = ""
        if has_world:
            self.world = self.worlds.open(str(self.project), "", "", "").id
            top = self.ground(self.world).open(os.O_RDONLY)
            os.mkdir("new", dir_fd=top)
            for name, data in AFTER.items():
                with open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=top), "wb") as file:
                    file.write(data)
            os.unlink("gone", dir_fd=top)
            os.close(top)
            self.let_go()

    def ground(self, world: str) -> ground.WorldGround:
        return self.grounds.get(world) or self.grounds.setdefault(world, ground.WorldGround(self.worlds.folders, world))

    def history(self, root: str, root_id: str, world: str) -> ProjectSnapshots:
        return ProjectSnapshots(Root(root, root_id, self.ground(world) if world else None), self.home)

    def let_go(self) -> None:
        """Lines are those of one process."""
        for each in self.grounds.values():
            each.close()
        self.grounds.clear()

    def open(self) -> None:
        self.worlds.open(str(self.project), "", "", "")

    def commit(self) -> None:
        effect = self.worlds.bring_in(NAME, self.world)
        assert not effect.conflicts, effect
        assert {file.path for file in effect.files} == {"a", "gone", "new", "new/b"}, effect

    def differ(self) -> None:
        """Open a world that changes a text; the project changes the same text, too, with other files."""
        text = self.project / "text"
        text.write_text("1\n2\n3\n4\n")
        self.world = self.worlds.open(str(self.project), "", "", "").id
        mine = self.history(str(self.project), "", self.world)
        write(mine.root, "text", b"1\n2\n3\nours\n", into=mine)
        text.write_text("theirs\n2\n3\n4\n")
        (self.project / "new").write_text("theirs\n")
        (self.project / "gone").unlink()
        self.before = tree(self.project)
        self.let_go()

    def rebase(self) -> None:
        self.worlds.rebase(self.world)

    def drop(self) -> None:
        if any(each.id == self.world for each in self.worlds.folders.iterate_worlds()):
            self.worlds.drop(self.world)

    def wrong(self, act: str) -> str:
        """Describe the difference from the expected state after the act; empty if there is none."""
        files = contents(tree(self.project))
        world_ids = [each.id for each in self.worlds.folders.iterate_worlds()]
        if act == "commit":
            effect = self.worlds.compute_effect(self.world)
            return "" if files == AFTER and not effect.files and not effect.conflicts else f"{files} {effect}"
        if act == "rebase":
            effect, inside = self.worlds.compute_effect(self.world), self.inside()
            fine = inside == {**files, "text": b"theirs\n2\n3\nours\n"} and tree(self.project) == self.before
            is_text_only = [file.path for file in effect.files] == ["text"] and not effect.conflicts
            return "" if fine and is_text_only else f"{inside} {effect}"
        self.worlds.folders.sweep()
        fine = tree(self.project) == self.before and (len(world_ids) >= 1 if act == "open" else world_ids == [])
        return "" if fine else f"{files} {world_ids} {os.listdir(self.worlds.folders.folder)}"

    def inside(self) -> dict[str, bytes]:
        """The files of its world."""
        with self.worlds.open_folder(self.world) as folder:
            return contents(tree(folder))

    def end(self) -> None:
        for world in self.worlds.folders.iterate_worlds():
            self.ground(world.id).end()


def contents(nodes: dict[str, Node]) -> dict[str, bytes]:
    return {path: node[2] for path, node in nodes.items() if node[0] == "file"}


def kill_at_point(work: Callable[[], None], point: int) -> bool:
    """Do it in a fork that is killed at the point of this number. Return true if it came so far."""
    pid = os.fork()
    if pid == 0:
        at(point, lambda: os.kill(os.getpid(), signal.SIGKILL))
        work()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def raise_at_point(work: Callable[[], None], point: int, error: BaseException) -> bool:
    """Do it, with an exception at the point of this number. Return true if it came so far."""
    has_struck = False

    def strike() -> None:
        nonlocal has_struck
        has_struck = True
        raise error

    at(point, strike)
    try:
        work()
    except BaseException:
        assert has_struck
    finally:
        file_system.install_fault_hook(None)
    return has_struck


def at(point: int, strike: Callable[[], None]) -> None:
    countdown = point

    def pass_by(_name: str) -> None:
        nonlocal countdown
        countdown -= 1
        if countdown == -1:
            strike()

    file_system.install_fault_hook(pass_by)


def main(folder: str, act: str, strike: str, world_kind: str, *user: str) -> None:
    if user:
        uid, python, package = user
        warm = Case(Path(folder, "warm"))  # modules that are loaded late lie where only root can read them
        warm.commit()
        warm.wrong("commit")
        warm.drop()
        ground.LAUNCHER = Launcher(python, package)
        os.chown(folder, int(uid), int(uid))
        os.setgroups([])
        os.setgid(int(uid))
        os.setuid(int(uid))
    wrong: dict[str, str] = {}
    point = 0
    while True:
        case = Case(Path(folder, str(point)), world_kind, has_world=act not in ("open", "rebase"))
        if act == "rebase":
            case.differ()
        work = getattr(case, act)
        try:
            struck = kill_at_point(work, point) if strike == "kill" else raise_at_point(work, point, RAISED[strike])
            if struck:
                work()
            if problem := case.wrong(act):
                wrong[str(point)] = problem
        except Exception as error:
            wrong[str(point)] = repr(error)
        case.end()
        if not struck:
            break
        point += 1
    print(json.dumps({"points": point, "wrong": wrong}))


if __name__ == "__main__":
    main(*sys.argv[1:])
