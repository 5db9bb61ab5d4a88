"""Reading a patch (T-08): the envelope that GPT models are trained on, or a unified diff, with what models really send
around and inside it. Text in, sections out; knows no file."""

import re

import msgspec

from treadle.adapters.tools.builtin.text import BOM
from treadle.errors import EditError


class PatchLine(msgspec.Struct, frozen=True):
    """One line of a hunk: a space keeps it, a minus removes it, a plus adds it. `raw` is how it was written."""

    mark: str
    text: str
    raw: str


class PatchHunk(msgspec.Struct, frozen=True):
    anchors: tuple[str, ...]  # Lines that stand somewhere above, outermost first
    lines: tuple[PatchLine, ...]
    hint: int | None = None  # the line at which a unified diff says it begins, or below which it adds; None: not said
    at_end: bool = False
    unended_old: bool = False
    unended_new: bool = False  # the last removed (`unended_old`) or added line has no newline


class Add(msgspec.Struct, frozen=True):
    path: str
    text: str
    executable: bool | None = None  # As a git diff says; None: nothing said


class Delete(msgspec.Struct, frozen=True):
    path: str
    hunks: tuple[PatchHunk, ...] | None = None  # the content as a diff shows it: other lines are not deleted


class Update(msgspec.Struct, frozen=True):
    path: str
    move_to: str
    hunks: tuple[PatchHunk, ...]
    executable: bool | None = None


Section = Add | Delete | Update

_HEADER = re.compile(r"\*\*\* ?(Add|Create|Update|Modify|Delete|Remove) File: ?(.*)", re.IGNORECASE)
_MOVE = re.compile(r"\*\*\* ?(?:Move|Rename) to: ?(.*)", re.IGNORECASE)
_MARK = re.compile(r"\*\*\* ?(Begin Patch|End Patch|End of File)\s*", re.IGNORECASE)
_AT = re.compile(
    r"@@+(?: *-(?P<start>\d{1,9})(?:,(?P<old>\d{1,9}))? \+\d+(?:,(?P<new>\d{1,9}))? *@@+)? ?(?P<anchor>.*)"
)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_GIT = re.compile(r"(index|(?:old|new|new file|deleted file) mode|(?:dis)?similarity index|rename from|rename to) (.*)")
_BINARY = ("Binary files ", "GIT binary patch")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)")
_ESCAPES = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}
_UNENDED = "\\ No newline at end of file"
_EXAMPLE = (
    "It must look like this:\n*** Begin Patch\n*** Update File: path/to/file.py\n@@ def function_above():\n"
    " a line that stays\n-a line that goes\n+a line that comes\n*** End Patch"
)


def parse(patch: str) -> list[Section]:
    """All sections, in order. EditError says what cannot be read, and how a patch looks."""
    lines = _unwrap(_strip_returns(patch.removeprefix(BOM).split("\n")))
    sections: list[Section] = []
    at = 0
    while at < len(lines):
        line = lines[at].strip()
        if (match := _HEADER.fullmatch(line)) is not None:
            at += 1
            start = at
            while at < len(lines) and not _HEADER.fullmatch(lines[at].rstrip()) and not _is_boundary(lines[at]):
                at += 1
            sections.append(_parse_section(match[1].lower(), clean_path(match[2]), lines[start:at]))
        elif line.startswith("diff --git ") or _GIT.fullmatch(line) or _is_unified(lines, at):
            section, at = _parse_git_section(lines, at)
            sections += [section] if section is not None else []
        elif line == "--":  # the signature below a mailed patch
            at += 2
        elif not line or _MARK.fullmatch(line):
            at += 1
        else:
            raise EditError(f"The patch cannot be read: no file is named before {line[:80]!r}. {_EXAMPLE}")
    if not sections:
        raise EditError(f"The patch names no file to add, update or delete. {_EXAMPLE}")
    return sections


def _strip_returns(lines: list[str]) -> list[str]:
    """Lines without CR at their ends. If a header has none, those of added lines are content and stay: a git diff of
    CRLF files has them."""
    is_content = any(line.startswith(("@@", "--- ", "*** ")) and not line.endswith("\r") for line in lines)
    return [line if is_content and line.startswith("+") else line.removesuffix("\r") for line in lines]


def _unwrap(lines: list[str]) -> list[str]:
    """Without what stands around the patch: a here-document, a fence, the end marker and what follows it."""

    def is_beginning(at: int) -> bool:
        line = lines[at].strip()
        is_header = line.startswith(("diff --git ", "rename from ")) or _HEADER.fullmatch(line) or _MARK.fullmatch(line)
        return bool(is_header) or _is_unified(lines, at)

    closing: set[str] = set()
    start = 0
    while start < len(lines) and not is_beginning(start):
        closing.update(match[2] for match in _HEREDOC.finditer(lines[start]))
        if lines[start].lstrip().startswith("```"):
            closing.add("```")
        start += 1
    lines = lines[start:] if start < len(lines) else lines
    ends = [number for number, line in enumerate(lines) if re.fullmatch(r"\*\*\* ?End Patch\s*", line, re.I)]
    lines = lines[: ends[-1]] if ends else lines
    filled = [number for number, line in enumerate(lines) if line.strip()]
    while filled and lines[filled[-1]].strip() in closing:
        lines = lines[: filled.pop()]
    return lines


def clean_path(path: str) -> str:
    path = path.strip()
    if len(path) > 1 and path[0] == path[-1] and path[0] in "'\"`":
        path = path[1:-1]
    path = re.sub(r"^(?:\./+)+", "", path)
    if not path:
        raise EditError(f"The patch names a file without a path. {_EXAMPLE}")
    return path


# -- sections of the envelope -------------------------------------------------------------------------------------
def _is_boundary(line: str) -> bool:
    match = _MARK.fullmatch(line)
    return match is not None and match[1].lower() != "end of file"


def _parse_section(word: str, path: str, lines: list[str]) -> Section:
    if word in ("delete", "remove"):
        return Delete(path)
    if word in ("add", "create"):
        return Add(path, _parse_new_file(path, lines))
    move = ""
    while lines and (not lines[0].strip() or (match := _MOVE.fullmatch(lines[0].strip())) is not None):
        if lines[0].strip():
            assert match is not None
            move = clean_path(match[1])
        lines = lines[1:]
    names = {path, move, f"a/{path}", f"b/{path}", f"b/{move}"}
    if _is_unified(lines, 0) and names.issuperset(map(_parse_path, lines[:2])):
        lines = lines[2:]
    return Update(path, move, _parse_hunks(lines))


def _parse_new_file(path: str, lines: list[str]) -> str:
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    if lines and _AT.fullmatch(lines[0]):
        lines = lines[1:]
    ends_with_newline = True
    if lines and lines[-1].startswith(_UNENDED):
        lines, ends_with_newline = lines[:-1], False
    lines = [line for line in lines if not _MARK.fullmatch(line)]
    if any(line.startswith("+") for line in lines):
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.startswith("+"):
                raise EditError(
                    f"{path}: line {number} of the new file does not begin with a plus: {line[:80]!r}. Put a plus "
                    "before every line of a file to add."
                )
        lines = [line[1:] for line in lines]
    return "\n".join(lines) + ("\n" if lines and ends_with_newline else "")


# -- hunks --------------------------------------------------------------------------------------------------------
def _parse_hunks(lines: list[str]) -> tuple[PatchHunk, ...]:
    hunks: list[PatchHunk] = []
    anchors: list[str] = []
    hint: int | None = None
    body: list[PatchLine] = []
    flags = {"at_end": False, "unended_old": False, "unended_new": False}

    def close() -> None:
        nonlocal anchors, hint, body
        if any(line.raw.strip() for line in body) or (body and anchors):
            hunks.append(PatchHunk(tuple(anchors), tuple(body), hint, **flags))
        anchors, hint, body = [], None, []
        flags.update(at_end=False, unended_old=False, unended_new=False)

    counted_end = at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if at <= counted_end:
            body.append(_parse_line(line or " "))
        elif (match := _AT.fullmatch(line)) is not None:
            if body:
                close()
            counted_end = _find_counted_end(lines, at, match) or 0
            hint = None if match["start"] is None else int(match["start"])
            if anchor := match["anchor"].strip().removesuffix("@@").rstrip():
                anchors.append(anchor)
        elif (mark := _MARK.fullmatch(line)) is not None:
            flags["at_end"] = flags["at_end"] or mark[1].lower() == "end of file"
        elif line or not counted_end:  # an empty line behind a counted hunk is not part of it
            body.append(_parse_line(line))
        if line.startswith(_UNENDED) or (line.startswith("\\") and at <= counted_end):
            body.pop()
            last = body[-1].mark if body else " "
            flags["unended_old"] |= last in " -"
            flags["unended_new"] |= last in " +"
    while body and not body[-1].raw:  # behind the last hunk; empty lines that a hunk counts have a space here
        body.pop()
    close()
    return tuple(hunks)


def _parse_line(raw: str) -> PatchLine:
    """A line without a mark is taken for one that stays: it must be found, so nothing can be added or lost by it."""
    return PatchLine(raw[0], raw[1:], raw) if raw[:1] in ("+", "-", " ") else PatchLine(" ", raw, raw)


# -- unified diffs ------------------------------------------------------------------------------------------------
def _is_unified(lines: list[str], at: int) -> bool:
    return at + 1 < len(lines) and lines[at].startswith("--- ") and lines[at + 1].startswith("+++ ")


def _find_counted_end(lines: list[str], at: int, header: re.Match[str]) -> int | None:
    """Where a hunk with counts ends; None if they are wrong, as models miscount. Within them every line is content."""
    if header["start"] is None:
        return None
    old, new = (int(header[side] or 1) if header[side] != "0" else 0 for side in ("old", "new"))
    while (old > 0 or new > 0) and at < len(lines):
        mark = lines[at][:1] or " "
        if mark not in " +-\\":
            return None
        old, new = old - (mark in " -"), new - (mark in " +")
        at += 1
    if at < len(lines) and lines[at].startswith("\\"):
        at += 1
    more = at < len(lines) and lines[at][:1] in ("+", "-", " ") and lines[at].rstrip() != "--"
    return None if old or new or (more and not _is_unified(lines, at)) else at


def _find_unified_end(lines: list[str], at: int) -> int:
    while at < len(lines):
        if lines[at].startswith("diff --git ") or _HEADER.fullmatch(lines[at]) or _is_boundary(lines[at]):
            return at
        if lines[at].rstrip() == "--" or (_is_unified(lines, at) and (lines[at + 2 :] or ["@@"])[0].startswith("@@")):
            return at
        match = _AT.fullmatch(lines[at])
        at = (_find_counted_end(lines, at + 1, match) if match is not None else None) or at + 1
    return at


def _parse_git_section(lines: list[str], at: int) -> tuple[Section | None, int]:
    """One file of a git diff, or of a diff without git's headers, and where it ends. None if nothing changes in it."""
    start = lines[at]
    at += start.startswith("diff --git ")
    headers: dict[str, str] = {}
    while at < len(lines) and (match := _GIT.fullmatch(lines[at].rstrip())) is not None:
        headers[match[1]] = match[2]
        at += 1
    if at < len(lines) and lines[at].startswith(_BINARY):
        raise EditError(f"The patch changes a binary file, which apply_patch cannot do: {start[:200]!r}. Leave it out.")
    path = _parse_git_path(start)
    names = None if path is None else (f"a/{path}", f"b/{path}")
    if has_names := _is_unified(lines, at):
        names, at = (_parse_path(lines[at], "a", path), _parse_path(lines[at + 1], "b", path)), at + 2
    if "rename from" in headers and "rename to" in headers:
        names = (f"a/{_unquote(headers['rename from'])}", f"b/{_unquote(headers['rename to'])}")
    end = _find_unified_end(lines, at) if has_names or (lines[at : at + 1] and lines[at].startswith("@@")) else at
    body = lines[at:end]
    if names is None:
        if body or headers.keys() - {"index"}:
            raise EditError(f"The patch cannot be read: which file is meant by {start[:200]!r}? {_EXAMPLE}")
        return None, end
    if "new file mode" in headers:
        names = ("/dev/null", names[1])
    if "deleted file mode" in headers:
        names = (names[0], "/dev/null")
    mode = headers.get("new mode") or headers.get("new file mode")
    if mode not in (None, "100644", "100755"):
        raise EditError(
            f"The patch gives a file the mode {mode} ({start[:200]!r}): apply_patch makes no links and no submodules. "
            "Leave it out, or use run_command for it."
        )
    section = _parse_unified_section(*names, body, None if mode is None else mode == "100755")
    if isinstance(section, Delete) and has_names and not section.hunks:
        section = Delete(section.path)  # it shows no content
    nothing = isinstance(section, Update) and not (section.hunks or section.move_to or "new mode" in headers)
    return (None if nothing and start.startswith("diff --git ") else section), end


def _parse_path(line: str, prefix: str = "", git_path: str | None = None) -> str:
    """The path of a line above the hunks. With this prefix, if it is the path that git names."""
    name = _unquote(line[4:].split("\t")[0].strip())
    return f"{prefix}/{git_path}" if git_path in (name, name.partition("/")[2]) else name


def _parse_git_path(header: str) -> str | None:
    """The path that both names of a `diff --git` line are, as they stand or behind prefixes such as a/ and b/."""
    if not header.startswith("diff --git "):
        return None
    names = header.strip().removeprefix("diff --git ")
    both = [_unquote(f'"{name}"') for name in _QUOTED.findall(names)]
    both = both or [names[: len(names) // 2], names[len(names) // 2 + 1 :]]
    bare = both if len(set(both)) == 1 else [name.partition("/")[2] for name in both]
    return bare[0] or None if len(bare) == 2 and bare[0] == bare[1] else None


def _unquote(name: str) -> str:
    """A path as git writes it if it has unusual characters: in quotes, with escapes for its bytes."""
    if (match := _QUOTED.fullmatch(name)) is None:
        return name

    def decode_byte(escape: re.Match[bytes]) -> bytes:
        code = escape[1]
        return bytes([int(code, 8) & 0xFF]) if len(code) == 3 else _ESCAPES.get(code, code)

    return _ESCAPE.sub(decode_byte, match[1].encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


def _parse_unified_section(old_path: str, new_path: str, lines: list[str], executable: bool | None) -> Section:
    if new_path == "/dev/null":
        return Delete(clean_path(old_path.removeprefix("a/")), _parse_hunks(lines))
    if old_path == "/dev/null":
        return Add(clean_path(new_path.removeprefix("b/")), _parse_new_file(new_path, lines), executable)
    if old_path.startswith("a/") and new_path.startswith("b/"):
        old_path, new_path = old_path[2:], new_path[2:]
    return Update(
        clean_path(old_path), "" if old_path == new_path else clean_path(new_path), _parse_hunks(lines), executable
    )
