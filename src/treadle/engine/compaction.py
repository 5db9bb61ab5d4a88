"""Making a conversation shorter for the model (L-19). First old large results are masked, which costs nothing; if
that is not enough, older history is replaced by a summary that the model itself writes. The log is never rewritten.
"""

from msgspec.structs import replace

from treadle.chat.history import tokens, weigh
from treadle.chat.state import ChatState, Compaction
from treadle.chat.transcript import (
    KEEP_RECENT_TOKENS,
    KEEP_USER_TOKENS,
    estimate,
    kept_messages,
    mask,
    rebuild,
    recent_start,
    threshold,
)
from treadle.engine import request as requests
from treadle.engine import side_call
from treadle.engine.deps import Deps
from treadle.engine.tenure import Stopped, Tenure
from treadle.errors import ConfigError
from treadle.ports.model import Model, ModelRequest
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, UserEntry
from treadle.protocol.events import CompactionComplete, ModelCall, Trigger

ENOUGH = 0.7
"""Masking is enough when it brings the request below this part of the threshold."""
SYSTEM = (
    "You shorten the history of a coding session so that the work can go on without it. Write down, in plain text: "
    "the task and every wish of the user; what was done, with paths and names; what was learned; decisions and why; "
    "errors and how they were solved; what is left to do. Keep exact names, paths, commands and values. "
    "Leave out pleasantries. Do not call tools and do not go on with the task."
)


async def compact(tenure: Tenure, trigger: Trigger, deps: Deps) -> None:
    """Carry out the compaction that the log says has begun."""
    state = tenure.state
    try:
        model = requests.find_model(state, deps)
    except ConfigError as error:
        return await tenure.append(CompactionComplete(trigger, False, error=str(error)))
    tokens_before = _size(state.transcript.slice(0))
    limit = _limit(state, model)
    failed = CompactionComplete(trigger, False, tokens_before, tokens_before, threshold=limit)
    share = _share(state, limit, tokens_before)
    start = min(state.compaction.upto + recent_start(state.history.slice(state.compaction.upto), share), _newest(state))
    if trigger != "threshold" or start <= state.compaction.upto:
        start = max(start, _half(state))
    if start <= state.compaction.upto:
        return await tenure.append(replace(failed, error="there is nothing older to shorten"))
    if trigger == "threshold" and (masked := _masked(state, start, limit)) is not None:
        return await tenure.append(_complete_compaction(failed, state, masked))
    request = _request(state, start, model)
    if (over := requests.over(state, side_call.expected(model, request), deps)) is not None:
        return await tenure.append(replace(failed, error="the budget is used up"), over)
    question = side_call.SideCall(model, request, deps)
    reply = await tenure.unless_stopped(question.ask())
    if isinstance(reply, Stopped):
        spent = question.spent
        cut_off = [ModelCall("compaction", spent, error=side_call.INTERRUPTED)] if spent.tokens else []
        if not tenure.state.compacting:  # of an idle chat: the interrupt has ended it
            return await tenure.record(*cut_off) if cut_off else None
        return await tenure.record(*cut_off, replace(failed, usage=spent, error=side_call.INTERRUPTED))
    call = ModelCall("compaction", reply.usage, error=reply.error)
    if not reply.text:
        reason = reply.error or "the model gave no summary"
        return await tenure.record(call, replace(failed, usage=reply.usage, error=reason))
    kept_seqs = kept_messages(state.history.take_first(start), min(KEEP_USER_TOKENS, share))
    compaction = Compaction(start, reply.text, kept_seqs, start)
    await tenure.record(call, replace(_complete_compaction(failed, state, compaction), usage=reply.usage))


def _limit(state: ChatState, model: Model) -> int:
    """Where compaction begins for this model."""
    window = state.options.context_window or model.info.window
    return threshold(window, state.options.max_tokens or model.info.max_output)


def _share(state: ChatState, limit: int, counted_tokens: int) -> int:
    """How many tokens stay as they are, by our own count. A third of where compaction begins, or else a small window
    would be full again at once; and less where the provider counts more than we do."""
    counts_more = max(1.0, estimate(state, 0) / max(1, counted_tokens))
    return int(min(KEEP_RECENT_TOKENS, limit // 3) / counts_more)


def _newest(state: ChatState) -> int:
    """Return where the last exchange begins. It is kept at any size: the model has not seen its results yet."""
    last = len(state.history) - 1
    return last - 1 if isinstance(state.history[last], ResultsEntry) else last


def _complete_compaction(failed: CompactionComplete, state: ChatState, compaction: Compaction) -> CompactionComplete:
    """Return the completion event of a successful compaction, from the event that would record its failure."""
    tokens_after = _size(rebuild(state.history, compaction).slice(0))
    return replace(
        failed,
        success=True,
        tokens_after=tokens_after,
        summary=compaction.summary,
        upto=compaction.upto,
        kept=compaction.kept_seqs,
        masked=compaction.masked,
    )


def _size(entries: list[Entry]) -> int:
    return sum(tokens(weigh(entry)) for entry in entries)


def _half(state: ChatState) -> int:
    """The border for a compaction that must shrink something: the middle, at a place where no call is cut off."""
    middle = state.compaction.upto + (len(state.history) - state.compaction.upto) // 2
    while middle < len(state.history) and isinstance(state.history[middle], ResultsEntry):
        middle += 1
    return middle if middle < len(state.history) else state.compaction.upto


def _masked(state: ChatState, start: int, limit: int) -> Compaction | None:
    """Masking alone, if it has something to mask and is enough."""
    uncompacted_entries = state.history.slice(state.compaction.upto)[: start - state.compaction.upto]
    saved = sum(tokens(weigh(entry)) - tokens(weigh(mask(entry))) for entry in uncompacted_entries)
    if start <= state.compaction.masked or not saved:
        return None
    if estimate(state, 0) - saved > ENOUGH * limit:
        return None
    return Compaction(state.compaction.upto, state.compaction.summary, state.compaction.kept_seqs, start)


def _request(state: ChatState, start: int, model: Model) -> ModelRequest:
    """Build the request for a summary. The history is sent as text, cut in the middle if it does not fit."""
    entries = rebuild(state.history.take_first(start), state.compaction)
    text = "\n\n".join(_render(mask(entry)) for entry in entries)
    room = max(2_000, int((state.options.context_window or model.info.window) * 2.5))
    if len(text) > room:
        text = f"{text[: room // 2]}\n\n[… left out …]\n\n{text[-room // 2 :]}"
    message = UserEntry(f"Shorten this history:\n\n{text}")
    options = state.options
    return ModelRequest(
        SYSTEM,
        [message],
        temperature=options.temperature,
        window=options.context_window,
        effort=options.compaction_effort or options.reasoning_effort,
        purpose="compaction",
    )


def _render(entry: Entry) -> str:
    match entry:
        case UserEntry(text=text):
            return f"USER: {text}"
        case AssistantEntry(text=text, calls=calls):
            lines = [f"ASSISTANT: {text}"] if text else []
            return "\n".join([*lines, *(f"CALL {call.name} {call.arguments}" for call in calls)])
        case ResultsEntry(results=results):
            return "\n".join(f"RESULT: {result.text}" for result in results)
