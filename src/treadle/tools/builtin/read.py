"""read_file: numbered lines of a text file, bounded, with how to get the rest (T-01)."""

from treadle.errors import ToolError
from treadle.ports.toolset import Invocation, Outcome
from treadle.ports.workspace import Workspace, WorkspaceOf, inert
from treadle.protocol.tools import ToolSpec
from treadle.tools.builtin.base import MAX_BYTES, MAX_LINES, PATH, ReadOnly, cut, in_thread, parameters
from treadle.tools.builtin.text import BOM, MAX_FILE, decode


class ReadFile(ReadOnly):
    spec = ToolSpec(
        name="read_file",
        description=(
            "Read a text file. Each line comes as its number, a tab and its text; the numbers are not part of the "
            f"file. At most {MAX_LINES:,} lines or {MAX_BYTES // 1000} KB at once: give start_line and end_line "
            "(from 1, inclusive) for a part."
        ),
        parameters=parameters(
            required=("path",),
            path=PATH,
            start_line={"type": "integer", "minimum": 1},
            end_line={"type": "integer", "minimum": 1},
        ),
        read_only=True,
        idempotent=True,
        summary_argument="path",
    )

    def __init__(self, workspace_of: WorkspaceOf) -> None:
        self._workspace_of = workspace_of

    async def run(self, invocation: Invocation) -> Outcome:
        arguments = invocation.arguments
        workspace = self._workspace_of(invocation.root)
        return await in_thread(
            _read, workspace, arguments["path"], arguments.get("start_line") or 1, arguments.get("end_line") or 0
        )


def _read(workspace: Workspace, path: str, start: int, end: int) -> Outcome:
    shown = inert(workspace.relative(path))
    lines, notes = _lines(decode(workspace.read_bytes(path, MAX_FILE), shown))
    total = len(lines)
    if not total:
        return Outcome(f"{shown} is empty (0 lines).", summary="0 lines")
    if start > total:
        raise ToolError(f"{shown} has only {total:,} lines; start_line {start} is past its end.")
    if end and end < start:
        raise ToolError(f"end_line {end} comes before start_line {start}.")
    wanted = min(end or total, total)
    body, last = _numbered(lines, start, wanted)
    header = f"{shown} ({total:,} {'line' if total == 1 else 'lines'}{notes})"
    if (start, last) != (1, total):
        header += f", lines {start} to {last}"
    parts = [header, *body]
    if last < wanted:
        parts.append(f"[lines {last + 1} to {wanted} are not shown; call read_file with start_line={last + 1}]")
    return Outcome("\n".join(parts), summary=f"{last - start + 1} of {total} lines")


def _lines(text: str) -> tuple[list[str], str]:
    """The lines without their ends, and what a reader must know about them."""
    notes = []
    if text.startswith(BOM):
        text = text[1:]
        notes.append("UTF-8 with byte-order mark")
    if not text:
        return [], ""
    if "\r\n" in text:
        notes.append(
            "CRLF line endings" if text.count("\n") == text.count("\r\n") else "mixed CRLF and LF line endings"
        )
        text = text.replace("\r\n", "\n")
    if text.endswith("\n"):
        text = text[:-1]
    else:
        notes.append("no newline at the end")
    return text.split("\n"), "".join(f"; {note}" for note in notes)


def _numbered(lines: list[str], start: int, end: int) -> tuple[list[str], int]:
    """As many numbered lines as fit, at least one (cut if it alone is too long), and the number of the last."""
    body: list[str] = []
    size = 0
    for number in range(start, min(end, start + MAX_LINES - 1) + 1):
        line = f"{number}\t{lines[number - 1]}"
        length = len(line.encode()) + 1
        if size + length > MAX_BYTES:
            if body:
                break
            short = cut(line, MAX_BYTES)
            body.append(f"{short}\n[line {number} is cut: {length:,} bytes; use run_command to see other parts of it]")
            break
        size += length
        body.append(line)
    return body, start + len(body) - 1
