"""The tree of chats that the calls of a chat began, each with its state and its cost; and a race as its caller sees it
(`Agent.race`). The race itself is a call in its chat, so it goes on wherever that chat is resumed."""

import asyncio
from collections.abc import AsyncIterator, Generator, Iterable
from typing import Any, cast

from treadle.adapters.tools.builtin.interaction import MOST_TASKS
from treadle.base.types import CallKey, ChatId
from treadle.chat.state import open_actions, status
from treadle.engine.deps import Deps
from treadle.engine.effects import events_of
from treadle.errors import InvalidInput, NotFound
from treadle.library.chat import Chat
from treadle.library.subagents.children import Home
from treadle.protocol.commands import Race
from treadle.protocol.events import Event, ExecutionStart
from treadle.protocol.options import OptionKeywords, RaceKeywords
from treadle.protocol.subagent_events import Child, children_of
from treadle.protocol.views import ChildView, RaceResult, result_of, shown_status

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
    """The chats of calls, in the order of their beginning. A call that was answered in its middle is recorded again."""
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
        state.options.model or child.model, child.world, shown_status(status(state), leased),
        state.last_end if state.run is None else "", state.totals.turns, state.totals.usage, ", ".join(at_work),
        tuple(action.name or action.kind for action in open_actions(state) if action.of_person), state.options.labels,
    )  # fmt: skip


LOOK_S = 0.5
ATTEMPTS = 4


def make_race_order(task: str, attempts: int, models: tuple[str, ...], check: str, judge: str, all_of: bool) -> Race:
    """Models are given out in turn. InvalidInput if it makes no sense."""
    number = attempts or (len(models) if len(models) > 1 else ATTEMPTS)
    if not task.strip():
        raise InvalidInput("Say what the attempts are to do.")
    if not 1 <= number <= MOST_TASKS:
        raise InvalidInput(f"A race has 1 to {MOST_TASKS} attempts; got {number}.")
    if number < len(models):
        raise InvalidInput(f"There are {len(models)} models for {number} attempts; give as many attempts or more.")
    return Race(task, tuple(models[place % len(models)] for place in range(number)), check, judge, all_of)


def make_race(task: str, keywords: RaceKeywords, model: str) -> tuple[Race, OptionKeywords]:
    """The race that is meant, and the options of its chats, which have this model if nothing else is said."""
    models = tuple(keywords.pop("models", ())) or (keywords.get("model") or model,)
    attempts, check, judge = keywords.pop("attempts", 0), keywords.pop("check", ""), keywords.pop("judge", "")
    race_order = make_race_order(task, attempts, models, check, judge, keywords.pop("all", False))
    return race_order, cast(OptionKeywords, keywords)


class RunningRace:
    """Await it to run the race, or iterate over its attempts. Without an order it goes on with the race of its chat."""

    def __init__(self, home: Home, chat: Chat, race_order: Race | None = None) -> None:
        self.chat, self._home, self._order = chat, home, race_order
        self._result: RaceResult | None = None

    def __await__(self) -> Generator[Any, None, RaceResult]:
        return self._run().__await__()

    async def __aiter__(self) -> AsyncIterator[list[Row]]:
        """The rows of its attempts whenever one has changed; the last ones when it is over, with `result`."""
        await self.chat.open()
        running = asyncio.ensure_future(self._run())
        last_rows: list[Row] = []
        try:
            while True:
                over = bool((await asyncio.wait({running}, timeout=LOOK_S if last_rows else 0.05))[0])
                if (rows := await self.rows()) != last_rows or over:
                    last_rows = rows
                    yield rows
                if over:
                    running.result()
                    return
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    @property
    def result(self) -> RaceResult:
        assert self._result is not None, "the race is not over"
        return self._result

    async def rows(self) -> list[Row]:
        """Return its attempts as they are now; any worker may drive them."""
        return await tree(self._home.deps, self.chat.id)

    async def _run(self) -> RaceResult:
        following = self.chat.resume() if self._order is None else self.chat.race(self._order)
        async for _ in following:
            pass
        events = [await self.chat.load_full_event(each) for each in await self.chat.events()]
        self._result = result_of(self.chat.id, events)
        return self._result
