"""The tools in a short form, for models with a small window: one sentence each, the arguments that matter, and of the
built-in tools those without which nothing can be done. Together with the system text they take at most 1,200 tokens.
What is left out can be called all the same."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from treadle.chat.guard import repeats
from treadle.chat.state import ChatState
from treadle.chat.transcript import entries
from treadle.protocol.content import AssistantEntry
from treadle.protocol.tools import ToolSpec

SMALL_WINDOW = 16_384
"""Tokens; up to here tools are told in short."""

_KEPT = ("type", "enum", "items", "properties")


class _Short(NamedTuple):
    says: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


_SHORT = {
    "read_file": _Short(
        "Read a text file. Each line comes behind its number, which is not part of the file.",
        ("path",),
        ("start_line", "end_line"),
    ),
    "list_directory": _Short("List the files of a directory.", (), ("path",)),
    "find_files": _Short("Find files by a glob such as *.py or src/**/*.ts.", ("pattern",), ("path",)),
    "grep_search": _Short("Search the lines of files with a regular expression.", ("pattern",), ("path", "include")),
    "write_file": _Short(
        "Create a file; or change a short one: read it first, then send all of its new lines.", ("path", "content")
    ),
    "edit_file": _Short(
        "Change a long file: read it first, then replace old_str, copied exactly from it, by new_str.",
        ("path", "old_str", "new_str"),
    ),
    "run_command": _Short("Run a shell command (bash) and see its output.", ("command",), ("timeout_s", "cwd")),
    "read_output": _Short("Read more of an output that was cut.", ("handle",), ("start_line", "end_line")),
    "task_complete": _Short("Say that the whole task is done.", ("summary",)),
    "ask_user": _Short("Ask the user a question that you cannot answer yourself.", ("question",), ("options",)),
}
_LEFT_OUT = frozenset(
    ("apply_patch", "get_diagnostics", "check_command", "send_input", "stop_command", "update_plan", "delegate")
)


def in_short(specs: Sequence[ToolSpec], *, chosen: bool) -> tuple[ToolSpec, ...]:
    """`chosen`: somebody named the tools that there are to be, so that none is left out. Tools that are not built in
    stay as they are."""
    return tuple(_shortened(spec) for spec in specs if chosen or spec.name not in _LEFT_OUT)


def withheld(state: ChatState) -> frozenset[str]:
    """What would be called in vain: an edit before anything was read, which can only be a guess, and the call that was
    just made twice with the same result."""
    found = set() if state.seen else {"edit_file"}
    if state.run is not None and repeats(state.run.signatures) > 1:
        for entry in reversed(entries(state)):  # none of them may be left, after a compaction
            if isinstance(entry, AssistantEntry) and entry.calls:
                found.add(entry.calls[-1].name)
                break
    return frozenset(found)


def _shortened(spec: ToolSpec) -> ToolSpec:
    short, known = _SHORT.get(spec.name), spec.parameters.get("properties")
    if short is None or spec.server or not isinstance(known, dict) or not set(short.required) <= known.keys():
        return spec
    names = [name for name in known if name in short.required + short.optional]
    parameters = {
        "type": "object",
        "properties": {name: _bare(known[name]) for name in names},
        "required": list(short.required),
    }
    return replace(spec, description=short.says, parameters=parameters)


def _bare(schema: Any) -> Any:
    return {key: schema[key] for key in _KEPT if key in schema} if isinstance(schema, dict) else schema
