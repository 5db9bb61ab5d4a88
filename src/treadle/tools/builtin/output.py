"""Whole outputs: kept as blobs when a result shows only a part (T-11), and read_output, with which the model reads the
rest by range. What a handle means is in the log, so it works after a restart and on another machine."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from treadle.errors import NotFound, ToolError
from treadle.lines.aside import count
from treadle.ports.commands import Command, Ended
from treadle.ports.toolset import Invocation, Outcome
from treadle.protocol.tools import ToolSpec
from treadle.tools.builtin.base import MAX_BYTES, MAX_LINES, ReadOnly, in_thread, parameters
from treadle.tools.builtin.capture import HEAD_READ, TAIL_READ, View, clean, view_ends, view_whole, whole_characters
from treadle.tools.builtin.context import ToolContext
from treadle.tools.builtin.file_change import lines_in
from treadle.types import CallKey

CAP = 64 << 20
"""How many bytes of a command's output are kept: up to that exactly, of more the beginning and the end."""
_PART = 1 << 20
_LONGEST_LINE = 1 << 22
_SHOWN = MAX_BYTES - 2_000
_LINES = 500
_STEP = 1 << 16


def parts(command: Command) -> Iterator[bytes]:
    """All that was kept, in order, with a line where something was not. One piece in memory at a time."""
    at, before = 0, b"\n"
    while (output := command.read(at, _PART)).data:
        if output.offset > at:
            gap = f"[{output.offset - at:,} bytes dropped]\n".encode()
            yield gap if before == b"\n" else b"\n" + gap
        yield output.data
        at, before = output.offset + len(output.data), output.data[-1:]


def without_secrets(pieces: Iterable[bytes], redact: Callable[[str], str]) -> Iterator[bytes]:
    """The same without secrets, whole lines at a time, so that none is cut in two by chance (S-11). Bytes that are no
    text stay as they are."""
    held = b""
    for piece in pieces:
        held += piece
        cut = _whole(held)
        if cut:
            yield _redacted(held[:cut], redact)
            held = held[cut:]
    yield _redacted(held, redact)


def _whole(held: bytes) -> int:
    """Where the last whole line ends, outside of a private key; anywhere, if no line ends for very long."""
    cut = held.rfind(b"\n") + 1
    key = held.rfind(b"-----BEGIN ", 0, cut)
    if key >= 0 and held.find(b"-----END ", key, cut) < 0:
        cut = key
    return cut or (len(held) if len(held) > _LONGEST_LINE else 0)


def _redacted(data: bytes, redact: Callable[[str], str]) -> bytes:
    return redact(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def view(command: Command, ended: Ended) -> View:
    """What the model sees of the output of a command that has ended."""
    if ended.size <= HEAD_READ + TAIL_READ:
        return view_whole(b"".join(parts(command)))
    head = command.read(0, HEAD_READ).data
    tail = b"".join(_from(command, max(0, ended.size - TAIL_READ)))
    return view_ends(head, tail, ended.lines, ended.size)


def _from(command: Command, at: int) -> Iterator[bytes]:
    while (output := command.read(at, _PART)).data:
        yield output.data
        at = output.offset + len(output.data)


class ReadOutput(ReadOnly):
    spec = ToolSpec(
        name="read_output",
        description=(
            "Read more of an output that was cut. `handle` is the one that the result named. By lines (start_line, "
            f"end_line; {_LINES} unless said otherwise), or for very long lines by bytes (offset)."
        ),
        parameters=parameters(
            required=("handle",),
            handle={"type": "string", "minLength": 1},
            start_line={"type": "integer", "minimum": 1, "default": 1},
            end_line={"type": "integer", "minimum": 1},
            offset={"type": "integer", "minimum": 0, "description": "Read from this byte on, whatever the lines."},
        ),
        read_only=True,
        idempotent=True,
        summary_argument="handle",
    )

    def __init__(self, context: ToolContext) -> None:
        self._context = context

    async def run(self, invocation: Invocation) -> Outcome:
        handle = str(invocation.arguments["handle"]).strip().strip("[]\"'")
        data = await self._data(invocation, handle)
        return await in_thread(_range, data, handle, invocation.arguments)

    async def _data(self, invocation: Invocation, handle: str) -> bytes:
        if digest := invocation.outputs.get(handle):
            try:
                return await self._context.blobs.get_blob(digest)
            except NotFound:
                raise ToolError(f"The output {handle} is no longer there. Run what made it again.") from None
        if self._context.commands is not None:
            command = await self._context.commands.find(invocation.chat, CallKey(handle))
            if command is not None and (data := await in_thread(lambda: b"".join(parts(command)))):
                return data
        known = ", ".join(list(invocation.outputs)[-10:]) or "none"
        raise ToolError(f"There is no output with the handle {handle!r}. Handles of outputs that were cut: {known}.")


def _range(data: bytes, handle: str, arguments: dict[str, Any]) -> Outcome:
    if "offset" in arguments:
        return _by_bytes(data, handle, arguments["offset"])
    first = int(arguments.get("start_line") or 1)
    last = min(int(arguments.get("end_line") or first + _LINES - 1), first + MAX_LINES - 1)
    total = lines_in(data)
    if first > total:
        raise ToolError(f"The output {handle} has {count(total, 'line')}; there is no line {first:,}.")
    begin = _line_start(data, 0, first - 1)
    text, end = _fitting(data, begin, _line_start(data, begin, last - first + 1))
    shown = data[begin:end]
    last = first + max(0, shown.count(b"\n") - shown.endswith(b"\n"))
    more = ""
    if end < len(data):
        next_line = f"start_line={last + 1}" if shown.endswith(b"\n") else f"offset={end}"
        more = f"\n[{len(data) - end:,} bytes follow: {next_line}]"
    return Outcome(f"[lines {first:,} to {last:,} of {total:,}]\n{text}{more}", f"lines {first:,} to {last:,}")


def _by_bytes(data: bytes, handle: str, offset: int) -> Outcome:
    if offset >= len(data):
        raise ToolError(f"The output {handle} has {len(data):,} bytes; there is nothing at {offset:,}.")
    text, end = _fitting(data, offset, len(data))
    more = f"\n[{len(data) - end:,} bytes follow: offset={end}]" if end < len(data) else ""
    return Outcome(f"[bytes {offset:,} to {end:,} of {len(data):,}]\n{text}{more}", f"bytes {offset:,} to {end:,}")


def _fitting(data: bytes, begin: int, end: int) -> tuple[str, int]:
    """As much of a range as a result takes, cleaned, and where that ends: after a whole line if there is one."""
    most = _SHOWN
    while True:
        stop = min(end, begin + most)
        if stop < end:
            stop = data.rfind(b"\n", begin, stop) + 1 or stop
        text = clean(whole_characters(data[begin:stop])).removesuffix("\n")
        if len(text.encode()) <= _SHOWN:
            return text, stop
        most //= 2  # what is not text becomes longer by cleaning


def _line_start(data: bytes, at: int, lines: int) -> int:
    """Where the line begins that is so many lines after the one at `at`. Counts in large steps first: an output may
    have millions of lines."""
    while lines and (inside := data.count(b"\n", at, at + _STEP)) < lines:
        lines -= inside
        at += _STEP
        if at >= len(data):
            return len(data)
    for _ in range(lines):
        at = data.find(b"\n", at) + 1
        if not at:
            return len(data)
    return at
