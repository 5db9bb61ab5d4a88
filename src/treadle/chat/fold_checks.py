"""Folding what verification needs to know of a run: what its checks came to (L-16)."""

from collections.abc import Mapping

from msgspec.structs import replace

from treadle.chat.folding import Fold, change_run
from treadle.chat.state import ChatState, Checked, OpenCheck
from treadle.chat.verification import DIAGNOSTICS, tail
from treadle.protocol import events as e
from treadle.protocol.events import Envelope, Event

MAX_LOST = 3
"""A check that takes its worker with it this often is not tried again."""


def _check_started(state: ChatState, event: e.CheckStarted, at: Envelope) -> ChatState:
    begun = OpenCheck(event.check, event.command, event.attempt, event.paths, event.plan)
    return change_run(replace(state, checks=state.checks + 1), active=True, check=begun)


def _check_completed(state: ChatState, event: e.CheckCompleted, at: Envelope) -> ChatState:
    run = state.run
    if run is None or run.check is None or run.check.check != event.check:
        return state
    result = Checked(run.check.command, event.success, tail(event.result), event.synthetic)
    lost = run.checks_lost + (event.synthetic == "lost")
    again = event.synthetic == "lost" and lost < MAX_LOST
    return change_run(state, check=None, checks_lost=lost, checked=run.checked if again else (*run.checked, result))


def told(state: ChatState) -> ChatState:
    """Verification has spoken to the model: either that nothing was written, or what failed. Either way the run is not
    complete any more."""
    run = state.run
    if run is None:
        return state
    failed = [result for result in run.checked if result.failed]
    if not failed:
        return change_run(state, reminded=True, completed=False)
    found = next((result.text for result in failed if result.command == DIAGNOSTICS), run.diagnosed)
    return change_run(state, check_rounds=run.check_rounds + 1, diagnosed=found, checked=(), completed=False)


CHECKS: Mapping[type[Event], Fold] = {
    e.CheckStarted: _check_started,
    e.CheckCompleted: _check_completed,
}
