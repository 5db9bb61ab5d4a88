"""The interface of the app to its parts that are loaded behind the first frame: the display, and the person's
actions.
"""

from typing import Any, Protocol

from treadle.frontends.tui.card import Card, Choice
from treadle.frontends.tui.composer import Composer
from treadle.frontends.tui.connection import ChatLink, OpenQuestion
from treadle.frontends.tui.conversation import Conversation
from treadle.frontends.tui.side import Side
from treadle.frontends.tui.transcript import Transcript
from treadle.protocol.options import ChatOptions


class Showing(Protocol):
    """The chat that is followed, and what is drawn of it when."""

    conversation: Conversation
    link: ChatLink | None
    transcript: Transcript
    card: Card
    side: Side

    @property
    def options(self) -> ChatOptions:
        """Those of the chat, or of the next one."""
        ...

    async def mount(self) -> None:
        """Take the places that the first frame left open."""
        ...

    def attach(self, link: ChatLink, *, new: bool = False) -> None:
        """Follow a chat from its beginning. A `new` one stands below what the screen has shown so far."""
        ...

    def detach(self) -> None:
        """Nothing is followed: the next message begins a chat."""
        ...

    def leave(self) -> None: ...

    async def look_below(self) -> None:
        """See anew what the chats ask that calls of this one began."""
        ...

    def draw(self) -> None: ...

    def draw_facts(self) -> None: ...


class Controlling(Protocol):
    """Carries out the person's actions."""

    next_chat_options: dict[str, Any]
    """Options for the next chat."""

    @property
    def cut_off(self) -> bool:
        """True if no worker drives the chat's run."""
        ...

    async def begin(self) -> None:
        """Begin with the task that the app was opened for."""
        ...

    async def submitted(self, message: Composer.Submitted) -> None: ...

    async def chose(self, choice: Choice) -> None: ...

    async def command(self, name: str, arguments: str) -> None: ...

    async def attach(self, path: str) -> None:
        """Make a picture part of the message, if the model can see it."""
        ...

    def completing(self, message: Composer.Completing) -> None: ...

    def settles(self, question: OpenQuestion) -> bool:
        """True if an approval needs no answer of a person."""
        ...

    def handle_card_closed(self, question: OpenQuestion) -> None:
        """A card went."""
        ...

    def take_up_draft(self) -> None:
        """Put back the message that was put aside to answer a card."""
        ...

    def put_down(self) -> bool:
        """Esc: leave what the composer was used for; False if there is nothing to leave."""
        ...

    def purpose_words(self) -> str: ...
