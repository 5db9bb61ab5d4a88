"""grep_search: lines of files by a regular expression (T-04). How they are found is the workspace's business; here
they become text for the model, without control characters and with long lines cut around the match."""

import re
import threading
from collections.abc import Iterator
from contextlib import suppress

from msgspec.structs import replace

from treadle.adapters.tools.builtin.base import MAX_BYTES, PATH, in_stoppable_thread, in_thread, parameters
from treadle.adapters.tools.builtin.context import WithContext
from treadle.adapters.tools.builtin.nearby import require
from treadle.adapters.tools.builtin.text import MAX_FILE
from treadle.errors import ToolError
from treadle.ports.toolset import Invocation, Outcome, ReadOnlyTool
from treadle.ports.workspace import FileMatches, Line, Matches, Query, Workspace, inert
from treadle.protocol.tools import ShortForm, ToolSpec

MAX_MATCHES = 50
MAX_FILES = 100
_MAX_CONTEXT = 10
_LONGEST = 400  # Characters of a line that are shown
_BEFORE = 100  # Of these, how many stand before the match when the line is cut
# Tabs are kept: an edit must be able to copy them. Marks that turn the reading direction are not.
_UNSAFE = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class GrepSearch(WithContext, ReadOnlyTool):
    spec = ToolSpec(
        name="grep_search",
        description=(
            "Search the lines of files with a regular expression (as ripgrep's), sorted by path: a number and a colon "
            "before a match, a hyphen before a context line. Hidden files are searched; binary ones and what "
            f".gitignore names are not, unless path names it. At most {MAX_MATCHES} matching lines, or {MAX_FILES} "
            "files, and how many more there are."
        ),
        short=ShortForm("Search the lines of files with a regular expression.", ("pattern",), ("path",)),
        parameters=parameters(
            required=("pattern",),
            pattern={"type": "string", "minLength": 1, "description": "A regular expression; see literal."},
            path=PATH | {"default": ".", "description": "The directory or file to search."},
            include={"type": "string", "description": "A glob for the files, like *.{ts,tsx} or src/**."},
            context={"type": "integer", "minimum": 0, "maximum": _MAX_CONTEXT, "default": 0},
            ignore_case={"type": "boolean", "default": False},
            literal={"type": "boolean", "default": False, "description": "The pattern is the text itself."},
            output={
                "type": "string",
                "enum": ["content", "files", "count"],
                "default": "content",
                "description": "The lines, only the files, or the matching lines per file.",
            },
        ),
        read_only=True,
        idempotent=True,
        timeout_s=60.0,  # the search's own limit comes first
        summary_argument="pattern",
    )

    async def run(self, invocation: Invocation) -> Outcome:
        arguments = invocation.arguments
        workspace = self._context.workspace_of(*invocation.project)
        output = arguments.get("output") or "content"
        query = Query(
            pattern=arguments["pattern"],
            path=arguments.get("path") or ".",
            include=arguments.get("include") or "",
            ignore_case=bool(arguments.get("ignore_case")),
            literal=bool(arguments.get("literal")),
            context=min(int(arguments.get("context") or 0), _MAX_CONTEXT),
            texts=output == "content",
            most=MAX_MATCHES if output == "content" else MAX_FILES,
        )
        secrets = await in_thread(self._context.secrets, invocation)
        return await in_stoppable_thread(lambda stop: _search(workspace, query, output, stop, frozenset(secrets)))


def _search(workspace: Workspace, query: Query, output: str, stop: threading.Event, secrets: frozenset[str]) -> Outcome:
    require(workspace, query.path)
    matches, correction = workspace.search(query, stop), list[str]()
    if not matches.files and (inside := _inside_folder(workspace, query)) is not None:
        matches = workspace.search(inside, stop)
        correction = [f"No matches for {inert(query.pattern)}; for {inert(inside.pattern)} in {inert(inside.path)}:"]
    matches, hidden_paths = _without(matches, secrets)
    summary = f"{_count(matches.total, 'match', 'matches')} in {_count(matches.total_files, 'file', 'files')}"
    late = [f"[not searched, because it may hold secrets: {inert(path)}]" for path in hidden_paths]
    late += [] if matches.complete else ["[the search took too long and was stopped; there may be more matches]"]
    if matches.too_large:
        limit, names = f"larger than {MAX_FILE // 1_000_000} MB", ", ".join(map(inert, matches.too_large))
        late.append(f"[not searched, because {limit}: {names}; use run_command with grep for them]")
    if not matches.files:
        location = "" if query.path == "." else f" in {inert(query.path)}"
        only = f" in files that match {inert(query.include)}" if query.include else ""
        hint = " To see that file use read_file." if _kind(workspace, query.path) == "file" else ""
        text = f"No matches for {inert(query.pattern)}{location}{only}.{hint}"
        return Outcome("\n".join([text, *late]), summary=summary)
    if output == "content":
        shown_count, parts = _contents(matches.files)
        more_count, noun = matches.total - shown_count, "matches"
    else:
        parts = [inert(each.path) + (f": {each.count:,}" if output == "count" else "") for each in matches.files]
        more_count, noun = matches.total_files - len(matches.files), "files"
    more = (
        [f"[{more_count:,} more {noun} are not shown; narrow the pattern, path or include]"] if more_count > 0 else []
    )
    return Outcome("\n".join([*correction, summary, *parts, *more, *late]), summary=summary)


def _without(matches: Matches, secrets: frozenset[str]) -> tuple[Matches, list[str]]:
    """The matches outside of secret files, and which of these have matches."""
    hidden_files = [each for each in matches.files if each.path in secrets]
    if not hidden_files:
        return matches, []
    files = tuple(each for each in matches.files if each.path not in secrets)
    total = matches.total - sum(each.count for each in hidden_files)
    total_files = matches.total_files - len(hidden_files)
    return replace(matches, files=files, total=total, total_files=total_files), [each.path for each in hidden_files]


def _kind(workspace: Workspace, path: str) -> str:
    with suppress(ToolError):
        if path and (status := workspace.stat(path)) is not None:
            return status.kind
    return ""


def _inside_folder(workspace: Workspace, query: Query) -> Query | None:
    """The query that a small model meant by one with a folder before the text, as in a path, or in place of a glob."""
    folder, _, remainder = query.pattern.rpartition("/")
    corrected = query
    if _kind(workspace, query.include) == "directory":
        corrected = replace(corrected, path=query.include, include="")
    if remainder and _kind(workspace, folder) == "directory":
        corrected = replace(corrected, path=folder, pattern=remainder)
    return corrected if corrected != query else None


def _contents(files: tuple[FileMatches, ...]) -> tuple[int, list[str]]:
    """How many matches fit into a result, and their text."""
    shown_count, size = 0, 0
    parts: list[str] = []
    for file in files:
        heading = inert(file.path)
        for text, matches in _pieces(file):
            size += len(heading.encode()) + len(text.encode()) + 2
            if size > MAX_BYTES:
                return shown_count, parts
            parts += [heading, text] if heading else ["--", text]
            shown_count += matches
            heading = ""
    return shown_count, parts


def _pieces(file: FileMatches) -> Iterator[tuple[str, int]]:
    """Lines that follow each other, as text, and how many of them match; without context all matches are one piece."""
    pieces: list[list[Line]] = []
    has_context = any(line.column < 0 for line in file.lines)
    for line in file.lines:
        if not pieces or (has_context and line.number != pieces[-1][-1].number + 1):
            pieces.append([])
        pieces[-1].append(line)
    for piece in pieces:
        texts = [f"{line.number}{':' if line.column >= 0 else '-'}\t{_format_line(line)}" for line in piece]
        yield "\n".join(texts), sum(line.column >= 0 for line in piece)


def _format_line(line: Line) -> str:
    text, prefix, suffix = line.text, "", ""
    if len(text) > _LONGEST:
        start = max(0, min(line.column - _BEFORE, len(text) - _LONGEST))
        prefix = f"[{start:,} characters] …" if start else ""
        remaining_chars = len(text) - start - _LONGEST
        suffix = f"… [{remaining_chars:,} characters]" if remaining_chars else ""
        text = text[start : start + _LONGEST]
    text = _UNSAFE.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode("ascii"), text)
    return f"{prefix}{text}{suffix}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
