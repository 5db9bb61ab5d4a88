"""A race as its caller sees it (`Agent.race`): its result, and its attempts as they change. The race itself is a call
in its chat (`race`), so it goes on wherever that chat is resumed."""

import asyncio
from collections.abc import AsyncIterator, Generator
from typing import Any, cast

from treadle.adapters.tools.builtin.interaction import MOST_TASKS
from treadle.errors import InvalidInput
from treadle.library.chat import Chat
from treadle.library.subagents.children import Home
from treadle.library.subagents.tree import Row, tree
from treadle.protocol.commands import Race
from treadle.protocol.options import OptionKeywords, RaceKeywords
from treadle.protocol.race_results import RaceResult, result_of

LOOK_S = 0.5
ATTEMPTS = 4


def order(task: str, attempts: int, models: tuple[str, ...], check: str, judge: str, all_of: bool) -> Race:
    """Models are given out in turn. InvalidInput if it makes no sense."""
    number = attempts or (len(models) if len(models) > 1 else ATTEMPTS)
    if not task.strip():
        raise InvalidInput("Say what the attempts are to do.")
    if not 1 <= number <= MOST_TASKS:
        raise InvalidInput(f"A race has 1 to {MOST_TASKS} attempts; got {number}.")
    if number < len(models):
        raise InvalidInput(f"There are {len(models)} models for {number} attempts; give as many attempts or more.")
    assigned_models = tuple(models[place % len(models)] for place in range(number))
    return Race(task, assigned_models, check, judge, all_of)


def ordered(task: str, keywords: RaceKeywords, model: str) -> tuple[Race, OptionKeywords]:
    """The race that is meant, and the options of its chats, which have this model if nothing else is said."""
    models = tuple(keywords.pop("models", ())) or (keywords.get("model") or model,)
    order_arguments = (
        keywords.pop("attempts", 0),
        models,
        keywords.pop("check", ""),
        keywords.pop("judge", ""),
        keywords.pop("all", False),
    )
    return order(task, *order_arguments), cast(OptionKeywords, keywords)


class RunningRace:
    """Await it to run the race; iterate to see its attempts meanwhile. Without an order it goes on with the race of its
    chat."""

    def __init__(self, home: Home, chat: Chat, race_order: Race | None = None) -> None:
        self.chat = chat
        self._home = home
        self._order = race_order
        self._result: RaceResult | None = None

    def __await__(self) -> Generator[Any, None, RaceResult]:
        return self._run().__await__()

    async def __aiter__(self) -> AsyncIterator[list[Row]]:
        """The rows of its attempts whenever one of them has changed; the last ones when it is over. Then `result`
        tells what came of it."""
        await self.chat.open()
        running = asyncio.ensure_future(self._run())
        last_rows: list[Row] = []
        try:
            while True:
                over = bool((await asyncio.wait({running}, timeout=LOOK_S if last_rows else 0.05))[0])
                rows = await self.rows()
                if rows != last_rows or over:
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
