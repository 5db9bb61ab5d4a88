"""The names that tools have in the SDKs and here. Programs know the runtime's own tools by the former, in hooks,
filters and events; what a program brings keeps its name, and what a server has is `server__tool`."""

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
    """Whether a filter of tools means this one: by either of its names, or by a pattern such as `builtin:*`."""
    group = "builtin" if builtin else "custom"
    known = {name, shown_name(name)} if builtin else {name}
    wanted = {"*", f"{group}:*", *known, *(f"{group}:{one}" for one in known)}
    return any(each in wanted for each in filters)


def server_patterns(filters: Iterable[str], server: str) -> list[str]:
    """The tools of a server that a filter means, as patterns: `mcp:*`, `mcp:server-tool`, `server/tool` and so on."""
    found = []
    for each in (text.removeprefix("mcp:") for text in filters):
        rest = next(
            (each.removeprefix(f"{server}{mark}") for mark in ("__", "-", "/") if each.startswith(f"{server}{mark}")),
            "",
        )
        if each in ("*", server) or rest:
            found.append(f"{server}__{rest or '*'}")
    return found
