"""The loop: fold the log, decide, do that one thing, append what came of it, repeat. It is mechanical: what to do is
decided in `treadle.chat`, how it is done in the modules beside this one, and where it is kept behind ports.

Kill it anywhere: the next holder of the lease folds the same log and arrives at the same decision.
"""

from typing import assert_never

from treadle.chat.decide import (
    CallModel,
    Compact,
    Record,
    Rest,
    Restore,
    RunCalls,
    RunCheck,
    Step,
    Summarize,
    Wait,
    decide,
)
from treadle.chat.state import ChatState
from treadle.chat.transitions import transition
from treadle.engine.binding import bound
from treadle.engine.checks import run_check
from treadle.engine.compaction import compact
from treadle.engine.deps import Deps
from treadle.engine.lease import Tenure
from treadle.engine.model_call import call_model, open_turn
from treadle.engine.recovery import recover
from treadle.engine.request import limits_of
from treadle.engine.restore import restore
from treadle.engine.summary import summarize
from treadle.engine.tool_calls import run_calls
from treadle.errors import HeadMoved, StoreError
from treadle.protocol.commands import Expire
from treadle.protocol.events import Event, SessionError


async def advance(tenure: Tenure, deps: Deps) -> None:
    """Drive one chat until it finishes, must wait, loses its lease, or its worker is about to leave."""
    tenure.ahead = lambda state: ahead(state, deps, begin=not tenure.leaving)
    settled = False
    while True:
        try:
            if not settled:
                await _settle(tenure, deps)
                settled = True
            step = decide(tenure.state, limits_of(tenure.state, deps))
            if isinstance(step, Wait | Rest) or (tenure.leaving and not isinstance(step, Record)):
                return
            await _take(step, tenure, deps)
        except HeadMoved:
            continue  # somebody legally added a command: what was decided is decided anew
        except StoreError:
            raise
        except Exception as error:
            # Law: nothing may hang, and nothing may spin. A fault of ours ends the run and leaves the chat usable.
            settled = True  # what cannot be settled is closed with the run
            running = tenure.state.run is not None
            await tenure.record(SessionError("internal", f"{type(error).__name__}: {error}"))
            if not running:
                raise


def ahead(state: ChatState, deps: Deps, *, begin: bool = True) -> tuple[Event, ...]:
    """What the rules say about a state before any effect: it is committed together with what led to the state. Not
    while a call is under way beside the one that has just ended: only its own outcome, or its end, may close it. A turn
    is begun only by whoever will make its call."""
    if any(call.phase == "started" for call in state.calls):
        return ()
    match decide(state, limits_of(state, deps)):
        case Record(events=events):
            return events
        case CallModel(final=final) if state.open_turn is None and begin:
            return open_turn(state, final, deps)
        case _:
            return ()


async def _settle(tenure: Tenure, deps: Deps) -> None:
    """What a dead worker left open, and what nobody answered in time."""
    if not await bound(tenure, deps):
        return
    await recover(tenure, deps)
    expired = transition(tenure.state, Expire(deps.clock.now_ms()))
    if expired:
        await tenure.append(*expired)


async def _take(step: Step, tenure: Tenure, deps: Deps) -> None:
    match step:
        case CallModel(final=final):
            await call_model(tenure, final, deps)
        case RunCalls(calls=()):
            await recover(tenure, deps)
        case RunCalls(calls=calls):
            await run_calls(tenure, calls, deps)
        case Compact(trigger=trigger):
            await compact(tenure, trigger, deps)
        case RunCheck(check=check):
            await run_check(tenure, check, deps)
        case Restore(request=request):
            await restore(tenure, request, deps)
        case Summarize():
            await summarize(tenure, deps)
        case Record(events=events):
            await tenure.append(*events)
        case Wait() | Rest():
            pass
        case _ as never:
            assert_never(never)
