"""The tools in the short form that their specs have for models with a small window. The built-in ones take at most
1,200 tokens, together with the system text. What is left out can be called all the same."""

from collections.abc import Container, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from treadle.chat.state import ChatState
from treadle.chat.transcript import entries
from treadle.chat.verification import lacks_change
from treadle.protocol.content import AssistantEntry, ResultsEntry, UserEntry
from treadle.protocol.tools import WORDS, ToolSpec

SMALL_WINDOW = 16_384
"""Tokens; up to here tools are told in short."""

_KEPT = ("type", "enum", "items", "properties")


def in_short(specs: Sequence[ToolSpec], *, chosen: bool) -> tuple[ToolSpec, ...]:
    """`chosen`: somebody named the tools that there are to be, so that none is left out."""
    return tuple(_shortened(spec) for spec in specs if chosen or not spec.dispensable)


def withheld(state: ChatState, specs: Sequence[ToolSpec]) -> frozenset[str]:
    """What would be in vain: an edit before anything was read, which can only be a guess; more of an output where none
    was cut; the end of a task that asks for a change before there is one, and words as an answer to it before anything
    was looked at; and the calls since the last one that brought anything new, which would only be made once more."""
    idle = state.run is not None and lacks_change(state, state.run)
    lacking = {"reading": not state.seen, "output": not state.outputs, "change": idle}
    early = [spec.name for spec in specs if lacking.get(spec.needs)]
    edits = {spec.name for spec in specs if spec.needs == "reading"}
    words = [WORDS] if idle and isinstance(state.history[-1], UserEntry) else []
    return frozenset((*early, *words, *_stale(state, edits)))


def _stale(state: ChatState, edits: Container[str]) -> Iterator[str]:
    """The names of the latest calls that had been made before in this run, with the same result. An edit that failed is
    passed over: what was read in vain before it would be read in vain after it."""
    made = state.run.signatures if state.run is not None else ()
    for at, (name, success) in zip(range(len(made) - 1, -1, -1), _latest_calls(state), strict=False):
        if made[at] in made[:at]:
            yield name
        elif success or name not in edits:
            return


def _latest_calls(state: ChatState) -> Iterator[tuple[str, bool]]:
    """The names of the calls and whether they succeeded, the latest first. Some may be gone, after a compaction."""
    succeeded: dict[str, bool] = {}
    for entry in reversed(entries(state)):
        if isinstance(entry, ResultsEntry):
            succeeded = {result.call: result.success for result in entry.results}
        elif isinstance(entry, AssistantEntry):
            yield from ((call.name, succeeded.get(call.call, True)) for call in reversed(entry.calls))


def _shortened(spec: ToolSpec) -> ToolSpec:
    short = spec.short
    if short is None:
        return spec
    known = spec.parameters["properties"]
    kept = short.required + short.optional + short.untold
    parameters = {
        "type": "object",
        "properties": {name: _bare(known[name]) for name in known if name in kept},
        "required": list(short.required),
    }
    return replace(spec, description=short.description, parameters=parameters)


def _bare(schema: Any) -> Any:
    return {key: schema[key] for key in _KEPT if key in schema} if isinstance(schema, dict) else schema
