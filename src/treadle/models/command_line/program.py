"""A program that is given a text and writes an answer: started without a shell, in an empty folder, in a session of its
own, and gone with all it started when its caller is. Knows nothing of models.

All three streams are pipes that are made here. Those of asyncio are no pipes in every version of Python, and some
programs read their input only from a pipe; and asyncio may wait for the end of its pipes before it tells that the
program has ended, which is never when something that it left behind holds one.
"""

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, suppress

import msgspec

_READ = 1 << 16
_COMPLAINT_CAP = 8_192
"""How much is kept of what a program writes to its standard error: the end of it."""
_LINGER_S = 0.25
"""How long the last output may take to come in after the program has ended, if something holds the pipe."""
_REAP_S = 5.0


class Ended(msgspec.Struct, frozen=True):
    code: int
    """The exit code; -N if signal N killed it."""
    complaint: str
    """The end of what it wrote to its standard error."""


class Program:
    """One run. Read `output` to its end; then `ended` tells how it was."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], given: bytes) -> None:
        self._argv = argv
        self._env = dict(env)
        self._given = given
        self.ended = Ended(0, "")

    async def output(self) -> AsyncGenerator[bytes, None]:
        """What it writes, as it comes. Raises OSError if it cannot be started. Closing the iterator kills it."""
        with ExitStack() as stack:
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="treadle-program-", ignore_cleanup_errors=True)
            )
            pipes = stack.enter_context(_Pipes())
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=pipes.far[0],
                stdout=pipes.far[1],
                stderr=pipes.far[2],
                cwd=folder,
                env=self._env,
                start_new_session=True,
            )
            watch = asyncio.create_task(_watch(process, pipes))
            try:
                await pipes.connect(self._given)
                while data := await pipes.output.read(_READ):
                    yield data
                code = await process.wait()
                self.ended = Ended(code, await pipes.complaint.text())
            finally:
                watch.cancel()
                _kill(process.pid)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_REAP_S):
                        await process.wait()


async def _watch(process: asyncio.subprocess.Process, pipes: "_Pipes") -> None:
    """Once the program has ended, what it left behind is waited for no longer than a moment."""
    await process.wait()
    await asyncio.sleep(_LINGER_S)
    _kill(process.pid)
    pipes.close()


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS says EPERM of a group of zombies
        os.killpg(group, signal.SIGKILL)


class _Input(asyncio.Protocol):
    """Knows whether the pipe to the program is still there."""

    lost = False

    def connection_lost(self, _error: Exception | None) -> None:
        self.lost = True


class _Complaint(asyncio.Protocol):
    """Keeps the end of what comes in."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._whole = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._kept += data
        if len(self._kept) > 2 * _COMPLAINT_CAP:
            del self._kept[:-_COMPLAINT_CAP]

    def connection_lost(self, _error: Exception | None) -> None:
        self._whole.set()

    async def text(self) -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                await self._whole.wait()
        return self._kept[-_COMPLAINT_CAP:].decode("utf-8", "replace")


class _Pipes:
    """The three streams of a program: `far` are its ends, the others are ours."""

    def __init__(self) -> None:
        (stdin, near_in), (near_out, stdout), (near_err, stderr) = os.pipe(), os.pipe(), os.pipe()
        self.far = [stdin, stdout, stderr]
        self._near = [near_in, near_out, near_err]
        self._readers: list[asyncio.ReadTransport] = []
        self._writer: asyncio.WriteTransport | None = None
        self._input = _Input()
        self.output = asyncio.StreamReader()
        self.complaint = _Complaint()

    def __enter__(self) -> "_Pipes":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def connect(self, given: bytes) -> None:
        """To be called once the program has its own ends. All that is given is written as fast as it is read."""
        self._close(self.far)
        loop = asyncio.get_running_loop()
        near_in, near_out, near_err = (
            os.fdopen(end, mode, 0) for end, mode in zip(self._near, ("wb", "rb", "rb"), strict=True)
        )
        self._near.clear()
        reader = asyncio.StreamReaderProtocol(self.output)
        self._readers.append((await loop.connect_read_pipe(lambda: reader, near_out))[0])
        self._readers.append((await loop.connect_read_pipe(lambda: self.complaint, near_err))[0])
        self._writer, _ = await loop.connect_write_pipe(lambda: self._input, near_in)
        self._writer.write(given)
        self._writer.write_eof()

    def close(self) -> None:
        self._close(self.far)
        self._close(self._near)
        while self._readers:
            self._readers.pop().close()
        # With nothing left to write the transport ends by itself, a moment after `write_eof`; ended twice it complains.
        if self._writer is not None and not self._input.lost and self._writer.get_write_buffer_size():
            self._writer.abort()
        self._writer = None

    @staticmethod
    def _close(ends: list[int]) -> None:
        while ends:
            os.close(ends.pop())
