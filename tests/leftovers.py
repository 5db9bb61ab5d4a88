"""Tests leave nothing behind: no process, open socket or unfinished coroutine after a test, and neither a process nor a
file after the run.

A process that a test left is a descendant of the process of the test run, or an orphan: a new child of the process that
adopts orphans, whose command line, environment or folder names the temporary folder of the tests. All temporary files
of a run lie in one folder, which is TMPDIR of the run, so that other runs on the machine do not matter.
"""

import atexit
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Generator, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from treadle.base import orphan_watcher
from treadle.base.process_folders import make_folder_prefix
from treadle.base.types import get_home

GRACE_S = 20.0
"""How long a process may take to end that was told to: on a busy machine it may wait for the disk."""
RUN_FOLDER = "TREADLE_TEST_RUN_FOLDER"
SHARED: set[int] = set()
"""Processes that serve all tests of this process of the run."""
_made_here: list[str] = []
"""The folder of the run, in the process that made it."""
_USER_HOME = get_home({})
_had_user_home = _USER_HOME.exists()
"""If the user had no home of Treadle before the run, there must be none after it."""
WORLD_HOLDER = "treadle.adapters.sandbox.launch.world"
_PROC = Path("/proc")


@cache
def run_folder() -> Path:
    """The folder for temporary files of all processes of a run; removed at its end."""
    if "PYTEST_XDIST_WORKER" in os.environ and RUN_FOLDER in os.environ:
        return Path(os.environ[RUN_FOLDER])
    outer = tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="treadle-run-")
    os.chmod(folder, 0o1777)  # as /tmp is: PostgreSQL and some commands run as another user
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", outer)  # pytest keeps the folders of failed tests by itself
    os.environ[RUN_FOLDER] = os.environ["TMPDIR"] = folder
    tempfile.tempdir = None
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _made_here.append(folder)
    return Path(folder)


def children(pid: int) -> Iterator[int]:
    """The children of a process, those of all its threads; none where the system does not list them."""
    try:
        for thread in os.listdir(_PROC / str(pid) / "task"):
            yield from map(int, (_PROC / str(pid) / "task" / thread / "children").read_bytes().split())
    except OSError:  # it has ended
        return


def descendants(pid: int, known_pids: Collection[int] = ()) -> Iterator[int]:
    """Those that are not known, nor started by a known one."""
    for child in children(pid):
        if child not in SHARED and child not in known_pids:
            yield child
            yield from descendants(child, known_pids)


def share_helpers(pids: Iterable[int]) -> None:
    """Processes of Treadle that outlive a test, and end by themselves: the orphan watcher beside each process that
    starts programs, and the holder of a world, which waits a while for its next reader."""
    for pid in pids:
        if orphan_watcher.__file__ in (words := describe([pid])) or WORLD_HOLDER in words:
            SHARED.add(pid)


def adopter_of_orphans() -> int:
    """The process that becomes the parent of an orphan of this one: the nearest subreaper, or the first process."""
    process = subprocess.run(
        ["/bin/sh", "-c", "sleep 60 > /dev/null 2>&1 & echo $!"], stdout=subprocess.PIPE, text=True, check=True
    )
    orphan = int(process.stdout)
    parent = _status(orphan)[1]
    os.kill(orphan, signal.SIGKILL)
    return parent


def _status(pid: int) -> tuple[str, int]:
    """The state and the parent of a process; of a process that is gone: Z and 0."""
    try:
        state, parent = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[:2]
    except (OSError, ValueError):
        return "Z", 0
    return state.decode(), int(parent)


def mentions(pid: int, folders: Iterable[str]) -> bool:
    """True if a process has one of these folders in its command line, environment or as its working directory."""
    texts = []
    for part in ("cmdline", "environ", "cwd"):
        path = _PROC / str(pid) / part
        try:
            texts.append(os.fsencode(os.readlink(path)) if part == "cwd" else path.read_bytes())
        except OSError:
            continue
    return any(os.fsencode(folder) in text for folder in folders for text in texts)


def describe(pids: Iterable[int]) -> str:
    lines = []
    for pid in pids:
        try:
            words = (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue
        lines.append(f"{pid}: {words.decode(errors='replace')[:300]}")
    return "\n".join(lines)


def still_running(pids: Iterable[int]) -> list[int]:
    """Those of these processes that do not end within the grace."""
    deadline = time.monotonic() + GRACE_S
    while (running_pids := [pid for pid in pids if _status(pid)[0] not in "ZX"]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return running_pids


class Watch:
    """The processes that one process of the test run has below itself, and its orphans."""

    def __init__(self, folders: tuple[str, ...]) -> None:
        self._folders = folders
        adopter = adopter_of_orphans()
        self._adopted = _PROC / str(adopter) / "task" / str(adopter) / "children"
        self._others: set[int] = set()
        """Children of the adopter that have nothing to do with the tests of this process."""

    def running(self, known_pids: Collection[int] = ()) -> set[int]:
        """Processes that are not known, nor started by a known one."""
        return {*descendants(os.getpid(), known_pids), *self._orphans()}.difference(known_pids)

    def _orphans(self) -> list[int]:
        try:
            adopted = set(map(int, self._adopted.read_bytes().split()))
        except OSError:
            return []
        self._others &= adopted  # a number may be used again
        orphans = [pid for pid in adopted - self._others if mentions(pid, self._folders)]
        self._others |= adopted.difference(orphans)
        return orphans


@pytest.fixture(scope="session")
def process_watch(tmp_path_factory: pytest.TempPathFactory) -> Watch:
    return Watch((str(tmp_path_factory.getbasetemp()),))


@pytest.fixture(autouse=True)
def no_process_is_left(process_watch: Watch) -> Iterator[None]:
    """A process that a test started ends with it. Processes of fixtures with a wider scope run already, or are
    SHARED."""
    earlier_pids = process_watch.running()
    yield
    new_pids = process_watch.running(earlier_pids)
    share_helpers(new_pids)
    if leftover_pids := still_running(new_pids - SHARED):
        words = describe(leftover_pids)
        _end(leftover_pids)
        pytest.fail(f"processes that the test left behind:\n{words}", pytrace=False)


def _end(pids: Iterable[int]) -> None:
    """So that the next test is not blamed for them."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """Whatever a test left open fails this test, not a later one during which the garbage collector finds it. What is
    alive is frozen, so that a collection takes no longer than the objects of one test need."""
    result = yield
    warnings: list[str] = []
    hook, sys.unraisablehook = (
        sys.unraisablehook,
        lambda error: warnings.append(f"{error.exc_value!r} {error.object!r}"),
    )
    try:
        gc.collect()
    finally:
        sys.unraisablehook = hook
    gc.freeze()
    if warnings:
        pytest.fail("left open by the test:\n" + "\n".join(warnings), pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    yield
    if not _made_here:
        return  # the process that began the run looks when all others have ended
    if words := _left_by_the_run():
        print(f"\n\nLeft behind by the tests:\n{words}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _left_by_the_run() -> str:
    from treadle.library.tool_setup import remove_abandoned_folders  # late: no test needs it to be loaded

    folder = run_folder()
    own_pids = {os.getpid(), *SHARED}
    every = (int(name) for name in os.listdir(_PROC) if name.isdigit()) if _PROC.is_dir() else ()
    run_pids = [pid for pid in every if pid not in own_pids and mentions(pid, [str(folder)])]
    _end(pid for pid in run_pids if WORLD_HOLDER in describe([pid]))  # they would end a minute later
    leftover_pids = still_running(run_pids)
    remove_abandoned_folders(str(folder))  # tests kill processes; the next start of Treadle removes what they leave
    own_folders = make_folder_prefix()  # this process may have run the tests itself, and has not ended yet
    names = sorted(path.name for path in folder.iterdir())
    files = [name for name in names if name != "home" and not name.startswith(own_folders)]
    leaks = [str(_USER_HOME)] if _USER_HOME.exists() and not _had_user_home else []
    return "\n".join(filter(None, [describe(leftover_pids), *(f"{folder}/{name}" for name in files), *leaks]))
