"""The summary at the end of a run that said nothing (L-17): a recorded model call of its own purpose."""

from treadle.chat.fold import position_of
from treadle.chat.state import ChatState
from treadle.chat.transcript import entries
from treadle.engine import request as requests
from treadle.engine import side_call
from treadle.engine.deps import Deps
from treadle.engine.tenure import Stopped, Tenure
from treadle.errors import ConfigError
from treadle.ports.model import ModelRequest
from treadle.protocol.content import AssistantEntry, ResultsEntry, UserEntry
from treadle.protocol.events import ModelCall

SYSTEM = "Say in one to three sentences what was done, for the person who asked. Plain text, no headings."
RECENT_RESULTS = 6


async def summarize(tenure: Tenure, deps: Deps) -> None:
    """A run that ends without a word is explained: by the model, or at least by its last results."""
    state = tenure.state
    lines = recent_lines(state)
    try:
        model = requests.find_model(state, deps)
    except ConfigError as error:
        return await tenure.append(ModelCall("summary", text=lines, error=str(error)))
    messages = (
        entry for entry in reversed(entries(state)) if isinstance(entry, UserEntry) and entry.source == "person"
    )
    task = next((entry.text for entry in messages if entry.text), "")
    message = UserEntry(f"The task was:\n{task[:4_000]}\n\nThe last results:\n{lines}")
    options = state.options
    request = ModelRequest(
        SYSTEM,
        [message],
        temperature=options.temperature,
        window=options.context_window,
        effort=options.reasoning_effort,
        purpose="summary",
    )
    if requests.over(state, side_call.expected(model, request), deps) is not None:
        return await tenure.append(ModelCall("summary", text=lines, error="The budget does not allow another call."))
    question = side_call.SideCall(model, request, deps)
    reply = await tenure.unless_stopped(question.ask())
    if isinstance(reply, Stopped):
        if question.spent.tokens:
            await tenure.record(ModelCall("summary", question.spent, lines, side_call.INTERRUPTED))
        return
    await tenure.record(ModelCall("summary", reply.usage, reply.text or lines, reply.error))


def recent_lines(state: ChatState) -> str:
    """The last results of the run, one line each."""
    run_start = position_of(state, state.run.first) if state.run is not None else None
    run_entries = state.history.slice(run_start or 0)
    results = [
        (call.name, result)
        for entry, calling_entry in zip(run_entries[1:], run_entries, strict=False)
        if isinstance(entry, ResultsEntry) and isinstance(calling_entry, AssistantEntry)
        for call, result in zip(calling_entry.calls, entry.results, strict=False)
    ]
    result_lines = [
        f"- {name}: {'' if result.success else 'failed: '}{result.text.strip().partition(chr(10))[0][:160]}"
        for name, result in results[-RECENT_RESULTS:]
    ]
    return "\n".join(result_lines)
