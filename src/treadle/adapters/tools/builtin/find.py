"""find_files and list_directory: files by a glob on their paths, and the immediate children of a directory (T-04)."""

import threading

from treadle.adapters.tools.builtin.base import PATH, in_stoppable_thread, in_thread, parameters
from treadle.adapters.tools.builtin.context import WithContext
from treadle.adapters.tools.builtin.nearby import require
from treadle.diff.changes import count
from treadle.ports.toolset import Invocation, Outcome, ReadOnlyTool
from treadle.ports.workspace import MOST_FOUND, Child, Workspace, inert
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
        parameters=parameters(
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
        return await in_stoppable_thread(
            lambda stop: _find(workspace, pattern, path, bool(arguments.get("ignore_case")), stop)
        )


def _find(workspace: Workspace, pattern: str, path: str, ignore_case: bool, stop: threading.Event) -> Outcome:
    require(workspace, path)
    matches = workspace.find(pattern, path, ignore_case=ignore_case, stop=stop)
    lines = [inert(each) for each in matches.paths]
    if not lines:
        location = "" if path == "." else f" in {inert(path)}"
        word = pattern.rpartition("/")[2]
        example = f' with "pattern": "{inert(word)}"' if word.replace("_", "").isalnum() else ""
        lines = [
            f"No file matches {inert(pattern)}{location}. Only names of files were looked at: to find text in files "
            f"use grep_search{example}. Ignored files are left out, unless path is their folder."
        ]
    if (more := matches.total - len(matches.paths)) > 0:
        lines.append(f"[{more:,} more files are not shown; use a narrower pattern or path]")
    if not matches.complete:
        lines.append("[the search took too long and was stopped; there may be more files]")
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
        parameters=parameters(path=PATH | {"default": "."}),
        read_only=True,
        idempotent=True,
        summary_argument="path",
    )

    async def run(self, invocation: Invocation) -> Outcome:
        workspace = self._context.workspace_of(*invocation.project)
        return await in_thread(_list, workspace, invocation.arguments.get("path") or ".")


def _list(workspace: Workspace, path: str) -> Outcome:
    require(workspace, path)
    children = sorted(workspace.listdir(path), key=lambda child: child.name)
    shown_path = inert(workspace.relative(path))
    entry_count = f"{len(children):,} {'entry' if len(children) == 1 else 'entries'}"
    lines = [f"{shown_path}/ ({entry_count})", *(_line(child) for child in children[:MAX_ENTRIES])]
    if len(children) > MAX_ENTRIES:
        lines.append(f"[{len(children) - MAX_ENTRIES:,} more entries are not shown]")
    return Outcome("\n".join(lines), summary=entry_count)


def _line(child: Child) -> str:
    name = inert(child.name)
    match child.kind:
        case "directory":
            return f"{name}/"
        case "link":
            return f"{name} -> {inert(child.target)}"
        case "other":
            return f"{name} (not a regular file)"
        case "file":
            return name
