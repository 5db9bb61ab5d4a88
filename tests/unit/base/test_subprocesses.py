import asyncio
import gc
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from treadle.base import subprocesses
from treadle.base.subprocesses import Launch, Program, run_blocking, run_program
from treadle.errors import ToolError

LEAVES_A_CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(sys.argv[1] + ".new", "w").write(str(child.pid))
import os; os.rename(sys.argv[1] + ".new", sys.argv[1])
"""


def _has_ended(pid: int) -> bool:
    """True if a process has ended, even if it is not yet reaped."""
    status = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return status in ("", "Z")


@pytest.mark.parametrize("ending", ["timed_out", "stopped"])
def test_what_a_program_left_behind_goes_with_it(ending: str, tmp_path: Path) -> None:  # L-07
    note = tmp_path / "child"
    launch = Launch([sys.executable, "-c", LEAVES_A_CHILD, str(note)], dict(os.environ))
    stop = threading.Event()

    def stop_when_noted() -> None:
        while not note.exists():
            time.sleep(0.02)
        stop.set()

    if ending == "stopped":
        threading.Thread(target=stop_when_noted, daemon=True).start()
    assert run_blocking(launch, lambda _: None, 5.0 if ending == "timed_out" else 60.0, stop).ending == ending
    until = time.monotonic() + 60
    while not _has_ended(int(note.read_text())) and time.monotonic() < until:
        time.sleep(0.02)
    assert _has_ended(int(note.read_text()))


def test_what_a_program_that_exits_leaves_running_ends_with_it() -> None:  # L-07
    output = bytearray()
    launch = Launch(["/bin/sh", "-c", "sleep 600 > /dev/null 2>&1 & echo $!; exit 3"], dict(os.environ))
    assert run_blocking(launch, output.extend, 60.0).code == 3
    until = time.monotonic() + 60
    while not _has_ended(int(output)) and time.monotonic() < until:
        time.sleep(0.02)
    assert _has_ended(int(output))


@pytest.mark.parametrize("ending", ["timed_out", "stopped"])
def test_a_program_that_closed_its_output_is_bounded(ending: str) -> None:  # L-07
    launch = Launch(["/bin/sh", "-c", "exec >&- 2>&-; exec sleep 60"], dict(os.environ))
    stop = threading.Event()
    if ending == "stopped":
        threading.Timer(0.5, stop.set).start()
    began = time.monotonic()
    assert run_blocking(launch, lambda _: None, 0.5 if ending == "timed_out" else 50.0, stop).ending == ending
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("steps", range(12))
async def test_a_program_that_is_cancelled_at_its_start_leaves_no_pipe_open(steps: int) -> None:  # L-07
    async def read_output() -> None:
        async for _ in Program(["sleep", "600"], dict(os.environ), b"input").stream_output():
            pass

    initial_pipes = _pipes()
    reading = asyncio.create_task(read_output())
    for _ in range(steps):
        await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    del reading
    await asyncio.sleep(0)
    gc.collect()  # an object that was not closed by name complains here
    until = time.monotonic() + 60
    while _pipes() - initial_pipes > 1 and time.monotonic() < until:  # noqa: ASYNC110 - the orphan watcher's pipe may be new
        await asyncio.sleep(0.01)
    assert _pipes() - initial_pipes <= 1


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
@pytest.mark.parametrize("free", range(7))
async def test_a_program_that_finds_no_free_descriptor_leaves_none_open(free: int) -> None:  # L-07
    run_blocking(Launch(["/bin/true"], dict(os.environ)), lambda _: None, 60.0)  # so that the orphan watcher is there
    program = Program(["/bin/true"], dict(os.environ), b"", cwd="/")
    descriptors = set(os.listdir("/proc/self/fd"))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = [os.open(os.devnull, os.O_RDONLY) for _ in range(free)]
    lowest = os.open(os.devnull, os.O_RDONLY)
    for descriptor in (*spare, lowest):
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            async for _ in program.stream_output():
                pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert set(os.listdir("/proc/self/fd")) == descriptors


def _pipes() -> int:
    """How many pipes this process holds open."""
    names = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return sum(os.path.lexists(name) and os.readlink(name).startswith("pipe:") for name in names)


# -- a worker that is killed ------------------------------------------------------------------------------------------

SLEEPS = [
    sys.executable,
    "-c",
    LEAVES_A_CHILD + "import os, time; open(sys.argv[1] + '.own', 'w').write(str(os.getpid()))\ntime.sleep(600)",
]
HELPERS = {
    "for a bounded answer": "asyncio.run(run_program(argv, cwd='/', env=os.environ, timeout_s=600))",
    "in a thread": "run_blocking(Launch(argv, os.environ), lambda _: None, 600.0)",
    "that talks": "asyncio.run(talk())",
    "without its watcher": "kill_watcher(); asyncio.run(run_program(argv, cwd='/', env=os.environ, timeout_s=600))",
}
WORKER = """
import asyncio, os, sys
from treadle.base import subprocesses
from treadle.base.subprocesses import Launch, Program, run_blocking, run_program, start_program
argv = sys.argv[2:]

async def talk():
    process = await start_program(argv, os.environ)
    await process.wait()

def kill_watcher():
    run_blocking(Launch(["/bin/true"], os.environ), lambda _: None, 60.0)
    for pid in open(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read().split():
        os.kill(int(pid), 9)
        os.waitpid(int(pid), 0)

exec(sys.argv[1])
"""


@pytest.mark.thorough(one_of=8)
@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
@pytest.mark.parametrize("helper", HELPERS)
def test_helpers_end_with_a_worker_that_is_killed(helper: str, tmp_path: Path) -> None:
    """S-14, fault 38: SIGKILL, which the worker cannot answer; also what its program started is gone."""
    note = tmp_path / "child"
    worker = subprocess.Popen([sys.executable, "-c", WORKER, HELPERS[helper], *SLEEPS, str(note)])
    try:
        own_pid = _number(Path(f"{note}.own"))
        child = _number(note)
        assert not _has_ended(own_pid)
        assert not _has_ended(child)
    finally:
        worker.kill()
        worker.wait()
    _wait_until_gone(own_pid)
    _wait_until_gone(child)


@pytest.mark.thorough(one_of=8)
@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_the_watcher_ends_with_its_worker_and_leaves_what_has_ended_alone(tmp_path: Path) -> None:
    body = (
        "run_blocking(Launch(['/bin/true'], os.environ), lambda _: None, 60.0); print(os.getpid(), flush=True); input()"
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, body], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    pid = int(worker.stdout.readline())
    (watcher,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    worker.communicate("\n")
    _wait_until_gone(int(watcher))


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
@pytest.mark.parametrize(
    "run",
    [
        lambda argv: run_blocking(Launch(argv, dict(os.environ)), lambda _: None, 60.0),
        lambda argv: asyncio.run(run_program(argv, cwd="/", env=dict(os.environ))),
    ],
    ids=["blocking", "asynchronous"],
)
def test_a_program_whose_watcher_cannot_be_started_does_not_run(
    run: Callable[[list[str]], object], monkeypatch: pytest.MonkeyPatch
) -> None:  # S-14
    monkeypatch.setattr(subprocesses, "_groups", subprocesses._WatchedGroups())
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    argv = ["sleep", f"600.{os.getpid()}{time.monotonic_ns()}"]
    with pytest.raises((OSError, ToolError), match="No such file"):
        run(argv)
    until = time.monotonic() + 10
    while _is_running(argv):
        assert time.monotonic() < until, "it lives"
        time.sleep(0.02)


def _is_running(argv: list[str]) -> bool:
    command_line = "\0".join(argv).encode() + b"\0"
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if file.read_bytes() == command_line:
                return True
    return False


def _number(note: Path) -> int:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if note.exists() and (text := note.read_text()):
            return int(text)
        time.sleep(0.02)
    raise AssertionError(f"{note} was not written")


def _wait_until_gone(pid: int) -> None:
    until = time.monotonic() + 60
    while not _has_ended(pid):
        assert time.monotonic() < until, "it lives"
        time.sleep(0.02)
