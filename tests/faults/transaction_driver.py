"""A program that makes a set of changes and is killed at every point of it, one after the other, each time in a fork
and in a folder of its own; another fork then comes and completes it. Prints what was wrong, as JSON.

    python -m tests.faults.transaction_driver FOLDER (commit|meanwhile|discard|restore|failing) [UID]
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tests.unit.adapters.workspace.trees import Bench, Node, between, build, picture, taken_back
from treadle.base import file_system
from treadle.errors import ToolError
from treadle.protocol.files import FileChange
from treadle.testing.faults import Fault, Faults

BIG = bytes(range(256)) * 40
OLD = {
    b"same": Node("file", 0o644, b"same"),
    b"edited": Node("file", 0o640, b"old"),
    b"mode": Node("file", 0o644, b"mode"),
    b"gone": Node("file", 0o000, b"gone"),
    b"to folder": Node("file", 0o644, b"file"),
    b"to link": Node("file", 0o644, b"file"),
    b"dangling": Node("link", 0, b"nowhere"),
    b"pipe": Node("fifo", 0o600),
    b"closed": Node("directory", 0o555, inside={b"x": Node("file", 0o444, b"x"), b"y": Node("file", 0o644, b"y")}),
    b"tree": Node(
        "directory",
        0o755,
        inside={b"empty": Node("directory", 0o711), b"deep": Node("directory", 0o700, inside={b"\xff": Node("file")})},
    ),
}
NEW = {
    b"same": Node("file", 0o644, b"same"),
    b"edited": Node("file", 0o600, b"new and longer"),
    b"mode": Node("file", 0o755, b"mode"),
    b"to folder": Node("directory", 0o500, inside={b"in": Node("file", 0o644, b"in")}),
    b"to link": Node("link", 0, b"edited"),
    b"dangling": Node("directory", 0o755, inside={b"empty": Node("directory", 0o000)}),
    b"pipe": Node("file", 0o644, b"pipe"),
    b"closed": Node("directory", 0o555, inside={b"x": Node("file", 0o444, b"X"), b"z": Node("fifo", 0o644)}),
    b"tree": Node("file", 0o644, b"no tree"),
    b"new\nline": Node("file", 0o4711, b"new"),
}


def fresh(folder: Path) -> Bench:
    bench = Bench(folder)
    build(bench.project, OLD)
    build(bench.goal, NEW)
    for place, data in ((bench.project, BIG), (bench.goal, BIG[::-1] + b"more")):  # one file with two names
        (place / "twin").write_bytes(data)
        os.link(place / "twin", place / "other twin")
    return bench


def run_in_fork(work: Callable[[], object], kill_at: int = 0) -> int:
    """Do something in a process of its own; the signal that ended it, or 0, or a negative number for an error."""
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            if kill_at:
                file_system.install_fault_hook(Faults([Fault("kill", passing=kill_at)]))
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            code = 1
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)


class Case:
    """A set of changes, and the expected result when another process has completed it."""

    def __init__(self, folder: Path) -> None:
        self.bench = fresh(folder)
        self.changes = between(self.bench.project, self.bench.goal)
        self.before, self.after = picture(self.bench.project), picture(self.bench.goal)
        self.wrong: list[str] = []

    def run(self) -> None:
        self.bench.commit(files=self.changes)

    def meanwhile(self) -> None:
        """Events between the death and the next process."""

    def complete(self) -> None:
        self.bench.commit(files=self.changes)

    def check(self) -> None:
        self.expect("project", picture(self.bench.project), self.after)
        twins = [(self.bench.project / name).stat().st_nlink for name in ("twin", "other twin")]
        self.expect("names of each file", twins, [1, 1])

    def expect(self, subject: str, actual: object, expected: object) -> None:
        if actual != expected:
            if isinstance(actual, dict) and isinstance(expected, dict):
                keys = {key for key in {*actual, *expected} if actual.get(key) != expected.get(key)}
                actual, expected = {k: actual.get(k) for k in keys}, {k: expected.get(k) for k in keys}
            self.wrong.append(f"{subject}: {actual!r} instead of {expected!r}")


class Commit(Case):
    """Undecided the project is exactly before; completed it is exactly after."""


class Meanwhile(Case):
    """The user edits a file after the death: the edit stays, and nothing else does."""

    def meanwhile(self) -> None:
        self.done = self.bench.journals.read_ending("c_1/1.0") is not None
        (self.bench.project / "edited").write_bytes(b"the user's")
        (self.bench.project / "edited").chmod(0o640)
        if not self.done:
            self.before = {**self.before, "edited": picture(self.bench.project)["edited"]}

    def complete(self) -> None:
        effect = self.bench.commit(files=self.changes)
        conflict_paths = [conflict.path for conflict in effect.conflicts]
        if conflict_paths != ([] if self.done else ["edited"]):
            raise AssertionError(f"conflicts: {conflict_paths}")

    def check(self) -> None:
        if not self.done:
            self.expect("project", picture(self.bench.project), self.before)


class Discard(Case):
    """The call is stopped: undecided changes never happen, decided ones are completed."""

    def meanwhile(self) -> None:
        self.decided = self.bench.journals.read("c_1/1.0") is not None

    def complete(self) -> None:
        effect = self.bench.discard()
        if (effect is not None) != self.decided:
            raise AssertionError(f"{effect!r} although it was decided: {self.decided}")
        if not self.decided:
            try:
                self.run()
            except ToolError:
                return
            raise AssertionError("committed after it was discarded")

    def check(self) -> None:
        self.expect("project", picture(self.bench.project), self.after if self.decided else self.before)


class Restore(Case):
    """Undoing what was committed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.back: list[FileChange] = taken_back(self.bench.commit(files=self.changes))
        self.before, self.after = self.after, self.before

    def run(self) -> None:
        self.bench.restore("c_1/u_1", self.back)

    complete = run


class Failing(Case):
    """A change cannot be made for good: the changes before it are taken back, also by the next process."""

    def run(self) -> None:
        """A folder that becomes a file is no longer empty, behind the back of everybody's checks."""
        plain = os.rmdir

        def refuse(path: str, *, dir_fd: int | None = None) -> None:
            if path == "tree":
                raise PermissionError(1, "Operation not permitted")
            plain(path, dir_fd=dir_fd)

        os.rmdir = refuse  # type: ignore[assignment]
        try:
            self.bench.commit(files=self.changes)
        except ToolError:
            return
        finally:
            os.rmdir = plain
        raise AssertionError("it could be made")

    def complete(self) -> None:
        try:
            self.bench.commit(files=self.changes)
        except ToolError:  # it was being taken back; now it is
            self.expect("taken back", picture(self.bench.project), self.before)
            self.bench.commit(files=self.changes)


CASES: dict[str, type[Case]] = {each.__name__.lower(): each for each in (Commit, Meanwhile, Discard, Restore, Failing)}


def strike(kind: type[Case], folder: Path, point: int) -> tuple[bool, list[str]]:
    """Kill at this point, let another complete it. Return true if there was such a point, and the problems."""
    case = kind(folder)
    exit_code = run_in_fork(case.run, point)
    if exit_code not in (0, signal.SIGKILL):
        case.wrong.append("it failed")
    name = "c_1/u_1" if kind is Restore else "c_1/1.0"
    if exit_code == signal.SIGKILL and case.bench.journals.read(name) is None:
        case.expect("undecided", _without_temps(picture(case.bench.project)), case.before)
    case.meanwhile()
    if run_in_fork(lambda: _complete_case(case)) != 0:
        case.wrong.append("it could not be completed")
    case.check()
    leftovers = [path for path in case.bench.left_over() if "incoming" not in path]
    case.expect("left over", leftovers, [])
    return exit_code == signal.SIGKILL, case.wrong


def _complete_case(case: Case) -> None:
    case.complete()
    if case.wrong:
        raise AssertionError(case.wrong)


def _without_temps(nodes: dict[str, tuple[str, int, str]]) -> dict[str, tuple[str, int, str]]:
    return {path: value for path, value in nodes.items() if not path.startswith(".treadle-")}


def main(folder: str, kind: str, uid: str = "") -> None:
    case_type = CASES[kind]
    Case(Path(folder) / "first").run()  # so that everything is loaded
    if uid:
        os.chown(folder, int(uid), int(uid))
        os.setgroups([])
        os.setgid(int(uid))
        os.setuid(int(uid))
    wrong: dict[int, list[str]] = {}
    point = 1
    while True:
        there, problems = strike(case_type, Path(folder) / str(point), point)
        if problems:
            wrong[point] = problems
        if not there:
            break
        point += 1
    print(json.dumps({"points": point - 1, "wrong": wrong}))


if __name__ == "__main__":
    main(*sys.argv[1:])
