"""Old shapes of events, lifted to today's, one version at a time."""

from collections.abc import Callable
from typing import Any

from treadle.errors import Damaged
from treadle.protocol.tools import COMMAND_TOOL, EDIT_TOOLS, only_looks

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


def _as_it_is(data: dict[str, Any]) -> dict[str, Any]:
    """The new version only has more fields, and they may be left out; or it stands in another place, and where it was
    recorded it stays."""
    return data


def _told_at_the_end(message: dict[str, Any]) -> dict[str, Any]:
    """In version 1 the end of the turn stood right behind the message and told the cost for the first time."""
    return {**message, "usage": None, "finish_reason": ""}


_READERS = frozenset({
    "read_file", "list_directory", "find_files", "grep_search", "get_diagnostics", "read_output", "check_command",
    "task_complete", "update_plan", "ask_user",
})  # fmt: skip


def _effect_by_name(start: dict[str, Any]) -> dict[str, Any]:
    """Until version 2 what a call does was told by the name of its tool, and of a command by its words."""
    name, command = start["name"], start.get("arguments", {}).get("command")
    looks = name == COMMAND_TOOL and isinstance(command, str) and only_looks(command)
    if start.get("read_only") or name in _READERS or looks:
        return {**start, "effect": "read"}
    return {**start, "effect": "edit"} if name in EDIT_TOOLS else start


def _asked_by_words(options: dict[str, Any]) -> dict[str, Any]:
    """The mode that asked for every command and every change by its words was called `ask`."""
    return {**options, "mode": "confirm"} if options.get("mode") == "ask" else options


def _capped_at_20(created: dict[str, Any]) -> dict[str, Any]:
    """Until version 4 a run had 20 turns unless something else was said, and what has its default is not recorded."""
    return {**created, "options": {"max_turns": 20, **created["options"]}}


UPCASTERS: dict[tuple[str, int], Upcaster] = {
    ("user.message", 1): _as_it_is,  # its source may be `apply`
    ("user.message", 2): _as_it_is,  # the trace that it joins
    ("queue.changed", 1): _as_it_is,
    ("workspace.files_changed", 1): _as_it_is,  # a change says where later ones of the chat lead behind an undo
    ("workspace.undone", 1): _as_it_is,
    ("workspace.redone", 1): _as_it_is,
    ("workspace.kept", 1): _as_it_is,
    ("workspace.files_changed", 2): _as_it_is,  # a change says if git tracks a file in a cache
    ("workspace.undone", 2): _as_it_is,
    ("workspace.redone", 2): _as_it_is,
    ("workspace.kept", 2): _as_it_is,
    ("tool.execution_complete", 1): _as_it_is,  # with pictures
    ("job.ended", 1): _as_it_is,  # how many files are not committed yet
    ("user_input.requested", 1): _as_it_is,  # a tool may ask in the middle of its call
    ("tool.execution_start", 1): _as_it_is,  # read_only: the tool only reads
    ("tool.execution_start", 2): _effect_by_name,
    ("session.created", 1): _as_it_is,  # the options say which folder the root is
    ("session.created", 2): lambda data: {**data, "options": _asked_by_words(data["options"])},
    ("session.created", 3): _as_it_is,  # which call of another chat began it
    ("session.created", 4): _capped_at_20,
    ("session.options_changed", 1): lambda data: {**data, "changes": _asked_by_words(data["changes"])},
    ("session.run_end", 1): _as_it_is,  # why, in words
    ("session.run_end", 2): _as_it_is,  # its reason may be `incomplete`
    ("session.model_call", 1): _as_it_is,  # a call may have asked
    ("session.idle", 1): _as_it_is,
    ("session.idle", 2): _as_it_is,
    ("subagent.completed", 1): _as_it_is,
    ("assistant.message", 1): _told_at_the_end,
    ("assistant.turn_end", 1): _as_it_is,  # it stood before the calls of its turn
}
"""(type, version) → what makes it version + 1."""


def upcast(
    kind: str, version: int, data: dict[str, Any], upcasters: dict[tuple[str, int], Upcaster] | None = None
) -> dict[str, Any]:
    """Lift `data` from `version` step by step until no upcaster is left. A newer version is refused."""
    table = UPCASTERS if upcasters is None else upcasters
    if (kind, version) not in table:
        raise Damaged(f"{kind} has version {version}, which this Treadle does not know")
    try:
        while (step := table.get((kind, version))) is not None:
            data, version = step(data), version + 1
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"{kind} of version {version} cannot be lifted to the next: {error!r}") from error
    return data
