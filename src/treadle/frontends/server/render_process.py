"""Rendering in a process of its own (S-20): the kernel kills it when a text has used up its processor time. Then, and
while it is busy for too long, the text is shown as it is. The HTML is cached. The process starts with the first text
and ends with its input, also when the server is killed."""

import asyncio
import hashlib
import os
import select
import signal
import sys
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec

from treadle.base.subprocesses import open_pipes
from treadle.frontends.server.rendering import Kind, render, render_plain

KEPT = 16 << 20
PROCESSOR_S = 3.0
"""For one text. Ordinary ones take a few milliseconds, the largest that are coloured about one second."""
QUEUE_S = 2.0  # How long a text waits for those of others.
LONGEST_S = 30.0  # For one text on a busy machine; the start of the process is in it.
MEMORY = 1 << 30
_READ = 1 << 16


class RenderRequest(msgspec.Struct, frozen=True):
    kind: Kind
    text: str
    language: str = ""
    split: bool = False
    numbered: bool = False


class Rendering:
    def __init__(self, most: int = KEPT, *, processor_s: float = PROCESSOR_S, queue_s: float = QUEUE_S) -> None:
        self._kept: OrderedDict[bytes, str] = OrderedDict()
        self._size = 0
        self._most, self._queue_s = most, queue_s
        self._queue: ThreadPoolExecutor | None = None
        self._process = _RenderProcess(processor_s)

    async def render_html(
        self, kind: Kind, text: str, language: str = "", *, split: bool = False, numbered: bool = False
    ) -> str:
        text, language = (each.encode("utf-8", "replace").decode() for each in (text, language))
        key = hashlib.sha256(f"{kind}\0{language}\0{split}\0{numbered}\0{text}".encode()).digest()
        if (cached := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return cached
        if self._queue is None:
            self._queue = ThreadPoolExecutor(1, "render")
        job = self._queue.submit(self._process.render, RenderRequest(kind, text, language, split, numbered))
        result = asyncio.wrap_future(job)
        await asyncio.wait((result,), timeout=self._queue_s)
        if job.cancel():  # others came first, and it has not begun
            return render_plain(text)
        if (html := await result) is None:
            return render_plain(text)
        if len(html) <= self._most and key not in self._kept:
            self._kept[key] = html
            self._size += len(html)
        while self._size > self._most:
            self._size -= len(self._kept.popitem(last=False)[1])
        return html

    def close(self) -> None:
        if self._queue is not None:
            self._queue.submit(self._process.end)
            self._queue.shutdown(wait=False)
            self._queue = None


class _RenderProcess:
    """Used by one thread at a time."""

    def __init__(self, processor_s: float) -> None:
        self._processor_s, self._pid = processor_s, 0
        self._pipes = (-1, -1)

    def render(self, request: RenderRequest) -> str | None:
        """The HTML; plain if the text takes too much processor time; None if the machine had no time for it."""
        until = time.monotonic() + LONGEST_S
        try:
            if not self._pid:
                self._start()
            reader, writer = self._pipes
            _write(writer, msgspec.json.encode(request), until)
            return _read(reader, until)
        except TimeoutError:
            self.end()
            return None
        except (OSError, EOFError):
            used_up = self.end() == -signal.SIGVTALRM
            return render_plain(request.text) if used_up else None
        except BaseException:
            self.end()
            raise

    def _start(self) -> None:
        paths = [str(Path(__file__).resolve().parents[3]), *(path for path in sys.path if os.path.isabs(path))]
        run = f"from treadle.frontends.server.render_process import main; main({self._processor_s})"
        code = f"import sys; sys.path[:] = {paths!r}; {run}"
        (child_in, writer), (reader, child_out) = open_pipes(2)
        dup = os.POSIX_SPAWN_DUP2
        actions = [(dup, child_in, 0), (dup, child_out, 1), (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_RDWR, 0)]
        argv = [sys.executable, "-I", "-S", "-c", code]
        try:
            self._pid = os.posix_spawn(sys.executable, argv, {"LC_ALL": "C.UTF-8"}, file_actions=actions, setsid=True)
            self._pipes = (reader, writer)
        except BaseException:
            os.close(writer)
            os.close(reader)
            raise
        finally:
            for end in (child_in, child_out):
                os.close(end)
        os.set_blocking(writer, False)

    def end(self) -> int:
        """How it ended: its exit code, or -N for signal N."""
        if not self._pid:
            return 0
        pid, pipes = self._pid, self._pipes
        self._pid, self._pipes = 0, (-1, -1)
        for end in pipes:
            os.close(end)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # nothing happens to one that the kernel has killed already
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def __del__(self) -> None:
        self.end()


def _write(fd: int, data: bytes, until: float) -> None:
    remaining = memoryview(len(data).to_bytes(8, "big") + data)
    while remaining:
        _wait_for(fd, select.POLLOUT, until)
        remaining = remaining[os.write(fd, remaining) :]


def _read(fd: int, until: float) -> str:
    data = bytearray()
    while len(data) < 8 or len(data) < 8 + int.from_bytes(data[:8], "big"):
        _wait_for(fd, select.POLLIN, until)
        if not (more := os.read(fd, _READ)):
            raise EOFError
        data += more
    return data[8:].decode("utf-8", "replace")


def _wait_for(fd: int, event: int, until: float) -> None:
    """Wait until the pipe is ready, or closed at its other end. TimeoutError if it is not by then."""
    poll = select.poll()  # `select.select` fails for descriptors from 1024 on
    poll.register(fd, event)
    if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
        raise TimeoutError


def main(processor_s: float) -> None:
    """Answer requests until the input ends. The kernel's timer ends the process even inside a regular expression."""
    import resource

    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    render("markdown", "`x`\n\n```python\nx\n```\n")  # loads the libraries before the timer runs
    with open(0, "rb", closefd=False) as requests, open(1, "wb", closefd=False) as answers:
        while len(head := requests.read(8)) == 8:
            request = msgspec.json.decode(requests.read(int.from_bytes(head, "big")), type=RenderRequest)
            signal.setitimer(signal.ITIMER_VIRTUAL, processor_s)
            html = render(request.kind, request.text, request.language, split=request.split, numbered=request.numbered)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            data = html.encode("utf-8", "replace")
            answers.write(len(data).to_bytes(8, "big") + data)
            answers.flush()
