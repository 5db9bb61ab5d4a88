"""The short form of the tool specs, for models with a small window. The built-in tools take at most 1,200 tokens,
together with the system text. A tool that is left out can still be called."""

from collections.abc import Container, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from treadle.chat.state import ChatState
from treadle.chat.transcript import build_entries
from treadle.chat.verification import is_change_missing
from treadle.protocol.content import AssistantEntry, ResultsEntry, UserEntry
from treadle.protocol.tools import WORDS, ToolSpec

SMALL_WINDOW = 16_384  # tokens; up to here tools are told in short
_KEPT = ("type", "enum", "items", "properties")


def shorten_specs(specs: Sequence[ToolSpec], *, has_explicit_tools: bool) -> tuple[ToolSpec, ...]:
    """The specs in short form. `has_explicit_tools`: the options name the tools, so that none is left out."""
    return tuple(_shorten_spec(spec) for spec in specs if has_explicit_tools or not spec.dispensable)


def select_withheld_tools(state: ChatState, specs: Sequence[ToolSpec]) -> frozenset[str]:
    """Return the names of tools that would be useless now: an edit before a file was read, which can only be a guess;
    reading more of an output if none was cut; ending a task that asks for a change before there is one, and answering
    it in words before anything was read; and the calls since the last one with a new result: they would be repeated."""
    idle = state.run is not None and is_change_missing(state, state.run)
    lacking = {"reading": not state.seen_files, "output": not state.outputs, "change": idle}
    early = [spec.name for spec in specs if lacking.get(spec.needs)]
    edits = {spec.name for spec in specs if spec.needs == "reading"}
    words = [WORDS] if idle and isinstance(state.history[-1], UserEntry) else []
    return frozenset((*early, *words, *_iterate_stale_calls(state, edits)))


def _iterate_stale_calls(state: ChatState, edits: Container[str]) -> Iterator[str]:
    """Yield the names of the latest calls that had been made before in this run, with the same result. A failed edit is
    skipped: a call that read nothing new before it would read nothing new after it."""
    signatures = state.run.signatures if state.run is not None else ()
    for at, (name, success) in zip(range(len(signatures) - 1, -1, -1), _iterate_latest_calls(state), strict=False):
        if signatures[at] in signatures[:at]:
            yield name
        elif success or name not in edits:
            return


def _iterate_latest_calls(state: ChatState) -> Iterator[tuple[str, bool]]:
    """The names of the calls and whether they succeeded, the latest first. Some may be gone, after a compaction."""
    succeeded: dict[str, bool] = {}
    for entry in reversed(build_entries(state)):
        if isinstance(entry, ResultsEntry):
            succeeded = {result.call: result.success for result in entry.results}
        elif isinstance(entry, AssistantEntry):
            yield from ((call.name, succeeded.get(call.call, True)) for call in reversed(entry.calls))


def _shorten_spec(spec: ToolSpec) -> ToolSpec:
    if (short := spec.short) is None:
        return spec
    kept_names = short.required + short.optional + short.untold
    schemas: dict[str, Any] = {k: schema for k, schema in spec.parameters["properties"].items() if k in kept_names}
    for name, schema in schemas.items():
        if isinstance(schema, dict):
            schemas[name] = {key: schema[key] for key in _KEPT if key in schema}
    parameters = {"type": "object", "properties": schemas, "required": list(short.required)}
    return replace(spec, description=short.description, parameters=parameters)
