"""The output of a command: live for people, bounded for the model, kept whole as a blob if a result shows only a part
(T-11); and read_output, with which the model reads the rest by range. The log records what each handle refers to, so a
handle works after a restart and on another machine."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from os.path import commonprefix
from typing import Any

import msgspec

from treadle.adapters.tools.builtin.base import MAX_BYTES, MAX_LINES, WithContext, build_parameters, run_in_thread
from treadle.base.types import CallKey
from treadle.diff.changes import count
from treadle.errors import NotFound, ToolError
from treadle.ports.commands import Command, CommandExit
from treadle.ports.toolset import Invocation, Outcome, ReadOnlyTool
from treadle.ports.workspace import escape_name
from treadle.protocol.tools import ShortForm, ToolSpec

CAP = 64 << 20  # How many bytes of a command's output are kept: up to that exactly, of more the beginning and the end
HEAD_LINES = 15
TAIL_LINES = 85
_HEAD_BYTES = 10_000
_TAIL_BYTES = 38_000  # Together below 50 KB, with room for the notices
_HEAD_READ = 2 * _HEAD_BYTES
_TAIL_READ = 4 * _TAIL_BYTES  # More raw bytes than are shown, because cleaning may remove most of them
_LIVE_BYTES = 8_000  # a glimpse each time, so that a flood costs neither memory nor the loop's time
_PART = 1 << 20
_SEEN = 64  # bytes before a piece of output that are looked at again, for secrets that began there
_LONGEST_LINE = 1 << 22
_SHOWN = MAX_BYTES - 2_000
_LINES = 500
_STEP = 1 << 16

# Each alternative stops at the next ESC, so that the search stays linear on any input.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links, shell integration (]633;)
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]"  # two-character escapes
    r"|\x1b"
)
_CONTROLS = {code: 0x2400 + code for code in range(32) if code not in (9, 10, 13)} | {127: 0x2421}


class OutputView(msgspec.Struct, frozen=True):
    text: str
    exact: bool  # true if the text is the output, byte for byte; if not, the output itself must be kept somewhere else
    is_shortened: bool = False  # True if something is missing that a reader may want to see


def clean(data: bytes) -> str:
    """Text for a model: escapes stripped, other control characters as visible symbols, broken UTF-8 as `\\xNN`."""
    text = data.decode(errors="backslashreplace").replace("\r\n", "\n")
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return text.translate(_CONTROLS)


def keep_whole_characters(data: bytes) -> bytes:
    """Without the pieces of characters at both ends: the bytes were cut there, the text is not broken."""
    lead = next((at for at, byte in enumerate(data[:3]) if byte & 0xC0 != 0x80), min(3, len(data)))
    return drop_unfinished_character(data[lead:])


def drop_unfinished_character(data: bytes) -> bytes:
    for back in range(1, min(4, len(data)) + 1):
        lead = data[-back]
        if lead & 0xC0 != 0x80:
            length = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
            return data[: len(data) - back] if back < length else data
    return data


def build_whole_view(data: bytes, redact: Callable[[str], str] = str) -> OutputView:
    """Of an output that is all there. Secrets go before anything is cut: half of one would not be recognised."""
    text = redact(clean(data))
    shown_text = text.removesuffix("\n")
    lines = shown_text.split("\n")
    if len(lines) <= HEAD_LINES + TAIL_LINES and len(shown_text.encode()) <= _HEAD_BYTES + _TAIL_BYTES:
        return OutputView(shown_text, text.encode() == data)
    excerpt = _shorten(lines[:HEAD_LINES], lines[-TAIL_LINES:], len(lines), len(shown_text.encode()))
    return OutputView(excerpt, exact=False, is_shortened=True)


def build_ends_view(head: bytes, tail: bytes, lines: int, size: int, redact: Callable[[str], str] = str) -> OutputView:
    first = redact(clean(keep_whole_characters(head))).split("\n")[:HEAD_LINES]
    last = redact(clean(keep_whole_characters(tail))).removesuffix("\n").split("\n")
    last = last[1:] or last  # the first one probably lacks its beginning
    excerpt = _shorten(first, last[-TAIL_LINES:], lines, size - tail.endswith(b"\n"))
    return OutputView(excerpt, exact=False, is_shortened=True)


def _shorten(head: list[str], tail: list[str], lines: int, size: int) -> str:
    """Both ends, and between them how much there was: in lines where whole lines are missing, else in bytes."""
    dropped = lines - len(head) - len(tail)
    if dropped < 0:  # few lines, but long ones: the tail begins where the head ends
        tail = tail[min(-dropped, len(tail) - 1) :]
    encoded_parts = [("\n".join(part)).encode() for part in (head, tail)]
    first, last = encoded_parts[0][:_HEAD_BYTES], encoded_parts[1][-_TAIL_BYTES:]
    missing_bytes = f"{max(0, size - len(first) - len(last)):,} bytes"
    missing = f"{dropped:,} lines truncated" if dropped > 0 else f"{missing_bytes} truncated"
    if dropped > 0 and [first, last] != encoded_parts:
        missing += f", {missing_bytes} in all"
    return "\n".join((first.decode(errors="ignore"), f"[{missing}]", last.decode(errors="ignore")))


# -- the output of a command ------------------------------------------------------------------------------------------
def build_output_view(command: Command, result: CommandExit, redact: Callable[[str], str] = str) -> OutputView:
    if result.size <= _HEAD_READ + _TAIL_READ:
        return build_whole_view(b"".join(iterate_parts(command)), redact)
    head = command.read(0, _HEAD_READ).data
    return build_ends_view(head, _read(command, result.size - _TAIL_READ), result.lines, result.size, redact)


def find_finished_end(command: Command, begin: int, end: int, finished_length: Callable[[str], int]) -> int:
    """Where what can be shown of a running command's output ends: before an unfinished character or secret."""
    data = _read(command, max(begin, end - _TAIL_READ), end)
    text = drop_unfinished_character(data).decode(errors="surrogateescape")
    return end - len(data) + len(text[: finished_length(text)].encode(errors="surrogateescape"))


def build_range_view(command: Command, begin: int, end: int, redact: Callable[[str], str] = str) -> OutputView:
    shown_text = redact(clean(keep_whole_characters(_read(command, max(0, begin - _SEEN), begin))))

    def redact_news(text: str) -> str:
        """Redact with what was shown before: the first letters of a secret may be there."""
        text = redact(shown_text + text)
        return text[len(commonprefix((shown_text, text))) :]  # noqa: RUF071 - letters, not folders

    size = end - begin
    if size <= _HEAD_READ + _TAIL_READ:
        return build_whole_view(_read(command, begin, end), redact_news)
    head, tail = _read(command, begin, begin + _HEAD_READ), _read(command, end - _TAIL_READ, end)
    lines = sum(_read(command, at, min(at + _PART, end)).count(b"\n") for at in range(begin, end, _PART))
    return build_ends_view(head, tail, lines, size, redact_news)


def _read(command: Command, begin: int, end: int = 1 << 62) -> bytes:
    data = bytearray()
    while begin < end and (output := command.read(begin, min(end - begin, _PART))).data and output.offset < end:
        data += output.data[: end - output.offset]
        begin = output.offset + len(output.data)
    return bytes(data)


def iterate_parts(command: Command) -> Iterator[bytes]:
    """All that was kept, in order, with a line where something was not. One piece in memory at a time."""
    at, last_byte = 0, b"\n"
    while (output := command.read(at, _PART)).data:
        if output.offset > at:
            gap = f"[{output.offset - at:,} bytes dropped]\n".encode()
            yield gap if last_byte == b"\n" else b"\n" + gap
        yield output.data
        at, last_byte = output.offset + len(output.data), output.data[-1:]


def redact_secrets(pieces: Iterable[bytes], redact: Callable[[str], str]) -> Iterator[bytes]:
    """Redact whole lines, so that no secret is cut (S-11), outside of a private key; anywhere if no line ends for long.
    Bytes that are no text stay."""

    def clean_text(data: bytes) -> bytes:
        return redact(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    buffer = b""
    for piece in pieces:
        buffer += piece
        boundary = buffer.rfind(b"\n") + 1
        key = buffer.rfind(b"-----BEGIN ", 0, boundary)
        if key >= 0 and buffer.find(b"-----END ", key, boundary) < 0:
            boundary = key
        boundary = boundary or (len(buffer) if len(buffer) > _LONGEST_LINE else 0)
        if boundary:
            yield clean_text(buffer[:boundary])
            buffer = buffer[boundary:]
    yield clean_text(buffer)


def format_handle_line(command_exit: CommandExit, call: CallKey) -> str:
    note = f"; of {command_exit.size:,} bytes the beginning and the end were kept" if command_exit.size > CAP else ""
    return f'[the whole output: read_output handle="{call}"{note}]'


_CROSS_DEVICE = re.compile(r"Invalid cross-device link|\bEXDEV\b")
_RENAME_HINT = (
    "[a folder of the project cannot be renamed in place here (EXDEV); mv copies it instead. In place of "
    "`git mv OLD NEW` use: mv OLD NEW && git add -A OLD NEW]"
)


def find_rename_hint(text: str) -> str:
    """Advice if a folder could not be renamed on a view; the kernel's `redirect_dir` needs a privileged mount."""
    return _RENAME_HINT if _CROSS_DEVICE.search(text) else ""


_SETTINGS_UNWRITTEN = re.compile(r"could not (?:write|lock) config file \S*\.git/config")
_WORDS_OF_LINE = re.compile(r"[;|&()\n]|[^\s;|&()]+")
_RENAMING_OPTION = re.compile(r"-[a-zA-Z]*[mMcC]|--move|--copy")
RENAMES_BRANCH = (
    "Not run: git branch -m and -c also write .git/config, which commands cannot change, so they would fail half-way. "
    "Use: git switch -c NEW OLD, and git branch -d OLD if it is a rename. The upstream is not taken along; a person "
    "can set it."
)


def is_branch_rename(command: str) -> bool:
    """True if the command plainly renames or copies a branch. A script may do so, too: see `find_settings_hint`."""
    words = iter(_WORDS_OF_LINE.findall(command))
    for word in (each for each in words if each.rpartition("/")[2] == "git"):
        word = next(words, "")
        while word.startswith("-"):
            if word in ("-c", "-C"):
                next(words, "")
            word = next(words, "")
        if word == "branch" and _RENAMING_OPTION.fullmatch(next(words, "")):
            return True
    return False


def find_settings_hint(text: str) -> str:
    """Advice about git's settings, which commands cannot change; empty if the output tells of no such failure."""
    hint = (
        "[commands cannot change .git/config: git runs programs that it names. What git did before that is kept. Pass "
        "settings with `git -c NAME=VALUE`; upstreams, remotes and lasting settings are for a person to set]"
    )
    return hint if _SETTINGS_UNWRITTEN.search(text) else ""


def describe_exit(command_exit: CommandExit) -> str:
    if command_exit.exceeded:
        return f"stopped: {command_exit.error}"
    return f"exit {command_exit.code}" if command_exit.code >= 0 else f"killed by signal {-command_exit.code}"


def format_stopped_lines(names: Sequence[str], *, left_behind: bool = False) -> tuple[str, ...]:
    counts = Counter(escape_name(name) for name in names)
    name_list = ", ".join(name if number == 1 else f"{name} ({number})" for name, number in counts.most_common(10))
    suffix = f": {name_list}{' …' if len(counts) > 10 else ''}" if name_list else ""
    note = (
        f"[processes that it left running in the background were stopped{suffix}. A process that is to go on runs as "
        "its own command with background=true]"
    )
    return (note,) if names or left_behind else ()


class LiveOutput:
    def __init__(self, command: Command, emit: Callable[[str], None]) -> None:
        self._command, self._emit = command, emit
        self._at = 0

    def show(self, *, last: bool) -> bool:
        with suppress(OSError):
            skipped = max(0, self._command.read(0, 0).size - self._at - _LIVE_BYTES)
            output = self._command.read(self._at + skipped, _LIVE_BYTES)
            data = output.data if last else drop_unfinished_character(output.data)
            if data:
                self._at = output.offset + len(data)
                shown_data = keep_whole_characters(data) if skipped else data
                self._emit((f"[{skipped:,} bytes skipped]\n" if skipped else "") + clean(shown_data))
                return True
        return False


# -- read_output ------------------------------------------------------------------------------------------------------
class ReadOutput(WithContext, ReadOnlyTool):
    spec = ToolSpec(
        name="read_output",
        description=(
            "Read more of an output that was cut. `handle` is the one that the result named. By lines (start_line, "
            f"end_line; {_LINES} unless said otherwise), or for very long lines by bytes (offset)."
        ),
        short=ShortForm("Read more of an output that was cut.", ("handle",), ("start_line", "end_line")),
        needs="output",
        parameters=build_parameters(
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

    async def run(self, invocation: Invocation) -> Outcome:
        handle = str(invocation.arguments["handle"]).strip().strip("[]\"'")
        return await run_in_thread(_read_range, await self._read_data(invocation, handle), handle, invocation.arguments)

    async def _read_data(self, invocation: Invocation, handle: str) -> bytes:
        if digest := invocation.outputs.get(handle):
            try:
                return await self._context.blobs.get_blob(digest)
            except NotFound:
                raise ToolError(f"The output {handle} is no longer there. Run what made it again.") from None
        if self._context.commands is not None:
            command = await self._context.commands.find(invocation.chat, CallKey(handle))
            if command is not None and (data := await run_in_thread(lambda: b"".join(iterate_parts(command)))):
                return data
        handles = ", ".join(list(invocation.outputs)[-10:]) or "none"
        raise ToolError(f"There is no output with the handle {handle!r}. Handles of outputs that were cut: {handles}.")


def _read_range(data: bytes, handle: str, arguments: dict[str, Any]) -> Outcome:
    if "offset" in arguments:
        offset = arguments["offset"]
        if offset >= len(data):
            raise ToolError(f"The output {handle} has {len(data):,} bytes; there is nothing at {offset:,}.")
        text, end = _read_fitting_text(data, offset, len(data))
        more = f"\n[{len(data) - end:,} bytes follow: offset={end}]" if end < len(data) else ""
        return Outcome(f"[bytes {offset:,} to {end:,} of {len(data):,}]\n{text}{more}", f"bytes {offset:,} to {end:,}")
    first = int(arguments.get("start_line") or 1)
    last = min(int(arguments.get("end_line") or first + _LINES - 1), first + MAX_LINES - 1)
    total = data.count(b"\n") + (not data.endswith(b"\n"))
    if first > total:
        raise ToolError(f"The output {handle} has {count(total, 'line')}; there is no line {first:,}.")
    begin = _find_line_start(data, 0, first - 1)
    text, end = _read_fitting_text(data, begin, _find_line_start(data, begin, last - first + 1))
    shown_bytes = data[begin:end]
    last = first + max(0, shown_bytes.count(b"\n") - shown_bytes.endswith(b"\n"))
    more = ""
    if end < len(data):
        next_line = f"start_line={last + 1}" if shown_bytes.endswith(b"\n") else f"offset={end}"
        more = f"\n[{len(data) - end:,} bytes follow: {next_line}]"
    return Outcome(f"[lines {first:,} to {last:,} of {total:,}]\n{text}{more}", f"lines {first:,} to {last:,}")


def _read_fitting_text(data: bytes, begin: int, end: int) -> tuple[str, int]:
    """As much of a range as a result takes, cleaned, and where that ends: after a whole line if there is one."""
    most = _SHOWN
    while True:
        stop = min(end, begin + most)
        if stop < end:
            stop = data.rfind(b"\n", begin, stop) + 1 or stop
        text = clean(keep_whole_characters(data[begin:stop])).removesuffix("\n")
        if len(text.encode()) <= _SHOWN:
            return text, stop
        most //= 2  # cleaning makes binary data longer


def _find_line_start(data: bytes, at: int, lines: int) -> int:
    """Where the line begins that is so many lines after `at`. Counts in large steps: there may be millions of lines."""
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
