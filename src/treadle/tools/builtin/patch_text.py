"""Reading a patch (T-08): the envelope that GPT models are trained on, or a unified diff, with what models really send
around and inside it. Text in, sections out; knows no file."""

import re

import msgspec

from treadle.errors import EditError
from treadle.tools.builtin.text import BOM


class PatchLine(msgspec.Struct, frozen=True):
    """One line of a hunk: a space keeps it, a minus removes it, a plus adds it. `raw` is how it was written."""

    mark: str
    text: str
    raw: str


class PatchHunk(msgspec.Struct, frozen=True):
    anchors: tuple[str, ...]
    """Lines that stand somewhere above, outermost first."""
    lines: tuple[PatchLine, ...]
    hint: int = 0
    """The line at which a unified diff says it begins; 0: nothing said."""
    at_end: bool = False
    unended_old: bool = False
    unended_new: bool = False
    """Whether the last line removed, or added, has no newline."""


class Add(msgspec.Struct, frozen=True):
    path: str
    text: str


class Delete(msgspec.Struct, frozen=True):
    path: str


class Update(msgspec.Struct, frozen=True):
    path: str
    move_to: str
    hunks: tuple[PatchHunk, ...]


Section = Add | Delete | Update

_HEADER = re.compile(r"\*\*\* ?(Add|Create|Update|Modify|Delete|Remove) File: ?(.*)", re.IGNORECASE)
_MOVE = re.compile(r"\*\*\* ?(?:Move|Rename) to: ?(.*)", re.IGNORECASE)
_MARK = re.compile(r"\*\*\* ?(Begin Patch|End Patch|End of File)\s*", re.IGNORECASE)
_AT = re.compile(r"@@+(?: *-(\d+)(?:,\d+)? \+\d+(?:,\d+)? *@@+)? ?(.*)")
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_GIT = ("diff --git ", "index ", "old mode ", "new mode ", "similarity index ", "new file mode ", "deleted file mode ")
_UNENDED = "\\ No newline at end of file"
_EXAMPLE = (
    "It must look like this:\n*** Begin Patch\n*** Update File: path/to/file.py\n@@ def function_above():\n"
    " a line that stays\n-a line that goes\n+a line that comes\n*** End Patch"
)


def parse(patch: str) -> list[Section]:
    """All sections, in order. EditError says what cannot be read, and how a patch looks."""
    lines = _unwrap(patch.removeprefix(BOM).replace("\r\n", "\n").split("\n"))
    sections: list[Section] = []
    at = 0
    while at < len(lines):
        line = lines[at].strip()
        if (match := _HEADER.fullmatch(line)) is not None:
            end = _section_end(lines, at + 1)
            sections.append(_section(match[1].lower(), clean_path(match[2]), lines[at + 1 : end]))
            at = end
        elif _is_unified(lines, at):
            end = _unified_end(lines, at + 2)
            sections.append(_unified(lines[at], lines[at + 1], lines[at + 2 : end]))
            at = end
        elif line.startswith("rename from ") and at + 1 < len(lines) and lines[at + 1].startswith("rename to "):
            if not _is_unified(lines, _past_git(lines, at + 2)):
                sections.append(Update(line[12:], lines[at + 1][10:].strip(), ()))
            at += 2
        elif not line or line.startswith(_GIT) or _MARK.fullmatch(line):
            at += 1
        else:
            raise EditError(f"The patch cannot be read: no file is named before {line[:80]!r}. {_EXAMPLE}")
    if not sections:
        raise EditError(f"The patch names no file to add, update or delete. {_EXAMPLE}")
    return sections


def _unwrap(lines: list[str]) -> list[str]:
    """Without what stands around the patch: a here-document, a fence, the end marker and what follows it."""
    closing: set[str] = set()
    start = 0
    while start < len(lines) and not _begins(lines, start):
        closing.update(match[2] for match in _HEREDOC.finditer(lines[start]))
        if lines[start].lstrip().startswith("```"):
            closing.add("```")
        start += 1
    lines = lines[start:] if start < len(lines) else lines
    last = max((i for i, line in enumerate(lines) if re.fullmatch(r"\*\*\* ?End Patch\s*", line, re.I)), default=None)
    if last is not None:
        lines = lines[:last]
    while lines and (not lines[-1].strip() or lines[-1].strip() in closing):
        lines = lines[:-1]
    return lines


def _begins(lines: list[str], at: int) -> bool:
    line = lines[at].strip()
    known = line.startswith(("diff --git ", "rename from ")) or _HEADER.fullmatch(line) or _MARK.fullmatch(line)
    return bool(known) or _is_unified(lines, at)


def clean_path(path: str) -> str:
    path = path.strip()
    if len(path) > 1 and path[0] == path[-1] and path[0] in "'\"`":
        path = path[1:-1]
    while path.startswith("./"):
        path = path[2:].lstrip("/")
    if not path:
        raise EditError(f"The patch names a file without a path. {_EXAMPLE}")
    return path


# -- sections of the envelope -------------------------------------------------------------------------------------


def _section_end(lines: list[str], at: int) -> int:
    while at < len(lines) and not _HEADER.fullmatch(lines[at].rstrip()) and not _is_boundary(lines[at]):
        at += 1
    return at


def _is_boundary(line: str) -> bool:
    match = _MARK.fullmatch(line)
    return match is not None and match[1].lower() != "end of file"


def _section(word: str, path: str, lines: list[str]) -> Section:
    if word in ("delete", "remove"):
        return Delete(path)
    if word in ("add", "create"):
        return Add(path, _added(path, lines))
    move = ""
    while lines and (not lines[0].strip() or (match := _MOVE.fullmatch(lines[0].strip())) is not None):
        if lines[0].strip():
            assert match is not None
            move = clean_path(match[1])
        lines = lines[1:]
    if _is_unified(lines, 0):
        lines = lines[2:]
    return Update(path, move, _hunks(lines))


def _added(path: str, lines: list[str]) -> str:
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    if lines and _AT.fullmatch(lines[0]):
        lines = lines[1:]
    ended = True
    if lines and lines[-1].startswith(_UNENDED):
        lines, ended = lines[:-1], False
    lines = [line for line in lines if not _MARK.fullmatch(line)]
    if not any(line.startswith("+") for line in lines):
        kept = lines
    else:
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.startswith("+"):
                raise EditError(
                    f"{path}: line {number} of the new file does not begin with a plus: {line[:80]!r}. Put a plus "
                    "before every line of a file to add."
                )
        kept = [line[1:] for line in lines]
    return "\n".join(kept) + ("\n" if kept and ended else "")


# -- hunks --------------------------------------------------------------------------------------------------------


def _hunks(lines: list[str]) -> tuple[PatchHunk, ...]:
    hunks: list[PatchHunk] = []
    anchors: list[str] = []
    hint = 0
    body: list[PatchLine] = []
    flags = {"at_end": False, "unended_old": False, "unended_new": False}

    def close() -> None:
        nonlocal anchors, hint, body
        if any(line.raw.strip() for line in body) or (body and anchors):
            hunks.append(PatchHunk(tuple(anchors), tuple(body), hint, **flags))
        anchors, hint, body = [], 0, []
        flags.update(at_end=False, unended_old=False, unended_new=False)

    for line in lines:
        if (match := _AT.fullmatch(line)) is not None:
            if body:
                close()
            hint = int(match[1] or 0)
            anchor = match[2].strip().removesuffix("@@").rstrip()
            if anchor:
                anchors.append(anchor)
        elif (mark := _MARK.fullmatch(line)) is not None:
            flags["at_end"] = flags["at_end"] or mark[1].lower() == "end of file"
        elif line.startswith(_UNENDED):
            last = body[-1].mark if body else " "
            flags["unended_old"] |= last in " -"
            flags["unended_new"] |= last in " +"
        else:
            body.append(_line(line))
    close()
    return tuple(hunks)


def _line(raw: str) -> PatchLine:
    """A line without a mark is taken for one that stays: it must be found, so nothing can be added or lost by it."""
    if raw[:1] in ("+", "-", " "):
        return PatchLine(raw[0], raw[1:], raw)
    return PatchLine(" ", raw, raw)


# -- unified diffs ------------------------------------------------------------------------------------------------


def _is_unified(lines: list[str], at: int) -> bool:
    return at + 1 < len(lines) and lines[at].startswith("--- ") and lines[at + 1].startswith("+++ ")


def _past_git(lines: list[str], at: int) -> int:
    while at < len(lines) and lines[at].startswith(_GIT):
        at += 1
    return at


def _unified_end(lines: list[str], at: int) -> int:
    while at < len(lines):
        if lines[at].startswith("diff --git ") or _HEADER.fullmatch(lines[at]) or _is_boundary(lines[at]):
            return at
        if _is_unified(lines, at) and (at + 2 >= len(lines) or lines[at + 2].startswith("@@")):
            return at
        at += 1
    return at


def _unified(old: str, new: str, lines: list[str]) -> Section:
    before, after = (line[4:].split("\t")[0].strip() for line in (old, new))
    if after == "/dev/null":
        return Delete(clean_path(before.removeprefix("a/")))
    if before == "/dev/null":
        return Add(clean_path(after.removeprefix("b/")), _added(after, lines))
    if before.startswith("a/") and after.startswith("b/"):
        before, after = before[2:], after[2:]
    return Update(clean_path(before), "" if before == after else clean_path(after), _hunks(lines))
