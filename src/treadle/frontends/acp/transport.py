"""Messages of an editor, one a line. A line that is no message is answered with an error here: the protocol's library
would end the connection."""

import asyncio
from typing import Any

import msgspec
from acp.stdio import stdio_streams

from treadle.frontends.acp.failures import INVALID_REQUEST

PARSE_ERROR = -32700
LONGEST_LINE = 64 * 1024 * 1024


class CheckedLines:
    """Implements the library's `Transport`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sending = asyncio.Lock()

    @classmethod
    async def open_stdio(cls) -> "CheckedLines":
        return cls(*await stdio_streams(limit=LONGEST_LINE))

    async def send(self, message: dict[str, Any]) -> None:
        async with self._sending:
            self._writer.write(msgspec.json.encode(message) + b"\n")
            await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None at the end, and behind a line that is too long to be one."""
        while True:
            try:
                line = await self._reader.readline()
            except ValueError:
                await self._refuse(PARSE_ERROR, f"a line has more than {LONGEST_LINE} bytes")
                return None
            if not line:
                return None
            if not line.strip():
                continue
            try:
                message = msgspec.json.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                await self._refuse(PARSE_ERROR, f"a line is no JSON: {error}")
                continue
            if (problem := _problem(message)) == "":
                return dict(message)
            await self._refuse(INVALID_REQUEST, problem)

    async def close(self) -> None:
        self._writer.close()

    async def _refuse(self, code: int, text: str) -> None:
        await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}})


def _problem(message: Any) -> str:
    """Why this is no message; empty if it is one."""
    if not isinstance(message, dict):
        return "a message is no object; batches are not supported"
    number, method, error = message.get("id"), message.get("method"), message.get("error")
    if isinstance(number, bool) or not isinstance(number, str | int | float | None):
        return "the id of a message is neither text nor a number"
    if "method" in message and not isinstance(method, str):
        return "the method of a request is no text"
    if not isinstance(error, dict | None) or (error and not isinstance(error.get("code", 0), int)):
        return "the error of an answer is no object with a code"
    return ""
