"""Tool calls in the terms of the Agent Client Protocol: the kind of each call, its title in one line, and its files."""

import os
from collections.abc import Mapping

import msgspec
from acp import schema as a

from treadle.adapters.tools.registry import ALIASES
from treadle.base.inert import inert, inert_line
from treadle.protocol.tools import COMMAND_TOOL, EDIT_TOOLS
from treadle.protocol.views import touched

QUIET = frozenset({"update_plan", "task_complete", "ask_user"})
"""Calls that the editor is shown in another way."""
_KINDS: Mapping[str, a.ToolKind] = {
    "read_file": "read",
    "read_output": "read",
    "list_directory": "search",
    "find_files": "search",
    "grep_search": "search",
    "get_diagnostics": "read",
    COMMAND_TOOL: "execute",
    "check_command": "execute",
    "send_input": "execute",
    "stop_command": "execute",
    **dict.fromkeys(EDIT_TOOLS, "edit"),
}
_VERBS = {
    "read_file": "Read",
    "list_directory": "List",
    "find_files": "Find",
    "grep_search": "Search for",
    "get_diagnostics": "Diagnose",
    "write_file": "Write",
    "edit_file": "Edit",
    "apply_patch": "Apply a patch",
}
_PATHS = ("path", "file_path", "file", "filePath")
_WIDTH = 200


def kind_of(name: str) -> a.ToolKind:
    return _KINDS.get(ALIASES.get(name, name), "other")


def title_of(name: str, arguments: str) -> str:
    """A command as it is; of anything else what is done to what."""
    name = ALIASES.get(name, name)
    about = inert_line(touched(arguments), _WIDTH)
    if name == COMMAND_TOOL:
        return f"`{about}`" if "`" not in about else about
    if name == "apply_patch":
        return _VERBS[name]
    return f"{_VERBS.get(name, inert_line(name, 64))} {about}".strip()


def locations(root: str, arguments: str) -> list[a.ToolCallLocation]:
    """The file that a call names, and the line where it begins to read."""
    try:
        decoded = msgspec.json.decode(arguments)
    except msgspec.MsgspecError:
        return []
    path = next((decoded[name] for name in _PATHS if name in decoded), "") if isinstance(decoded, dict) else ""
    if not isinstance(path, str) or not path or not root:
        return []
    line = decoded.get("start_line")
    full_path = inert(os.path.normpath(os.path.join(root, path)))
    return [a.ToolCallLocation(path=full_path, line=line if isinstance(line, int) and line > 0 else None)]
