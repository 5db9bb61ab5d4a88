"""read_file: numbered lines of a text file, bounded, with how to get the rest (T-01). The result records the hash of
the file, so that a later change can be refused if the file is no longer the same (T-13). One pass over a large file
counts lines, hashes, and keeps only the requested lines."""

import hashlib

from treadle.adapters.tools.builtin import base
from treadle.adapters.tools.builtin.base import MAX_BYTES, MAX_LINES, PATH, WithContext, build_parameters, run_in_thread
from treadle.adapters.tools.builtin.file_tool import compute_sha256, keep
from treadle.adapters.tools.builtin.text import BOM, MAX_FILE, NAMES, Text, decode, describe_refusal
from treadle.diff.changes import count
from treadle.diff.encodings import escape_broken_bytes
from treadle.errors import ToolError
from treadle.ports.toolset import Invocation, Outcome, ReadOnlyTool
from treadle.ports.workspace import Workspace, escape_name
from treadle.protocol.content import KnownFile
from treadle.protocol.tools import ShortForm, ToolSpec


class ReadFile(WithContext, ReadOnlyTool):
    spec = ToolSpec(
        name="read_file",
        description=(
            "Read a text file. Each line comes as its number, a tab and its text; the numbers are not part of the "
            f"file. At most {MAX_LINES:,} lines or {MAX_BYTES // 1000} KB at once: give start_line and end_line "
            "(from 1, inclusive) for a part."
        ),
        short=ShortForm(
            "Read a text file. Each line comes behind its number, which is not part of the file.",
            ("path",),
            untold=("start_line", "end_line"),
        ),
        parameters=build_parameters(
            required=("path",),
            path=PATH,
            start_line={"type": "integer", "minimum": 1},
            end_line={"type": "integer", "minimum": 1},
        ),
        read_only=True,
        idempotent=True,
        summary_argument="path",
    )

    async def run(self, invocation: Invocation) -> Outcome:
        arguments = invocation.arguments
        workspace = self._context.workspace_of(*invocation.project)
        start, end = arguments.get("start_line") or 1, arguments.get("end_line") or 0
        if end and end < start:
            raise ToolError(f"end_line {end} comes before start_line {start}.")
        outcome, data = await run_in_thread(_read, workspace, arguments["path"], start, end)
        await keep(self._context.blobs, data)
        return outcome


def _read(workspace: Workspace, given_path: str, start: int, end: int) -> tuple[Outcome, bytes | None]:
    """The result, and the bytes that the model has now seen if they are few enough to be kept."""
    path = workspace.to_relative(given_path)
    status = workspace.stat(path)
    if status is None:
        raise ToolError(base.describe_missing_path(workspace, path))
    if status.kind == "file" and status.size > MAX_FILE:
        return read_large(workspace, path, start, end), None
    data = workspace.read_bytes(path, MAX_FILE)
    known_files = (KnownFile(path, compute_sha256(data)),)
    shown_path = escape_name(path)
    text, summary = format_numbered_text(shown_path, decode(data, shown_path), start, end)
    return Outcome(text, summary=summary, known_files=known_files), data


def format_numbered_text(shown_path: str, file: Text, start: int, end: int) -> tuple[str, str]:
    """The lines from `start` to `end` (0: the last) as the model sees them, and which. ToolError if there are none."""
    lines, notes = _split_lines(file)
    total = len(lines)
    if not total:
        return f"{shown_path} is empty (0 lines).", "0 lines"
    if start > total:
        raise ToolError(f"{shown_path} has only {count(total, 'line')}; start_line {start} is past its end.")
    end_line = min(end or total, total)
    body, last = _number_lines(lines, start, end_line)
    header = f"{shown_path} ({count(total, 'line')}{notes})"
    if (start, last) != (1, total):
        header += f", lines {start} to {last}"
    return "\n".join([header, *body, *_note_rest(last, end_line)]), f"{last - start + 1} of {count(total, 'line')}"


def _split_lines(file: Text) -> tuple[list[str], str]:
    text = escape_broken_bytes(file.text)
    notes = [NAMES[file.encoding]] if file.encoding != "utf-8" else []
    if text.startswith(BOM):
        text = text[1:]
        if file.encoding == "utf-8":
            notes.append("UTF-8 with byte-order mark")
    if not text:
        return [], ""
    feed = "\n"
    if "\r\n" in text:
        feeds, returns = text.count("\n"), text.count("\r\n")
        notes.append("CRLF line endings" if feeds == returns else "mixed CRLF and LF line endings")
        text = text.replace("\r\n", "\n")
    elif "\r" in text and "\n" not in text:
        notes.append("CR line endings")
        feed = "\r"
    if text.endswith(feed):
        text = text[:-1]
    else:
        notes.append("no newline at the end")
    return text.split(feed), "".join(f"; {note}" for note in notes)


def _number_lines(lines: list[str], start: int, end: int) -> tuple[list[str], int]:
    """As many numbered lines as fit, at least one (cut if it alone is too long), and the number of the last."""
    body: list[str] = []
    size = 0
    for number in range(start, min(end, start + MAX_LINES - 1) + 1):
        line = f"{number}\t{lines[number - 1]}"
        length = len(line.encode()) + 1
        if size + length > MAX_BYTES:
            note = f"[line {number} is cut: {length:,} bytes; use run_command to see other parts of it]"
            body = body or [f"{base.truncate_utf8(line)}\n{note}"]
            break
        size += length
        body.append(line)
    return body, start + len(body) - 1


class _Window:
    """The wanted lines, as many as fit; the one that is under way is kept only as far as it can be shown."""

    def __init__(self, start: int, end: int) -> None:
        self._start, self._end = start, end or start + MAX_LINES
        self.lines: list[bytes] = []
        self.number = 1
        self.full = False
        self._size = 0
        self._open = bytearray()
        self._length = 0

    def feed(self, chunk: bytes) -> None:
        feeds = chunk.count(b"\n")
        if self.full or self.number + feeds < self._start:  # no wanted line ends in it
            self.number += feeds
            return
        first, *others = chunk.split(b"\n", max(0, self._start - self.number) + MAX_LINES + 1)
        self._add(first)
        for piece in others:
            self._close()
            self._add(piece)

    def finish(self) -> None:
        if self._length:
            self._close()

    def _add(self, piece: bytes) -> None:
        self._length += len(piece)
        self._open += piece[: max(0, MAX_BYTES - len(self._open))]

    def _close(self) -> None:
        if self.number >= self._start and not self.full:
            self._size += len(self._open) + 10
            if (self._size > MAX_BYTES and self.lines) or len(self.lines) >= MAX_LINES or self.number > self._end:
                self.full = True
            else:
                cut_note = b"" if self._length <= len(self._open) else b" [line cut: %d bytes]" % self._length
                self.lines.append(bytes(self._open).removesuffix(b"\r") + cut_note)
        self._open.clear()
        self._length = 0
        self.number += 1


def read_large(workspace: Workspace, path: str, start: int, end: int) -> Outcome:
    """As read_file answers for smaller files; UTF-8 only."""
    shown_path = escape_name(path)
    window = _Window(start, end)
    total = hashlib.sha256()
    size, feeds, last = 0, 0, b""
    for chunk in workspace.read_chunks(path):
        if not size and (b"\0" in chunk or chunk.startswith((b"\xff\xfe", b"\xfe\xff"))):
            status = workspace.stat(path)
            raise ToolError(
                describe_refusal(chunk, 0 if status is None else status.size, shown_path, "it contains NUL bytes")
            )
        window.feed(chunk)
        total.update(chunk)
        size += len(chunk)
        feeds += chunk.count(b"\n")
        last = chunk[-1:]
    window.finish()
    total_lines = feeds + (last not in (b"", b"\n"))
    if not window.lines:
        raise ToolError(f"{shown_path} has only {count(total_lines, 'line')}; start_line {start} is past its end.")
    until = start + len(window.lines) - 1
    texts = [escape_broken_bytes(line.decode(errors="surrogateescape")) for line in window.lines]
    body = [f"{number}\t{text}" for number, text in enumerate(texts, start)]
    header = f"{shown_path} ({count(total_lines, 'line')}, {size:,} bytes), lines {start} to {until}"
    text = "\n".join([header, *body, *_note_rest(until, min(end or total_lines, total_lines))])
    known_files = (KnownFile(path, total.hexdigest()),)
    return Outcome(text, summary=f"{len(body)} of {count(total_lines, 'line')}", known_files=known_files)


def _note_rest(last: int, end: int) -> list[str]:
    note = f"[lines {last + 1} to {end} are not shown; call read_file with start_line={last + 1}]"
    return [note] if last < end else []
