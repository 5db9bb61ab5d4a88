"""The tree of chats: the chats that the calls of a chat began, and theirs, each with its state and its cost."""

from collections.abc import Iterable

from treadle.base.types import CallKey, ChatId
from treadle.chat.state import open_actions, status
from treadle.engine.deps import Deps
from treadle.engine.effects import events_of
from treadle.errors import NotFound
from treadle.protocol.events import Event, ExecutionStart
from treadle.protocol.subagent_events import Child, children_of
from treadle.protocol.views import ChildView, shown_status

DEEPEST = 8


Row = ChildView


async def tree(deps: Deps, chat: ChatId) -> list[Row]:
    """Every chat below this one, each behind the one that began it."""
    return await tree_of(deps, chat, [event async for _, event in events_of(deps.store, chat, {ExecutionStart.TYPE})])


async def tree_of(deps: Deps, chat: ChatId, events: Iterable[Event], depth: int = 1) -> list[Row]:
    """The same for those that were begun by some of its events."""
    rows: list[Row] = []
    for child, call in begun_by(events).items():
        rows.append(await row(deps, chat, call, child, depth))
        if depth < DEEPEST and rows[-1].status != "not begun":
            below = [event async for _, event in events_of(deps.store, child.chat, {ExecutionStart.TYPE})]
            rows += await tree_of(deps, child.chat, below, depth + 1)
    return rows


def begun_by(events: Iterable[Event]) -> dict[Child, CallKey]:
    """The chats of calls, in the order in which they were begun. A call that was answered in its middle is recorded
    again, with the same ones."""
    start_events = (event for event in events if isinstance(event, ExecutionStart) and event.plan)
    return {child: event.call for event in start_events for child in children_of(event.plan or {})}


async def row(deps: Deps, parent: ChatId, call: CallKey, child: Child, depth: int = 1) -> Row:
    start = Row(child.chat, parent, call, child.number, depth, child.title, child.model, child.world)
    try:
        state = await deps.log.load(child.chat)
        leased = (await deps.store.get(child.chat)).leased
    except NotFound:
        return start
    at_work = [each.request.name for each in state.calls if each.phase == "started"]
    return Row(
        *(start.chat, parent, call, child.number, depth, state.title or child.title),
        state.options.model or child.model,
        child.world,
        shown_status(status(state), leased),
        state.last_end if state.run is None else "",
        state.totals.turns,
        state.totals.usage,
        ", ".join(at_work),
        tuple(action.name or action.kind for action in open_actions(state) if action.of_person),
        state.options.labels,
    )
