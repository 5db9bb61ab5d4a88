"""Model calls that are no turn: a compaction (L-19), the summary of a run that said nothing (L-17), what a tool asks in
the middle of its call (E-01). Recorded with their purpose and counted apart (L-02)."""

import asyncio
import contextlib
from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from treadle.base.types import CallKey
from treadle.chat import transcript
from treadle.chat.assembly import Assembler
from treadle.chat.fold import find_position
from treadle.chat.history import estimate_tokens, weigh
from treadle.chat.state import ChatState, Compaction
from treadle.engine.deps import Deps
from treadle.engine.request import TYPICAL_OUTPUT, find_blocking_limit, find_model, fit_output_limit, price_usage
from treadle.engine.silence_timeout import SilenceTimeout, delay
from treadle.engine.tenure import Stopped, Tenure
from treadle.errors import ConfigError, ModelError, StoreError, ToolError, TreadleError
from treadle.ports.model import Model, ModelRequest
from treadle.ports.toolset import AskModel
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, Usage, UserEntry
from treadle.protocol.events import CompactionComplete, ModelCall, Purpose, Trigger

ATTEMPTS = 3
INTERRUPTED = "interrupted"
ENOUGH = 0.7  # masking is enough when it brings the request below this part of the threshold
RECENT_RESULTS = 6
SUMMARIZE = "Say in one to three sentences what was done, for the person who asked. Plain text, no headings."
SHORTEN = (
    "You shorten the history of a coding session so that the work can go on without it. Write down, in plain text: "
    "the task and every wish of the user; what was done, with paths and names; what was learned; decisions and why; "
    "errors and how they were solved; what is left to do. Keep exact names, paths, commands and values. "
    "Leave out pleasantries. Do not call tools and do not go on with the task."
)


class SideReply(msgspec.Struct, frozen=True):
    """The result of a side call: a text, or the reason why there is none; and the usage in both cases."""

    text: str
    usage: Usage
    error: str = ""


class SideCall:
    """One question to a model, asked again after passing faults. `spent`: its cost so far, also if it was cancelled."""

    def __init__(self, model: Model, request: ModelRequest, deps: Deps) -> None:
        self._model = model
        self._request = fit_output_limit(request, _measure_request(request), model.info)
        self._deps = deps
        self._settled = Usage()
        self._assembler: Assembler | None = None

    @property
    def spent(self) -> Usage:
        assembler = self._assembler
        if assembler is None or not (assembler.text or assembler.usage is not None):
            return self._settled
        return self._settled + self._compute_cost(assembler.usage, assembler.text)

    async def ask(self) -> SideReply:
        deps = self._deps
        for failures in range(ATTEMPTS):
            try:
                return SideReply(await self._listen(), self.spent)
            except ModelError as fault:
                wait = delay(fault, failures, deps.chance(), deps.retry_base_s)
                if wait is None or failures == ATTEMPTS - 1:
                    return SideReply("", self.spent, str(fault))
                await deps.clock.sleep(wait)
            except TreadleError as error:
                return SideReply("", self.spent, str(error))
            except Exception as error:  # a fault of an adapter: what had come by then was paid for
                return SideReply("", self.spent, f"{type(error).__name__}: {error}")
        return SideReply("", self.spent, "The model could not be reached.")

    async def _listen(self) -> str:
        self._settled, self._assembler = self.spent, None
        assembler = Assembler(0)
        silence = SilenceTimeout(self._deps.silence_s, self._deps.answer_s)
        async with silence, aclosing(self._model.stream(self._request)) as stream:  # type: ignore[type-var]
            async for deltas in stream:
                self._assembler = assembler
                silence.hear(deltas)
                assembler.feed(deltas)
        self._assembler = assembler
        answer = assembler.finish(self._model.info.ref)
        if answer.usage is None:  # an answer without a word costs its question
            self._settled += self._compute_cost(None, answer.text)
            self._assembler = None
        return answer.text.strip()

    def _compute_cost(self, usage: Usage | None, text: str) -> Usage:
        if usage is None:
            usage = Usage(_measure_request(self._request), estimate_tokens(len(text)), estimated=True)
        return price_usage(usage, self._model.info)


def estimate_request_usage(model: Model, request: ModelRequest) -> Usage:
    return price_usage(Usage(_measure_request(request), TYPICAL_OUTPUT, estimated=True), model.info)


def _measure_request(request: ModelRequest) -> int:
    return estimate_tokens(sum(map(weigh, request.entries)) + len(request.system))


def make_ask_model(tenure: Tenure, call: CallKey, deps: Deps) -> AskModel:
    """A tool asks the chat's model: within the chat's budget, and recorded at once."""

    async def ask_model(base_request: ModelRequest) -> str:
        state = tenure.state
        try:
            model = find_model(state, deps)
        except ConfigError as error:
            raise ToolError(str(error)) from error
        limit = min(base_request.max_tokens or model.info.max_output, model.info.max_output)
        window, effort = state.options.context_window, state.options.reasoning_effort
        request = replace(base_request, max_tokens=limit, window=window, effort=effort, purpose="sampling")
        reserved = estimate_request_usage(model, request)
        if find_blocking_limit(state, sum(tenure.reserved, reserved), deps) is not None:
            raise ToolError("The budget does not allow another call of the model.")
        tenure.reserved.append(reserved)
        question = SideCall(model, request, deps)
        try:
            reply = await question.ask()
            await tenure.record(ModelCall("sampling", reply.usage, reply.text, reply.error, call))
        except asyncio.CancelledError:
            if question.spent.tokens:
                with contextlib.suppress(StoreError):
                    cut_off = ModelCall("sampling", question.spent, error=INTERRUPTED, call=call)
                    await asyncio.shield(tenure.record(cut_off))
            raise
        finally:
            tenure.reserved.remove(reserved)
        if reply.error:
            raise ToolError(reply.error)
        return reply.text

    return ask_model


def _build_request(state: ChatState, system: str, text: str, purpose: Purpose) -> ModelRequest:
    options, message = state.options, UserEntry(text)
    effort = (purpose == "compaction" and options.compaction_effort) or options.reasoning_effort
    temperature, window = options.temperature, options.context_window
    return ModelRequest(system, [message], temperature=temperature, window=window, effort=effort, purpose=purpose)


# -- the summary at the end of a run ---------------------------------------------------------------------------------


async def summarize(tenure: Tenure, deps: Deps) -> None:
    """A run that ends without a word is explained: by the model, or at least by its last results."""
    state = tenure.state
    lines = format_recent_results(state)
    try:
        model = find_model(state, deps)
    except ConfigError as error:
        return await tenure.append(ModelCall("summary", text=lines, error=str(error)))
    messages = (entry for entry in reversed(transcript.build_entries(state)) if isinstance(entry, UserEntry))
    task = next((entry.text for entry in messages if entry.source == "person" and entry.text), "")
    text = f"The task was:\n{task[:4_000]}\n\nThe last results:\n{lines}"
    request = _build_request(state, SUMMARIZE, text, "summary")
    if find_blocking_limit(state, estimate_request_usage(model, request), deps) is not None:
        return await tenure.append(ModelCall("summary", text=lines, error="The budget does not allow another call."))
    question = SideCall(model, request, deps)
    reply = await tenure.run_unless_stopped(question.ask())
    if isinstance(reply, Stopped):
        if question.spent.tokens:
            await tenure.record(ModelCall("summary", question.spent, lines, INTERRUPTED))
        return
    await tenure.record(ModelCall("summary", reply.usage, reply.text or lines, reply.error))


def format_recent_results(state: ChatState) -> str:
    run_start = find_position(state, state.run.first) if state.run is not None else None
    run_entries = state.history.slice(run_start or 0)
    results = [
        (call.name, result)
        for entry, calling_entry in zip(run_entries[1:], run_entries, strict=False)
        if isinstance(entry, ResultsEntry) and isinstance(calling_entry, AssistantEntry)
        for call, result in zip(calling_entry.calls, entry.results, strict=False)
    ]
    return "\n".join(
        f"- {name}: {'' if result.success else 'failed: '}{result.text.strip().partition(chr(10))[0][:160]}"
        for name, result in results[-RECENT_RESULTS:]
    )


# -- compaction: old large results are masked, which costs nothing; if that is not enough, the model summarizes older
# history. The log is never rewritten.


async def compact(tenure: Tenure, trigger: Trigger, deps: Deps) -> None:
    state = tenure.state
    try:
        model = find_model(state, deps)
    except ConfigError as error:
        return await tenure.append(CompactionComplete(trigger, False, error=str(error)))
    upto, length, window = state.compaction.upto, len(state.history), state.options.context_window or model.info.window
    tokens_before = _count_tokens(state.transcript.slice(0))
    limit = transcript.compute_threshold(window, state.options.max_tokens or model.info.max_output)
    failed = CompactionComplete(trigger, False, tokens_before, tokens_before, threshold=limit)
    # How many tokens stay as they are, by our own count: a third of where compaction begins, or else a small window
    # would be full again at once; and less where the provider counts more than we do.
    counts_more = max(1.0, transcript.estimate(state, 0) / max(1, tokens_before))
    share = int(min(transcript.KEEP_RECENT_TOKENS, limit // 3) / counts_more)
    # The last exchange is kept at any size: the model has not seen its results yet.
    newest = length - 2 if isinstance(state.history[length - 1], ResultsEntry) else length - 1
    start = min(upto + transcript.find_recent_start(state.history.slice(upto), share), newest)
    if trigger != "threshold" or start <= upto:
        start = max(start, _find_middle(state))
    if start <= upto:
        return await tenure.append(replace(failed, error="there is nothing older to shorten"))
    if trigger == "threshold" and (masked := _mask_enough(state, start, limit)) is not None:
        return await tenure.append(_complete_compaction(failed, state, masked))
    request = _build_request(state, SHORTEN, _tell_history(state, start, window), "compaction")
    if (limit_event := find_blocking_limit(state, estimate_request_usage(model, request), deps)) is not None:
        return await tenure.append(replace(failed, error="the budget is used up"), limit_event)
    question = SideCall(model, request, deps)
    reply = await tenure.run_unless_stopped(question.ask())
    if isinstance(reply, Stopped):
        spent = question.spent
        cut_off = [ModelCall("compaction", spent, error=INTERRUPTED)] if spent.tokens else []
        if not tenure.state.compacting:  # of an idle chat: an edit has ended it
            return await tenure.record(*cut_off) if cut_off else None
        return await tenure.record(*cut_off, replace(failed, usage=spent, error=INTERRUPTED))
    call = ModelCall("compaction", reply.usage, error=reply.error)
    if not reply.text:
        reason = reply.error or "the model gave no summary"
        return await tenure.record(call, replace(failed, usage=reply.usage, error=reason))
    kept_seqs = transcript.select_kept_messages(
        state.history.take_first(start), min(transcript.KEEP_USER_TOKENS, share)
    )
    compaction = Compaction(start, reply.text, kept_seqs, start)
    await tenure.record(call, replace(_complete_compaction(failed, state, compaction), usage=reply.usage))


def _complete_compaction(failed: CompactionComplete, state: ChatState, compaction: Compaction) -> CompactionComplete:
    tokens_after = _count_tokens(transcript.rebuild(state.history, compaction).slice(0))
    fields = {"upto": compaction.upto, "kept": compaction.kept_seqs, "masked": compaction.masked}
    return replace(failed, success=True, tokens_after=tokens_after, summary=compaction.summary, **fields)


def _count_tokens(entries: list[Entry]) -> int:
    return sum(estimate_tokens(weigh(entry)) for entry in entries)


def _find_middle(state: ChatState) -> int:
    """The border for a compaction that must shrink something: the middle, at a place where no call is cut off."""
    middle = state.compaction.upto + (len(state.history) - state.compaction.upto) // 2
    while middle < len(state.history) and isinstance(state.history[middle], ResultsEntry):
        middle += 1
    return middle if middle < len(state.history) else state.compaction.upto


def _mask_enough(state: ChatState, start: int, limit: int) -> Compaction | None:
    uncompacted_entries = state.history.slice(state.compaction.upto)[: start - state.compaction.upto]
    saved = sum(
        estimate_tokens(weigh(entry)) - estimate_tokens(weigh(transcript.mask(entry))) for entry in uncompacted_entries
    )
    is_enough = transcript.estimate(state, 0) - saved <= ENOUGH * limit
    return replace(state.compaction, masked=start) if start > state.compaction.masked and saved and is_enough else None


def _tell_history(state: ChatState, start: int, window: int) -> str:
    entries = transcript.rebuild(state.history.take_first(start), state.compaction)
    text = "\n\n".join(_render(transcript.mask(entry)) for entry in entries)
    room = max(2_000, int(window * 2.5))
    if len(text) > room:
        text = f"{text[: room // 2]}\n\n[… left out …]\n\n{text[-room // 2 :]}"
    return f"Shorten this history:\n\n{text}"


def _render(entry: Entry) -> str:
    match entry:
        case UserEntry(text=text):
            return f"USER: {text}"
        case AssistantEntry(text=text, calls=calls):
            lines = [f"ASSISTANT: {text}"] if text else []
            return "\n".join([*lines, *(f"CALL {call.name} {call.arguments}" for call in calls)])
        case ResultsEntry(results=results):
            return "\n".join(f"RESULT: {result.text}" for result in results)
