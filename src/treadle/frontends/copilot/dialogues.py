"""Requests between programs through the runtime: dialogues with a person (elicitation), and commands that one program
provides and another calls. Nothing of this is part of the chat, and it ends with the programs."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from treadle.base.jsonrpc.connection import Connection
from treadle.base.types import new_id
from treadle.frontends.copilot_words.config import Config


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
        """Descriptions of the commands, by name; for a duplicate name that of the program which came first."""
        all_commands = [each for config in self._programs.values() for each in config.commands or ()]
        return {each.name: each.description or "" for each in reversed(all_commands)}

    def tell_changes(self) -> None:
        """Announce changed capabilities and commands after a program came or left. A request whose programs have all
        left ends without an answer."""
        elicits, commands = bool(self._answering()), self.commands
        previous, self._told = self._told, (elicits, commands)
        if elicits != previous[0]:
            self._announce("capabilities.changed", self.capabilities)
        if commands != previous[1]:
            listed = [{"name": name, "description": about} for name, about in commands.items()]
            self._announce("commands.changed", {"commands": listed})
        for future, connections in list(self._open.values()):
            if not any(each in self._programs for each in connections) and not future.done():
                future.set_result(None)

    async def elicit(self, message: str, schema: Any) -> Any:
        """Ask a person through a program that can show a dialogue. Return the answer; `cancel` if there is no such
        program."""
        connections = self._answering()
        data = {"message": message, "requestedSchema": schema, "mode": "form"}
        answer = await self._ask("elicitation.requested", data, connections) if connections else None
        return answer if isinstance(answer, Mapping) and "action" in answer else {"action": "cancel"}

    async def execute(self, name: str, words: str) -> str:
        """Have a program carry its command out; why it could not, or nothing."""
        connections = [
            each for each, config in self._programs.items() if any(c.name == name for c in config.commands or ())
        ]
        if not connections:
            return f"There is no command {name}."
        data = {"commandName": name, "command": f"/{name} {words}".strip(), "args": words}
        answer = await self._ask("command.execute", data, connections[:1])
        return str(answer.get("error") or "") if isinstance(answer, Mapping) else "The program left."

    def answer(self, request: str, result: Any) -> bool:
        """Answer an open request. True if it was open."""
        future = self._open[request][0] if request in self._open else None
        if future is None or future.done():
            return False
        future.set_result(result)
        return True

    async def _ask(self, kind: str, data: dict[str, Any], connections: Sequence[Connection]) -> Any:
        request = new_id("ask")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._open[request] = future, connections
        try:
            for each in connections:
                self._announce(kind, {"requestId": request, **data}, each)
            return await future
        finally:
            del self._open[request]

    def _answering(self) -> list[Connection]:
        return [each for each, config in self._programs.items() if config.request_elicitation]
