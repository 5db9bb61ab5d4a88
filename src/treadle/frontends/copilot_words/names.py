"""The names that tools have in the SDKs and here. Programs use the SDKs' names for the runtime's own tools, in hooks,
filters and events; a tool of a program keeps its name, and a tool of a server is `server__tool`."""

from collections.abc import Iterable, Mapping
from typing import Any

THEIRS: Mapping[str, str] = {
    "run_command": "bash",
    "check_command": "read_bash",
    "send_input": "write_bash",
    "stop_command": "stop_bash",
    "read_file": "view",
    "write_file": "create",
    "edit_file": "edit",
    "grep_search": "grep",
    "find_files": "glob",
    "use_skill": "skill",
}
OURS: Mapping[str, str] = {theirs: ours for ours, theirs in THEIRS.items()}

_ARGUMENTS: Mapping[str, Mapping[str, str]] = {"write_file": {"content": "file_text"}, "use_skill": {"name": "skill"}}
"""Arguments that are called otherwise there."""


def shown_name(tool: str) -> str:
    return THEIRS.get(tool, tool)


def shown_arguments(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    names = _ARGUMENTS.get(tool, {})
    return {names.get(name, name): value for name, value in arguments.items()}


def own_arguments(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    names = {theirs: ours for ours, theirs in _ARGUMENTS.get(tool, {}).items()}
    return {names.get(name, name): value for name, value in arguments.items()}


def matches(filters: Iterable[str], name: str, *, builtin: bool) -> bool:
    """True if one of the filters matches this tool: by either of its names, or by a pattern such as `builtin:*`."""
    group = "builtin" if builtin else "custom"
    tool_names = {name, shown_name(name)} if builtin else {name}
    spellings = {"*", f"{group}:*", *tool_names, *(f"{group}:{one}" for one in tool_names)}
    return any(each in spellings for each in filters)


def server_patterns(filters: Iterable[str], server: str) -> list[str]:
    """The tools of a server that a filter means, as patterns: `mcp:*`, `mcp:server-tool`, `server/tool` and so on."""
    patterns = []
    for each in (text.removeprefix("mcp:") for text in filters):
        tool = next(
            (each.removeprefix(f"{server}{mark}") for mark in ("__", "-", "/") if each.startswith(f"{server}{mark}")),
            "",
        )
        if each in ("*", server) or tool:
            patterns.append(f"{server}__{tool or '*'}")
    return patterns
