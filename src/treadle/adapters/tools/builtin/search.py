"""find_files, list_directory and grep_search (T-04). How files and lines are found is the workspace's business; here
they become text for the model, without control characters and with long lines cut around the match."""

import re
import threading
from collections.abc import Iterator
from contextlib import suppress

from msgspec.structs import replace

from treadle.adapters.tools.builtin import base
from treadle.adapters.tools.builtin.base import MAX_BYTES, PATH, WithContext, build_parameters
from treadle.adapters.tools.builtin.text import MAX_FILE
from treadle.diff.changes import count
from treadle.errors import ToolError
from treadle.ports.toolset import Invocation, Outcome, ReadOnlyTool
from treadle.ports.workspace import MOST_FOUND, Child, FileMatches, Line, Matches, Query, Workspace, escape_name
from treadle.protocol.tools import ShortForm, ToolSpec


class FindFiles(WithContext, ReadOnlyTool):
    spec = ToolSpec(
        name="find_files",
        description=(
            "Find files by a glob, sorted by path: *, ?, [a-z], {a,b}, and ** for any directories, as in "
            "src/**/*.{ts,tsx}. A pattern without a slash is matched against the file name, in any directory. Hidden "
            f"files count, what .gitignore names does not. At most {MOST_FOUND} paths."
        ),
        short=ShortForm("Find files by a glob such as *.py or src/**/*.ts.", ("pattern",), ("path",)),
        parameters=build_parameters(
            required=("pattern",),
            pattern={"type": "string", "minLength": 1, "description": "Matched against the path relative to `path`."},
            path=PATH | {"default": ".", "description": "The directory to look in."},
            ignore_case={"type": "boolean", "default": False},
        ),
        read_only=True,
        idempotent=True,
        timeout_s=60.0,  # the search's own limit comes first
        summary_argument="pattern",
    )

    async def run(self, invocation: Invocation) -> Outcome:
        arguments = invocation.arguments
        workspace = self._context.workspace_of(*invocation.project)
        pattern, path = arguments["pattern"], arguments.get("path") or "."
        return await base.run_in_stoppable_thread(
            lambda stop: _find(workspace, pattern, path, bool(arguments.get("ignore_case")), stop)
        )


def _find(workspace: Workspace, pattern: str, path: str, ignore_case: bool, stop: threading.Event) -> Outcome:
    base.require(workspace, path)
    matches = workspace.find(pattern, path, ignore_case=ignore_case, stop=stop)
    lines = [escape_name(each) for each in matches.paths]
    if not lines:
        location = "" if path == "." else f" in {escape_name(path)}"
        word = pattern.rpartition("/")[2]
        example = f' with "pattern": "{escape_name(word)}"' if word.replace("_", "").isalnum() else ""
        lines = [
            f"No file matches {escape_name(pattern)}{location}. Only names of files were looked at: to find text in "
            f"files use grep_search{example}. Ignored files are left out, unless path is their folder."
        ]
    if (more := matches.total - len(matches.paths)) > 0:
        lines.append(f"[{more:,} more files are not shown; use a narrower pattern or path]")
    if not matches.complete:
        lines.append("[the search took too long and was stopped; there may be more files]")
    if matches.unreadable:
        lines.append(f"[{count(matches.unreadable, 'folder')} could not be read: no permission]")
    return Outcome("\n".join(lines), summary=count(matches.total, "file"))


MAX_ENTRIES = 500


class ListDirectory(WithContext, ReadOnlyTool):
    spec = ToolSpec(
        name="list_directory",
        description=(
            "List the immediate children of a directory, sorted, hidden ones too; directories end with a slash. "
            f"At most {MAX_ENTRIES} entries."
        ),
        short=ShortForm("List the files of a directory.", (), ("path",)),
        parameters=build_parameters(path=PATH | {"default": "."}),
        read_only=True,
        idempotent=True,
        summary_argument="path",
    )

    async def run(self, invocation: Invocation) -> Outcome:
        workspace = self._context.workspace_of(*invocation.project)
        return await base.run_in_thread(_list_directory, workspace, invocation.arguments.get("path") or ".")


def _list_directory(workspace: Workspace, path: str) -> Outcome:
    base.require(workspace, path)
    children = sorted(workspace.listdir(path), key=lambda child: child.name)
    shown_path = escape_name(workspace.to_relative(path))
    entry_count = f"{len(children):,} {'entry' if len(children) == 1 else 'entries'}"
    lines = [f"{shown_path}/ ({entry_count})", *(_format_child(child) for child in children[:MAX_ENTRIES])]
    if len(children) > MAX_ENTRIES:
        lines.append(f"[{len(children) - MAX_ENTRIES:,} more entries are not shown]")
    return Outcome("\n".join(lines), summary=entry_count)


def _format_child(child: Child) -> str:
    name = escape_name(child.name)
    target = f" -> {escape_name(child.target)}" if child.kind == "link" else ""
    return name + {"directory": "/", "link": target, "other": " (not a regular file)", "file": ""}[child.kind]


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
        parameters=build_parameters(
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
        secrets = await base.run_in_thread(self._context.secrets, invocation)
        return await base.run_in_stoppable_thread(
            lambda stop: _search_files(workspace, query, output, stop, frozenset(secrets))
        )


def _search_files(
    workspace: Workspace, query: Query, output: str, stop: threading.Event, secrets: frozenset[str]
) -> Outcome:
    base.require(workspace, query.path)
    matches, correction = workspace.search(query, stop), list[str]()
    if not matches.files and (inside := _correct_query(workspace, query)) is not None:
        matches = workspace.search(inside, stop)
        correction = [
            f"No matches for {escape_name(query.pattern)}; "
            f"for {escape_name(inside.pattern)} in {escape_name(inside.path)}:"
        ]
    matches, hidden_paths = _remove_secrets(matches, secrets)
    summary = f"{matches.total:,} match{'' if matches.total == 1 else 'es'} in {count(matches.total_files, 'file')}"
    late = [f"[not searched, because it may hold secrets: {escape_name(path)}]" for path in hidden_paths]
    late += [] if matches.complete else ["[the search took too long and was stopped; there may be more matches]"]
    if matches.too_large:
        limit, names = f"larger than {MAX_FILE // 1_000_000} MB", ", ".join(map(escape_name, matches.too_large))
        late.append(f"[not searched, because {limit}: {names}; use run_command with grep for them]")
    if matches.other_encoding:
        names = ", ".join(map(escape_name, matches.other_encoding))
        late.append(f"[not searched, because this pattern cannot be used for UTF-32: {names}; use a simpler one]")
    if matches.unreadable:
        noun = "file or folder" if matches.unreadable == 1 else "files and folders"
        late.append(f"[{matches.unreadable:,} {noun} could not be read and so not searched: no permission]")
    if not matches.files:
        location = "" if query.path == "." else f" in {escape_name(query.path)}"
        only = f" in files that match {escape_name(query.include)}" if query.include else ""
        hint = " To see that file use read_file." if _find_kind(workspace, query.path) == "file" else ""
        text = f"No matches for {escape_name(query.pattern)}{location}{only}.{hint}"
        return Outcome("\n".join([text, *late]), summary=summary)
    if output == "content":
        shown_count, parts = _format_contents(matches.files)
        more_count, noun = matches.total - shown_count, "matches"
    else:
        parts = [escape_name(each.path) + (f": {each.count:,}" if output == "count" else "") for each in matches.files]
        more_count, noun = matches.total_files - len(matches.files), "files"
    more = (
        [f"[{more_count:,} more {noun} are not shown; narrow the pattern, path or include]"] if more_count > 0 else []
    )
    return Outcome("\n".join([*correction, summary, *parts, *more, *late]), summary=summary)


def _remove_secrets(matches: Matches, secrets: frozenset[str]) -> tuple[Matches, list[str]]:
    hidden_files = [each for each in matches.files if each.path in secrets]
    files = tuple(each for each in matches.files if each.path not in secrets)
    total = matches.total - sum(each.count for each in hidden_files)
    total_files = matches.total_files - len(hidden_files)
    return replace(matches, files=files, total=total, total_files=total_files), [each.path for each in hidden_files]


def _find_kind(workspace: Workspace, path: str) -> str:
    with suppress(ToolError):
        if path and (status := workspace.stat(path)) is not None:
            return status.kind
    return ""


def _correct_query(workspace: Workspace, query: Query) -> Query | None:
    """The query that a small model meant by one with a folder before the text, as in a path, or in place of a glob."""
    folder, _, remainder = query.pattern.rpartition("/")
    corrected = query
    if _find_kind(workspace, query.include) == "directory":
        corrected = replace(corrected, path=query.include, include="")
    if remainder and _find_kind(workspace, folder) == "directory":
        corrected = replace(corrected, path=folder, pattern=remainder)
    return corrected if corrected != query else None


def _format_contents(files: tuple[FileMatches, ...]) -> tuple[int, list[str]]:
    shown_count, size = 0, 0
    parts: list[str] = []
    for file in files:
        heading = escape_name(file.path)
        for text, matches in _iterate_pieces(file):
            size += len(heading.encode()) + len(text.encode()) + 2
            if size > MAX_BYTES:
                return shown_count, parts
            parts += [heading, text] if heading else ["--", text]
            shown_count += matches
            heading = ""
    return shown_count, parts


def _iterate_pieces(file: FileMatches) -> Iterator[tuple[str, int]]:
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
