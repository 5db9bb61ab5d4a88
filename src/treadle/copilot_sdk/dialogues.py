"""What programs ask each other through the runtime: dialogues with a person (elicitation), and commands that one brings
and another calls. Nothing of it is the chat's, and it lives no longer than the programs do."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from treadle.copilot_words.config import Config
from treadle.jsonrpc.connection import Connection
from treadle.types import new_id


class Announce(Protocol):
    def __call__(self, kind: str, data: dict[str, Any], only: Connection | None = None) -> object: ...


class Dialogues:
    """`programs`: those that are attached to the session, the longest first."""

    def __init__(self, programs: Mapping[Connection, Config], announce: Announce) -> None:
        self._programs = programs
        self._announce = announce
        self._open: dict[str, tuple[asyncio.Future[Any], Sequence[Connection]]] = {}
        self._told: tuple[bool, dict[str, str]] = (False, {})

    @property
    def capabilities(self) -> dict[str, Any]:
        return {"ui": {"elicitation": bool(self._answering())}}

    @property
    def commands(self) -> dict[str, str]:
        """What each does, by name; of one name that of the program which came first."""
        brought = [each for config in self._programs.values() for each in config.commands or ()]
        return {each.name: each.description or "" for each in reversed(brought)}

    def tell_changes(self) -> None:
        """A program came or left: what can be asked here may be something else, and who was to answer may be gone."""
        elicits, commands = bool(self._answering()), self.commands
        before, self._told = self._told, (elicits, commands)
        if elicits != before[0]:
            self._announce("capabilities.changed", self.capabilities)
        if commands != before[1]:
            listed = [{"name": name, "description": about} for name, about in commands.items()]
            self._announce("commands.changed", {"commands": listed})
        for future, asked in list(self._open.values()):
            if not any(each in self._programs for each in asked) and not future.done():
                future.set_result(None)

    async def elicit(self, message: str, schema: Any) -> Any:
        """What a person answered to a program with a dialogue; `cancel` if there is none."""
        asked = self._answering()
        data = {"message": message, "requestedSchema": schema, "mode": "form"}
        answer = await self._ask("elicitation.requested", data, asked) if asked else None
        return answer if isinstance(answer, Mapping) and "action" in answer else {"action": "cancel"}

    async def execute(self, name: str, words: str) -> str:
        """Have a program carry its command out; why it could not, or nothing."""
        asked = [each for each, config in self._programs.items() if any(c.name == name for c in config.commands or ())]
        if not asked:
            return f"There is no command {name}."
        data = {"commandName": name, "command": f"/{name} {words}".strip(), "args": words}
        answer = await self._ask("command.execute", data, asked[:1])
        return str(answer.get("error") or "") if isinstance(answer, Mapping) else "The program left."

    def answer(self, request: str, result: Any) -> bool:
        """Whether it was asked for, by whoever."""
        future = self._open[request][0] if request in self._open else None
        if future is None or future.done():
            return False
        future.set_result(result)
        return True

    async def _ask(self, kind: str, data: dict[str, Any], asked: Sequence[Connection]) -> Any:
        request = new_id("ask")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._open[request] = future, asked
        try:
            for each in asked:
                self._announce(kind, {"requestId": request, **data}, each)
            return await future
        finally:
            del self._open[request]

    def _answering(self) -> list[Connection]:
        return [each for each, config in self._programs.items() if config.request_elicitation]
