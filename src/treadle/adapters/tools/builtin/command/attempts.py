"""The attempts of a command: one whose supervisor was lost may be begun anew, under a key of its own."""

import msgspec

from treadle.base.types import CallKey, ChatId
from treadle.ports.commands import Command, Commands

ATTEMPTS = 3
"""How often a command may be begun whose supervisor is lost: it may be the command itself that brings it down."""


class CommandAttempt(msgspec.Struct, frozen=True):
    first: str
    """The key of the first attempt."""
    number: int = 1
    command: Command | None = None

    @property
    def key(self) -> CallKey:
        return CallKey(self.first if self.number == 1 else f"{self.first}~{self.number}")

    @property
    def next(self) -> "CommandAttempt":
        return CommandAttempt(self.first, self.number + 1)

    async def is_lost(self) -> bool:
        """True if the end of the command cannot become known, or its output may be incomplete."""
        if self.command is None:
            return False
        command_exit = await self.command.wait(0)
        return not self.command.present or (command_exit is not None and command_exit.ending == "lost")


async def newest_attempt(commands: Commands, chat: ChatId, first: str) -> CommandAttempt:
    """The one that counts: the last that was begun. `command` is None if none was."""
    newest = CommandAttempt(first)
    for number in range(1, ATTEMPTS + 1):
        attempt = CommandAttempt(first, number)
        command = await commands.find(chat, attempt.key)
        if command is None:
            break
        newest = CommandAttempt(first, number, command)
    return newest
