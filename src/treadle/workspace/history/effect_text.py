"""The effect of a command as a person reads it before they allow it: a line for each file, then what changed in the
texts. Bounded, inert, and the same for the same effect, because the answer is bound to it (S-08, W-09)."""

import os

from treadle.errors import ToolError
from treadle.lines.aside import JUDGED, count, sort_out
from treadle.lines.changes import change_lines, total
from treadle.lines.diff import diff
from treadle.ports.snapshots import Effect
from treadle.ports.workspace import inert
from treadle.protocol.files import FileChange, FileConflict, FileState, decode_path
from treadle.workspace.history.contents import SMALL, text_of
from treadle.workspace.history.upper import Upper
from treadle.workspace.paths.root import Root

MOST_FILES = 60
_MOST_LINES = 400
_MOST_CHARS = 24_000
NOTHING = "It changes nothing in the project."


def describe(root: Root, upper: Upper, effect: Effect) -> str:
    if not effect.files and not effect.uncaptured and not effect.conflicts:
        return NOTHING
    lines = [_head(effect), *change_lines(effect.files, shown, MOST_FILES, JUDGED)]
    lines += [f"[not committed: {shown(each.path)}: {each.reason}]" for each in effect.uncaptured[:MOST_FILES]]
    lines += conflict_lines(effect.conflicts)
    diffs = _diffs(root, upper, effect)
    return "\n".join([*lines, "", *diffs] if diffs else lines)


def conflict_lines(conflicts: tuple[FileConflict, ...]) -> list[str]:
    return [f"[conflict: {shown(each.path)}: {each.reason}]" for each in conflicts[:MOST_FILES]]


def shown(path: str) -> str:
    """A path as it is shown, whatever its bytes are."""
    return inert(decode_path(path))


def _head(effect: Effect) -> str:
    files = sort_out(effect.files, JUDGED).told
    stat = total(files, ())
    return f"{count(len(files), 'change')}, +{stat.added:,} -{stat.removed:,}"


def _diffs(root: Root, upper: Upper, effect: Effect) -> list[str]:
    """As many as there is room for; the rest is counted."""
    lines: list[str] = []
    size = 0
    texts = [file for file in sort_out(effect.files, JUDGED).told if _may_be_text(file)]
    texts.sort(key=lambda file: file.action == "deleted")  # what is gone tells least
    for number, file in enumerate(texts):
        if len(lines) >= _MOST_LINES or size >= _MOST_CHARS:
            left = len(texts) - number
            return [*lines, f"[the differences of {count(left, 'more file')} are not shown]"]
        piece = _diff(root, upper, file)
        size += len(piece)
        lines += piece.split("\n") if piece else []
    return lines


def _diff(root: Root, upper: Upper, file: FileChange) -> str:
    try:
        before = None if _no_file(file.before) else root.read_bytes(decode_path(file.path), SMALL)
        after = None if _no_file(file.after) else _bytes(upper, file.path, file.after)
    except ToolError:  # it is being changed, or too large: its line above says that it changed
        return ""
    if b"\0" in (before or b"") + (after or b""):
        return ""
    texts = [None if data is None else _plain(data) for data in (before, after)]
    return diff(shown(file.path), texts[0], texts[1]).text


def _bytes(upper: Upper, path: str, state: FileState | None) -> bytes:
    assert state is not None
    with os.fdopen(upper.open(path, state), "rb") as file:
        return file.read(SMALL)


def _may_be_text(file: FileChange) -> bool:
    """Whether some bytes changed, and they are few enough."""
    states = [state for state in (file.before, file.after) if state is not None]
    if any(state.size > SMALL for state in states) or not any(state.kind == "file" for state in states):
        return False
    return len({state.digest for state in states}) > 1 or len(states) == 1


def _no_file(state: FileState | None) -> bool:
    return state is None or state.kind != "file"


def _plain(data: bytes) -> str:
    """Text in which nothing hides: what a terminal would obey is shown as an escape."""
    text = text_of(data).replace("\r\n", "\n")
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
