"""The loop: fold the log, decide, do that one thing, append the result, repeat. It is mechanical: `treadle.chat`
decides the next step, the modules beside this one carry it out, and ports store the result.

Kill it anywhere: the next holder of the lease folds the same log and arrives at the same decision."""

from contextlib import suppress
from typing import assert_never

from treadle.chat import decide as steps
from treadle.chat.applying import get_tool_options
from treadle.chat.state import ChatState, find_wake_time
from treadle.chat.transitions import transition
from treadle.engine.checks import run_check
from treadle.engine.deps import Deps
from treadle.engine.model_call import call_model, open_turn
from treadle.engine.recovery import recover
from treadle.engine.request import compute_run_limits
from treadle.engine.restore import restore
from treadle.engine.side_call import compact, summarize
from treadle.engine.tenure import Stopped, Tenure
from treadle.engine.tool_calls import run_calls
from treadle.errors import HeadMoved, RootChanged, StoreError
from treadle.protocol.commands import Expire
from treadle.protocol.events import Event, ModelNotice, OptionsChanged, SessionError

AGAIN = 3  # how often a step may come to nothing at all before that is a fault of ours


async def advance(tenure: Tenure, deps: Deps) -> None:
    """Drive one chat until it finishes, must wait, loses its lease, or its worker is about to leave."""
    tenure.ahead = lambda state: tenure.add_outputs(derive_effect_free_events(state, deps, begin=not tenure.leaving))
    is_settled = failed = False
    last: tuple[int, steps.Step] | None = None
    times = 0  # how often the last step was taken and changed nothing
    while True:
        try:
            await tenure.confirm()
            if not is_settled:
                await _settle(tenure, deps)
                is_settled = True
            step = steps.decide(tenure.state, lambda: compute_run_limits(tenure.state, deps))
            if isinstance(step, (steps.Wait, steps.StayIdle)) or (
                tenure.leaving and not isinstance(step, steps.AppendEvents)
            ):
                return
            times, last = times + 1 if last == (tenure.state.head, step) else 1, (tenure.state.head, step)
            if times > AGAIN:
                raise RuntimeError(f"the step {type(step).__name__} was taken {AGAIN} times and nothing came of it")
            with deps.observer.trace_work(tenure.state):
                await _take(step, tenure, deps)
            if tenure.released:
                return
            failed = False
        except HeadMoved:
            continue  # a command was legally added: decide anew
        except StoreError:
            raise
        except Exception as error:
            # Law: nothing may hang, and nothing may spin. A fault of ours ends the run and leaves the chat usable; one
            # that meets even the end of the run ends the tenure, and the next one begins where the log stands.
            if failed:
                raise
            is_settled = failed = True  # a call that cannot be settled is closed with the run
            run = tenure.state.run
            if run is None or run.stop != "error":
                await tenure.record(SessionError("internal", f"{type(error).__name__}: {error}"))


def derive_effect_free_events(state: ChatState, deps: Deps, *, begin: bool = True) -> tuple[Event, ...]:
    """Return the events that the rules derive from a state before any effect; they are committed together with the
    events that led to it. Empty while another call is running: only its own outcome, or its end, may close it. `begin`:
    True if the caller will make the model call of a new turn."""
    if state.calls and any(call.phase == "started" for call in state.calls):
        return ()
    match steps.decide(state, lambda: compute_run_limits(state, deps)):
        case steps.AppendEvents(events=events):
            return events
        case steps.CallModel(final=final) if state.open_turn is None and begin:
            # An error is raised again where the call is made, and is recorded there; what led here is recorded now.
            with suppress(Exception):
                return open_turn(state, final, deps)
    return ()


async def _settle(tenure: Tenure, deps: Deps) -> None:
    """Settle calls that a dead worker left open, and actions that were not answered in time."""
    if tenure.state.creation_lost or not await _bind_root(tenure, deps):
        return
    if tenure.state.run is not None:
        notices = await tenure.run_unless_stopped(
            deps.tools.prepare_tools(tenure.state.chat, get_tool_options(tenure.state))
        )
        if notices and not isinstance(notices, Stopped):
            await tenure.append(*(ModelNotice("mcp", deps.redact(text)) for text in notices))
    await recover(tenure, deps)
    now = deps.clock.now_ms()
    if 0 < find_wake_time(tenure.state) <= now and (expired := transition(tenure.state, Expire(now))):
        await tenure.append(*expired)


async def _take(step: steps.Step, tenure: Tenure, deps: Deps) -> None:
    match step:
        case steps.CallModel(final=final):
            await call_model(tenure, final, deps)
        case steps.RunCalls(calls=()):
            await recover(tenure, deps)
        case steps.RunCalls(calls=calls):
            await run_calls(tenure, calls, deps)
        case steps.Compact(trigger=trigger):
            await compact(tenure, trigger, deps)
        case steps.RunCheck(check=check):
            await run_check(tenure, check, deps)
        case steps.Restore(request=request):
            await restore(tenure, request, deps)
        case steps.Summarize():
            await summarize(tenure, deps)
        case steps.AppendEvents(events=events):
            await tenure.append(*tenure.add_outputs(events))
        case steps.Wait() | steps.StayIdle():
            pass
        case _ as never:
            assert_never(never)


async def _bind_root(tenure: Tenure, deps: Deps) -> bool:
    """Bind the chat to its root if it is not bound yet (S-01). A chat works in one folder for its whole life.
    False: the root is another folder by now, so the run has ended before anything of it was touched."""
    state = tenure.state
    if deps.bind is None or state.run is None or not state.options.root:
        return True
    try:
        root_id = deps.bind(state.options, state.owner)  # a look at one folder; a thread would cost more
    except RootChanged as error:
        await tenure.record(SessionError(error.code, deps.redact(str(error))))
        return False
    if root_id and not state.options.root_id:
        await tenure.append(OptionsChanged({"root_id": root_id}, by="treadle"))
    return True
