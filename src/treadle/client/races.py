"""Races over HTTP, `client.race(...)`: several attempts at one task, each a chat in a world of its own (L-22)."""

from contextlib import aclosing

from treadle.client.chats import ClientChat
from treadle.protocol.events import Envelope, RunEnd
from treadle.protocol.race_results import RaceResult, result_of
from treadle.protocol.views import ChildView


class ClientRace:
    """A race is a chat of its own, so it goes on without this client: `ClientRace(client.chat(id))` finds it again."""

    def __init__(self, chat: ClientChat) -> None:
        self.chat = chat

    async def attempts(self) -> tuple[ChildView, ...]:
        """Its attempts as they are now."""
        return await self.chat.children()

    async def result(self) -> RaceResult:
        """Wait until it is over. RunFailed if it came to nothing."""
        envelopes: list[Envelope] = []
        async with aclosing(self.chat.events(deltas=False)) as events:
            async for envelope in events:
                envelopes.append(envelope)
                if isinstance(envelope.data, RunEnd):
                    break
        return result_of(self.chat.id, envelopes)
