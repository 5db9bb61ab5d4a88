"""The names that tools have in the SDKs and here. Programs know the runtime's own tools by the former, in hooks,
filters and events; what a program brings keeps its name."""

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
}
OURS: Mapping[str, str] = {theirs: ours for ours, theirs in THEIRS.items()}

_ARGUMENTS: Mapping[str, Mapping[str, str]] = {"write_file": {"content": "file_text"}}
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
