"""The tools in a short form, for models with a small window: one sentence each, the arguments that matter, and of the
built-in tools those without which nothing can be done. Together with the system text they take at most 1,200 tokens.
What is left out can be called all the same."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from treadle.chat.state import ChatState
from treadle.chat.transcript import entries
from treadle.chat.verification import lacks_change
from treadle.protocol.content import AssistantEntry, UserEntry
from treadle.protocol.tools import WORDS, ToolSpec

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
        "Create a file, or replace all of a short one: content has all of its lines.", ("path", "content")
    ),
    "edit_file": _Short(
        "Replace old_str, copied exactly from the file, by new_str. line: where it begins, if it occurs several times.",
        ("path", "old_str", "new_str"),
        ("line",),
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
    """What would be in vain: an edit before anything was read, which can only be a guess; more of an output where none
    was cut; the end of a task that asks for a change before there is one, and words as an answer to it before anything
    was looked at; and the calls since the last one that brought anything new, which would only be made once more."""
    idle = state.run is not None and lacks_change(state, state.run)
    early = {
        "edit_file": not state.seen,
        "read_output": not state.outputs,
        "task_complete": idle,
        WORDS: idle and isinstance(state.history[-1], UserEntry),
    }
    return frozenset((*(name for name, vain in early.items() if vain), *_stale(state)))


def _stale(state: ChatState) -> Iterator[str]:
    """The names of the latest calls that had been made before in this run, with the same result."""
    made = state.run.signatures if state.run is not None else ()
    calls = (
        call
        for entry in reversed(entries(state))  # some may be gone, after a compaction
        if isinstance(entry, AssistantEntry)
        for call in reversed(entry.calls)
    )
    for at, call in zip(range(len(made) - 1, -1, -1), calls, strict=False):
        if made[at] not in made[:at]:
            return
        yield call.name


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
