"""What the app asks of whoever carries out what people do."""

from typing import Any, Protocol

from treadle.protocol.events import OpenAction
from treadle.tui.card import Choice
from treadle.tui.composer import Composer


class Conducting(Protocol):
    chosen: dict[str, Any]
    """Options for the next chat."""

    @property
    def cut_off(self) -> bool:
        """Whether the chat's run is driven by nobody."""
        ...

    async def begin(self) -> None:
        """What the app was opened for."""
        ...

    async def submitted(self, message: Composer.Submitted) -> None: ...

    async def chose(self, choice: Choice) -> None: ...

    async def command(self, name: str, rest: str) -> None: ...

    def completing(self, message: Composer.Completing) -> None: ...

    def settles(self, action: OpenAction) -> bool:
        """Whether an approval needs nobody's answer."""
        ...

    def answered(self, action: OpenAction) -> None:
        """A card went."""
        ...

    def put_down(self) -> bool:
        """Esc: leave what the composer was used for; False if there is nothing to leave."""
        ...

    def purpose_words(self) -> str: ...
