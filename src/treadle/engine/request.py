"""The request to a model: built from a state, with its estimated size, and the cost of the answer."""

from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from treadle.chat.budget import find_broken_limit
from treadle.chat.decide import RunLimits
from treadle.chat.small_window import SMALL_WINDOW, select_withheld_tools, shorten_specs
from treadle.chat.state import ChatState
from treadle.chat.transcript import build_entries, estimate
from treadle.engine.deps import Deps
from treadle.engine.tenure import Tenure
from treadle.errors import ConfigError, Damaged, NotFound
from treadle.ports.model import NOTHING_WITHHELD, Model, ModelInfo, ModelRequest
from treadle.protocol.content import Usage, UserEntry
from treadle.protocol.events import LimitReached
from treadle.protocol.options import MAX_USD, ChatOptions
from treadle.protocol.tools import ToolSpec

TYPICAL_OUTPUT = 600  # tokens that an answer is expected to have when nothing is known yet
LEAST_OUTPUT = 256  # an answer is never asked to be shorter for want of room: then the conversation must become shorter
MARGIN = 0.05  # the part of the window that is left free, because the size of a request is an estimate


def find_model(state: ChatState, deps: Deps) -> Model:
    """The chat's model. ConfigError if it cannot be used, or has no price and must be kept below a budget (L-11)."""
    options = state.options
    model = deps.models.get(options.model)
    if (options.run_budget.usd or options.chat_budget.usd) and not (model.info.has_price or model.info.tells_cost):
        raise ConfigError(
            f"the price of {options.model} is unknown, so a budget in USD cannot be kept; set price_input and "
            f'price_output under ["{options.model}"] in models.toml, or limit tokens instead (--budget-tokens)'
        )
    return model


def compute_run_limits(state: ChatState, deps: Deps) -> RunLimits:
    """Return the limits of the model and the tools for the rules. If the model or the tools are missing, return
    defaults: the error is raised by their call. The rules must be able to end a run even if something is broken."""
    try:
        info = find_model(state, deps).info
        return RunLimits(info.window, state.options.max_tokens or info.max_output, measure_overhead(state, info, deps))
    except Exception:
        return RunLimits()


def list_offered_tools(options: ChatOptions, info: ModelInfo, deps: Deps) -> Sequence[ToolSpec]:
    specs = deps.tools.list_specs(options)
    return shorten_specs(specs, has_explicit_tools=options.tools is not None) if _is_small(options, info) else specs


def build_system_text(options: ChatOptions, info: ModelInfo, deps: Deps) -> str:
    """A small model that knows the path of the project writes it out in every call, which takes it long."""
    return deps.system_text(replace(options, root="") if _is_small(options, info) else options)


def _is_small(options: ChatOptions, info: ModelInfo) -> bool:
    return (options.context_window or info.window) <= SMALL_WINDOW


def measure_overhead(state: ChatState, info: ModelInfo, deps: Deps) -> int:
    """Characters of system text and tool schemas; only needed until the provider has counted once."""
    if state.context_tokens:
        return 0
    specs = list_offered_tools(state.options, info, deps)
    tool_schemas = [(spec.name, spec.description, spec.parameters) for spec in specs]
    return len(build_system_text(state.options, info, deps)) + len(msgspec.json.encode(tool_schemas))


def build(tenure: Tenure, model: Model, final: bool, deps: Deps) -> ModelRequest:
    """The request of a turn. Its beginning is the same bytes as the turn before (L-21)."""
    state, info = tenure.state, model.info
    options = state.options
    offered_tools = tuple(list_offered_tools(options, info, deps))
    tools = () if final else offered_tools
    request = ModelRequest(
        system=build_system_text(options, info, deps),
        entries=build_entries(state),
        tools=tools,
        withheld=select_withheld_tools(state, tools) if _is_small(options, info) else NOTHING_WITHHELD,
        withdrawn=offered_tools if final else (),
        temperature=options.temperature, max_tokens=options.max_tokens, window=options.context_window,
        effort=options.reasoning_effort, rung=options.rung, marker=not options.completion,
        memo=(memo := tenure.get_memo(info.ref)), pictures=memo.pictures, output_schema=options.output_schema,
    )  # fmt: skip
    return fit_output_limit(request, estimate(state, measure_overhead(state, info, deps)), info)


def fit_output_limit(request: ModelRequest, used_tokens: int, info: ModelInfo) -> ModelRequest:
    """The request with an output limit that fits what is left of the window behind `used_tokens`: many servers refuse a
    request whose input and output limit together are more than the window."""
    if info.limit_assumed and not request.max_tokens:
        return request
    output_limit = request.max_tokens or info.max_output
    remaining_tokens = int((request.window or info.window) * (1 - MARGIN)) - used_tokens
    if output_limit <= remaining_tokens:
        return request
    return replace(request, max_tokens=max(remaining_tokens, min(output_limit, LEAST_OUTPUT)))


async def load_pictures(request: ModelRequest, deps: Deps) -> None:
    """Read the pictures that this conversation has not shown yet. One that is lost is told as such by its adapter."""
    pictures = request.memo.pictures
    unseen = request.memo.select_unseen(request.entries)
    for image in (image for entry in unseen if type(entry) is UserEntry for image in entry.images):
        if image.blob not in pictures:
            with suppress(NotFound, Damaged):
                pictures[image.blob] = await deps.store.get_blob(image.blob)
    request.memo.see(request.entries)


def estimate_next_usage(state: ChatState, info: ModelInfo, deps: Deps) -> Usage:
    """Return the estimated usage of the next call, which is reserved before the call (L-11)."""
    run = state.run
    output = run.usage.output // run.turns if run is not None and run.turns else TYPICAL_OUTPUT
    return price_usage(Usage(estimate(state, measure_overhead(state, info, deps)), output, estimated=True), info)


def find_blocking_limit(state: ChatState, estimate: Usage, deps: Deps) -> LimitReached | None:
    """The limit that a call of this cost would break, where the call opens no turn: another attempt, a side call."""
    return find_broken_limit(state, state.run, estimate, deps.clock.now_ms())


def price_usage(usage: Usage, info: ModelInfo) -> Usage:
    """With its cost by the catalogue's prices, unless the provider told the cost itself."""
    if usage.usd:
        return usage
    fresh_usd = max(0, usage.input - usage.cached) * info.usd_per_million_input
    cached_usd = usage.cached * (info.usd_per_million_cached or info.usd_per_million_input)
    usd = (fresh_usd + cached_usd + usage.output * info.usd_per_million_output) / 1_000_000
    return replace(usage, usd=min(MAX_USD, usd))
