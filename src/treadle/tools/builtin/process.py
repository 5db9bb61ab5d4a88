"""One shell command and everything it starts, from the fork until the last of its process group is gone. Blocks: it
runs in a thread of its own. Knows nothing of tools; what the output becomes is its caller's business."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Literal

import msgspec

from treadle.faultpoint import faultpoint

_READ = 1 << 16
_GRACE_S = 1.0
"""How long a group may take to end after SIGTERM."""
_LINGER_S = 0.25
"""How long what a finished shell left behind may take to end by itself: `> >(tee log)` needs a moment."""
_GONE_S = 1.0
_REAP_S = 30.0
_POLL_S = 0.02
_STEP_S = 0.01

Ending = Literal["exited", "timed_out", "stopped"]


class Ended(msgspec.Struct, frozen=True):
    ending: Ending
    code: int
    """The exit code; -N if signal N killed the shell."""
    left_behind: bool = False
    """Whether processes of the group were still alive when the shell ended, and were killed."""


class Stop:
    """Asks a running command to end, from any thread. Wakes the waiting one at once."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def fileno(self) -> int:
        return self._read

    def set(self) -> None:
        with suppress(OSError):
            os.write(self._write, b"x")

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


def supervise(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    timeout_s: float,
    stop: Stop,
    feed: Callable[[bytes], None],
) -> Ended:
    """Run a command in a session of its own, hand its merged output to `feed`, and return when all of it has ended.
    Raises OSError if it cannot be started."""
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout as pipe:
        os.set_blocking(pipe.fileno(), False)
        try:
            faultpoint("tool.command_started")
            with _Watch(process, pipe.fileno(), stop, feed) as watch:
                ended = _follow(process, watch, timeout_s)
        except BaseException:
            _kill(process.pid, signal.SIGKILL)
            process.wait()
            raise
    faultpoint("tool.command_ended")
    return ended


class _Watch:
    """Waits for whatever comes first: output, the shell's end, a stop. A descriptor of the process tells of its end
    where the system has one (Linux); elsewhere it is asked every few milliseconds."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", pipe: int, stop: Stop, feed: Callable[[bytes], None]
    ) -> None:
        self._process = process
        self._pipe = pipe
        self._stop = stop
        self._feed = feed
        self._pidfd = -1
        self._poll = select.poll()
        self.open = True
        """Whether someone may still write output."""

    def __enter__(self) -> "_Watch":
        if hasattr(os, "pidfd_open"):
            with suppress(OSError):
                self._pidfd = os.pidfd_open(self._process.pid)
                self._poll.register(self._pidfd, select.POLLIN)
        self._poll.register(self._pipe, select.POLLIN)
        self._poll.register(self._stop.fileno(), select.POLLIN)
        return self

    def __exit__(self, *_: object) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)

    def ignore_stop(self) -> None:
        self._poll.unregister(self._stop.fileno())

    def ignore_exit(self) -> None:
        if self._pidfd >= 0:
            self._poll.unregister(self._pidfd)

    def wait(self, until: float) -> set[str]:
        """What happened before `until`; empty if nothing did."""
        left = max(0.0, until - time.monotonic())
        if self._pidfd < 0:
            left = min(left, _POLL_S)
        seen = {fd for fd, _ in self._poll.poll(left * 1000)}
        happened = set()
        if self._pipe in seen:
            happened.add("output")
            self._read()
        if self._stop.fileno() in seen:
            happened.add("stop")
        if self._pidfd in seen or (self._pidfd < 0 and self._process.poll() is not None):
            happened.add("exit")
        return happened

    def _read(self) -> None:
        try:
            data = os.read(self._pipe, _READ)
        except BlockingIOError:
            return
        if data:
            self._feed(data)
        else:
            self.open = False
            self._poll.unregister(self._pipe)


def _follow(process: "subprocess.Popen[bytes]", watch: _Watch, timeout_s: float) -> Ended:
    deadline = time.monotonic() + timeout_s
    ending: Ending = "exited"
    while True:
        happened = watch.wait(deadline)
        if "exit" in happened:
            break
        if "stop" in happened or time.monotonic() >= deadline:
            ending = "stopped" if "stop" in happened else "timed_out"
            watch.ignore_stop()
            _end(process.pid, watch)
            break
    watch.ignore_exit()
    if ending == "exited":
        watch.ignore_stop()
    with suppress(subprocess.TimeoutExpired):  # stuck in the kernel: nothing ends it, and nothing may hang for it
        process.wait(_REAP_S)
    return _clear(process, watch, ending)


def _end(group: int, watch: _Watch) -> None:
    """SIGTERM, a moment for tidying up, SIGKILL; output is read meanwhile, or a writer could not end."""
    _kill(group, signal.SIGTERM)
    until = time.monotonic() + _GRACE_S
    while time.monotonic() < until and "exit" not in watch.wait(until):
        pass
    _kill(group, signal.SIGKILL)


def _clear(process: "subprocess.Popen[bytes]", watch: _Watch, ending: Ending) -> Ended:
    """The shell is gone: let the rest of its group end, kill what does not, and take the last of the output. A
    process that left the group may hold the pipe open for ever; it is not waited for."""
    group = process.pid
    if ending == "exited":
        _linger(group, watch, _LINGER_S)
    left_behind = _alive(group)
    _kill(group, signal.SIGKILL)
    _linger(group, watch, _GONE_S if left_behind else 0.0)
    code = -signal.SIGKILL if process.returncode is None else process.returncode
    return Ended(ending, code, left_behind and ending == "exited")


def _linger(group: int, watch: _Watch, most_s: float) -> None:
    """Take output until the group is gone and nobody can write any more, or the time is up."""
    until = time.monotonic() + most_s
    while (watch.open or _alive(group)) and (now := time.monotonic()) < until:
        watch.wait(min(until, now + _STEP_S))


def _kill(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS says EPERM of a group of zombies
        os.killpg(group, number)


def _alive(group: int) -> bool:
    """Whether a process of the group still runs. A zombie does not, though the kernel counts it until its parent
    buries it, and in a container that may be never."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    if not os.path.exists("/proc/self/stat"):
        return True
    return any(_runs_in(group, entry) for entry in os.listdir("/proc") if entry.isdigit())


def _runs_in(group: int, pid: str) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, _parent, its_group = file.read().rpartition(b")")[2].split()[:3]
    except (OSError, ValueError):  # it is gone
        return False
    return int(its_group) == group and state not in (b"Z", b"X")
