"""Programs that Treadle runs to their end, each without a shell and in a session of its own that is killed when its
caller leaves, and when this process is killed: `run_program` for a bounded answer, `Program` for output as it comes,
`run_blocking` for threads, `start_program` for those that talk. Commands of the model have a supervisor instead.

The streams of an asynchronous program are pipes that are made here. Those of asyncio are no pipes in every version of
Python, and some programs read their input only from a pipe; and asyncio may wait for the end of its pipes before it
tells that the program has ended, which is never when something that it left behind holds one."""

import asyncio
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, contextmanager, suppress
from typing import Any, Literal, Protocol

import msgspec

from treadle.base import orphan_watcher
from treadle.base.file_system import is_below
from treadle.base.process_folders import make_folder_prefix
from treadle.errors import ToolError

OUTPUT_CAP = 2_000_000
_ERRORS_CAP = 8_192  # how much is kept of what a program writes to its standard error: the end of it
_READ = 1 << 16
_LINGER_S = 0.25  # for the last output after the program has ended, if something holds the pipe
_REAP_S = 5.0
_POLL_S = 0.05
_EXIT_S = 0.7  # how long a program has to exit after its input has ended, and after SIGTERM


class Completed(msgspec.Struct, frozen=True):
    ending: Literal["exited", "timed_out", "stopped"] = "exited"
    code: int = 0  # the exit code; -N if signal N killed it
    errors: str = ""  # the end of what it wrote to its standard error
    output: str = ""  # the beginning of its standard output, if no other reader took it


async def run_program(
    argv: Sequence[str], *, cwd: str, env: Mapping[str, str], stdin_data: bytes = b"", timeout_s: float = 30.0
) -> Completed:
    """Run a program and keep what it writes, bounded in time and size. OSError if it cannot be started."""
    program = Program(argv, env, stdin_data, cwd=cwd, errors_cap=OUTPUT_CAP)
    captured = bytearray()
    try:
        async with asyncio.timeout(timeout_s), aclosing(program.stream_output()) as output:
            async for data in output:
                captured += data[: max(0, OUTPUT_CAP - len(captured))]
    except TimeoutError:
        return Completed("timed_out", -signal.SIGKILL)
    return msgspec.structs.replace(program.ended, output=captured.decode(errors="replace"))


class Program:
    """One run. Read `output` to its end; then `ended` tells how it was."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], stdin: bytes, *, cwd: str = "", errors_cap: int = _ERRORS_CAP
    ) -> None:
        """Without `cwd` it runs in an empty folder, which goes with it."""
        self._argv = argv
        self._env = dict(env)
        self._given, self._cwd, self._errors_cap = stdin, cwd, errors_cap
        self.ended = Completed()

    async def stream_output(self) -> AsyncGenerator[bytes, None]:
        """Yield its output as it comes. Raises OSError if it cannot be started. Closing the iterator kills it."""
        with ExitStack() as stack:
            cwd = self._cwd or stack.enter_context(
                tempfile.TemporaryDirectory(prefix=make_folder_prefix(), ignore_cleanup_errors=True)
            )
            pipes = _Pipes(self._errors_cap)
            stack.callback(pipes.close)
            process = await start_program(self._argv, self._env, cwd, *pipes.far)
            watch = asyncio.create_task(_watch(process, pipes))
            try:
                await pipes.connect(self._given)
                while data := await pipes.output.read(_READ):
                    yield data
                self.ended = Completed("exited", await process.wait(), await pipes.errors.read_text())
            finally:
                watch.cancel()
                kill_group(process.pid)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_REAP_S):
                        await process.wait()


async def _watch(process: asyncio.subprocess.Process, pipes: "_Pipes") -> None:
    """Once the program has ended, what it left behind is waited for no longer than a moment."""
    await process.wait()
    await asyncio.sleep(_LINGER_S)
    kill_group(process.pid)
    pipes.close()


async def start_program(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str | None = None,
    stdin: int = asyncio.subprocess.PIPE,
    stdout: int = asyncio.subprocess.PIPE,
    stderr: int = asyncio.subprocess.DEVNULL,
    limit: int = _READ,
) -> asyncio.subprocess.Process:
    """A program in a session of its own, which the caller ends with `kill_group`. OSError if it cannot be started."""
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=dict(env), start_new_session=True, limit=limit
    )
    try:
        _groups.add(process.pid)
    except OSError:  # no watcher would end it with this process
        kill_group(process.pid)
        await _has_exited(process)
        raise
    return process


@contextmanager
def start_blocking(
    argv: Sequence[str | bytes],
    env: Mapping[str, str],
    cwd: str,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    pass_fds: Sequence[int] = (),
) -> Iterator["subprocess.Popen[bytes]"]:
    """The program, which is gone at the end of the block with all that it started. OSError, ValueError: not started."""
    process = subprocess.Popen(
        argv, -1, None, stdin, stdout, stderr, cwd=cwd, env=dict(env), start_new_session=True, pass_fds=pass_fds
    )
    with process:
        try:
            _groups.add(process.pid)
            yield process
        finally:
            if process.returncode is None:  # not waited for, so its number is still its own, and its group's
                kill_group(process.pid)
            else:
                _groups.remove(process.pid)


def kill_group(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS says EPERM of a group of zombies
        os.killpg(group, signal.SIGKILL)
    _groups.remove(group)


async def terminate(process: asyncio.subprocess.Process) -> None:
    """End a program that served Treadle and all of its session: close its input, then SIGTERM, then SIGKILL. SIGTERM is
    sent twice: the launcher of a sandbox kills a program that ignores the first, and tidies up after it."""
    if process.stdin is not None:
        process.stdin.close()
    for _ in range(2):
        if not await _has_exited(process):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGTERM)
    await _has_exited(process)
    kill_group(process.pid)
    await _has_exited(process)
    transport = getattr(process, "_transport", None)  # do not wait for pipes that a survivor holds open
    if transport is not None:
        with suppress(PermissionError):
            transport.close()


async def _has_exited(process: asyncio.subprocess.Process) -> bool:
    """Wait for its exit for a moment. Not by `wait`, which may also wait for pipes that something else holds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_EXIT_S):
            while process.returncode is None:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
    return process.returncode is not None


async def finish_uncancelled(work: Coroutine[Any, Any, None]) -> None:
    """Finish the work, however often the task is cancelled meanwhile; the cancellation comes after it."""
    task, cancelled = asyncio.create_task(work), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError


class _WatchedGroups:
    """The process groups that must not outlive this process. The watcher starts with the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._watcher = -1

    def add(self, group: int) -> None:
        with self._lock:
            self._groups.add(group)
            self._tell(f"+{group}\n")

    def remove(self, group: int) -> None:
        with self._lock:
            if group in self._groups:
                self._groups.remove(group)
                self._tell(f"-{group}\n")

    def _tell(self, line: str) -> None:
        if self._watcher >= 0:
            with suppress(BrokenPipeError):
                os.write(self._watcher, line.encode())
                return
            os.close(self._watcher)  # the watcher was killed: the next one learns of all groups
            self._watcher = -1
        if self._groups:
            self._watcher = _start_watcher()
            os.write(self._watcher, "".join(f"+{group}\n" for group in self._groups).encode())


_groups = _WatchedGroups()


def _start_watcher() -> int:
    """The end of a pipe to a new watcher, which acts when the pipe is closed: by the end of this process."""
    read_end, write_end = os.pipe()
    to_null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (1, 2)]
    actions = [(os.POSIX_SPAWN_DUP2, read_end, 0), *to_null]
    argv = [sys.executable, "-I", "-S", orphan_watcher.__file__]
    try:
        os.posix_spawn(sys.executable, argv, {}, file_actions=actions, setsid=True)
    except BaseException:
        os.close(write_end)
        raise
    finally:
        os.close(read_end)
    return write_end


class _Input(asyncio.Protocol):
    is_lost = False

    def connection_lost(self, _error: Exception | None) -> None:
        self.is_lost = True


class _Tail(asyncio.Protocol):
    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._kept = bytearray()
        self._whole = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._kept += data
        if len(self._kept) > 2 * self._cap:
            del self._kept[: -self._cap]

    def connection_lost(self, _error: Exception | None) -> None:
        self._whole.set()

    async def read_text(self) -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                await self._whole.wait()
        return self._kept[-self._cap :].decode("utf-8", "replace")


def open_pipes(count: int) -> list[tuple[int, int]]:
    """Pipes, each as its reading and its writing end. OSError if not all can be opened: then none stays open."""
    pipes: list[tuple[int, int]] = []
    try:
        while len(pipes) < count:
            pipes.append(os.pipe())
    except OSError:
        for end in (end for pipe in pipes for end in pipe):
            os.close(end)
        raise
    return pipes


class _Pipes:
    """The three streams of a program: `far` are its ends, the others are ours."""

    def __init__(self, errors_cap: int) -> None:
        (stdin, near_in), (near_out, stdout), (near_err, stderr) = open_pipes(3)
        self.far = [stdin, stdout, stderr]
        self._near = [os.fdopen(near_in, "wb", 0), os.fdopen(near_out, "rb", 0), os.fdopen(near_err, "rb", 0)]
        self._readers: list[asyncio.ReadTransport] = []
        self._writer: asyncio.WriteTransport | None = None
        self._input = _Input()
        self.output = asyncio.StreamReader()
        self.errors = _Tail(errors_cap)

    async def connect(self, stdin_data: bytes) -> None:
        """To be called once the program has its own ends. All that is given is written as fast as it is read."""
        self._close_far()
        loop = asyncio.get_running_loop()
        near_in, near_out, near_err = self._near
        reader = asyncio.StreamReaderProtocol(self.output)
        self._readers.append((await loop.connect_read_pipe(lambda: reader, near_out))[0])
        self._readers.append((await loop.connect_read_pipe(lambda: self.errors, near_err))[0])
        self._writer, _ = await loop.connect_write_pipe(lambda: self._input, near_in)
        self._near.clear()
        self._writer.write(stdin_data)
        self._writer.write_eof()

    def close(self) -> None:
        self._close_far()
        while self._readers:
            self._readers.pop().close()
        # With nothing left to write the transport ends by itself, a moment after `write_eof`; ended twice it complains.
        if self._writer is not None and not self._input.is_lost and self._writer.get_write_buffer_size():
            self._writer.abort()
        self._writer = None
        for end in self._near:  # all three, unless every one of them was connected
            end.close()

    def _close_far(self) -> None:
        while self.far:
            os.close(self.far.pop())


class Launch(msgspec.Struct, frozen=True):
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str = "/"
    stdin: int = subprocess.DEVNULL  # the descriptor of an open file
    pass_fds: Sequence[int] = ()


class StopSign(Protocol):
    def is_set(self) -> bool: ...


def run_blocking(
    launch: Launch, feed: Callable[[bytes], None], timeout_s: float, stop: StopSign | None = None
) -> Completed:
    """Run a program that only reads, and hand on its output piece by piece: memory does not grow with it. It ends when
    its time is up or `stop` is set. ToolError if it cannot be started."""
    until = time.monotonic() + timeout_s

    def check_early_end() -> Completed | None:
        if stop is not None and stop.is_set():
            return Completed("stopped")
        return Completed("timed_out") if time.monotonic() >= until else None

    with ExitStack() as stack:
        try:
            child = start_blocking(launch.argv, launch.env, launch.cwd, launch.stdin, pass_fds=launch.pass_fds)
            process = stack.enter_context(child)
        except (OSError, ValueError) as error:
            raise ToolError(f"{launch.argv[0]} could not be started: {error}.") from error
        waiting = stack.enter_context(selectors.DefaultSelector())
        assert process.stdout is not None
        assert process.stderr is not None
        errors = bytearray()
        waiting.register(process.stdout, selectors.EVENT_READ, feed)
        waiting.register(process.stderr, selectors.EVENT_READ, errors.extend)
        while waiting.get_map():
            if early_end := check_early_end():
                return early_end
            for key, _ in waiting.select(_POLL_S):
                data = os.read(key.fd, 4 * _READ)
                if data:
                    key.data(data)
                else:
                    waiting.unregister(key.fileobj)
            del errors[_ERRORS_CAP:]
        pause_s = _POLL_S / 128
        while not _has_ended(process):  # a program may close its output long before it ends
            if early_end := check_early_end():
                return early_end
            time.sleep(pause_s := min(2 * pause_s, _POLL_S))
        kill_group(process.pid)  # with it goes what it left running
        return Completed("exited", process.wait(), errors.decode(errors="replace"))


def _has_ended(process: "subprocess.Popen[bytes]") -> bool:
    """The program is not waited for where that can be helped: so its number is still its own, and its group's."""
    if sys.platform == "darwin":
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def find_program_outside(name: str, project: str) -> str | None:
    """A program of the machine; never one that the project brings along (S-09)."""
    project = os.path.realpath(project)
    path = [each for each in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(each)]
    outside = [each for each in path if not is_below(os.path.realpath(each), project)]
    program = shutil.which(name, path=os.pathsep.join(outside)) if outside else None
    return program if program and not is_below(os.path.realpath(program), project) else None


def make_descriptor_path(descriptor: int, path: str) -> str:
    """A path of the open directory itself, wherever its own path leads by now; that one where descriptors have none."""
    name = f"/proc/self/fd/{descriptor}"
    return name if os.path.isdir(name) else path
