"""What both floors share: a hand loop that does no more than it must. Messages are encoded once and kept as bytes; an
optional log is one SQLite row a message and one commit a step. The floors differ only in how they read a stream."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

import msgspec
from harness import Setting, done

TOOLS = (
    b'[{"type":"function","function":{"name":"noop","description":"Do nothing.","parameters":'
    b'{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}}]'
)
encode = msgspec.json.Encoder().encode


class Function(msgspec.Struct):
    name: str | None = None
    arguments: str = ""


class Call(msgspec.Struct):
    function: Function
    index: int = 0
    id: str | None = None


class Delta(msgspec.Struct):
    content: str | None = None
    tool_calls: list[Call] | None = None


class Choice(msgspec.Struct):
    delta: Delta
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    choices: list[Choice] = []


class NoopArguments(msgspec.Struct):
    n: int


decode_chunk = msgspec.json.Decoder(Chunk).decode
decode_noop = msgspec.json.Decoder(NoopArguments).decode


class Wire(Protocol):
    """Posts a request body; yields what each read brought, free of HTTP framing."""

    def post(self, body: bytes) -> AsyncIterator[bytes]: ...


class Log:
    """The least that survives a power cut: a row a message, a commit a step."""

    def __init__(self, path: Path) -> None:
        self.commits = 0
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;")
        self._database.execute("CREATE TABLE IF NOT EXISTS log (chat TEXT, seq INTEGER PRIMARY KEY, body BLOB)")

    def append(self, chat: str, messages: list[bytes]) -> None:
        self._database.execute("BEGIN")
        self._database.executemany("INSERT INTO log (chat, body) VALUES (?, ?)", [(chat, body) for body in messages])
        self._database.execute("COMMIT")
        self.commits += 1

    def read(self, chat: str) -> list[bytes]:
        return [row[0] for row in self._database.execute("SELECT body FROM log WHERE chat = ? ORDER BY seq", (chat,))]

    def close(self) -> None:
        self._database.close()


class FloorChat:
    def __init__(self, wire: Wire, model: str, name: str, log: Log | None) -> None:
        self._wire = wire
        self._name = name
        self._log = log
        self._messages = log.read(name) if log else []
        self._prefix = b'{"model":%b,"stream":true,"tools":%b,"messages":[' % (encode(model), TOOLS)

    def _keep(self, messages: list[bytes]) -> None:
        if self._log:
            self._log.append(self._name, messages)
        self._messages += messages

    async def send(self, text: str) -> AsyncIterator[str]:
        self._keep([encode({"role": "user", "content": text})])
        while True:
            texts: list[str] = []
            calls: list[Call] = []
            async for piece in self._turn(calls):
                texts.append(piece)
                yield piece
            message: dict[str, object] = {"role": "assistant", "content": "".join(texts)}
            if not calls:
                self._keep([encode(message)])
                return
            message["tool_calls"] = [{"id": call.id, "type": "function", "function": call.function} for call in calls]
            self._keep([encode(message)])
            self._keep([_answer(call) for call in calls])

    async def _turn(self, calls: list[Call]) -> AsyncIterator[str]:
        rest = b""
        async for data in self._wire.post(self._prefix + b",".join(self._messages) + b"]}"):
            *events, rest = (rest + data).split(b"\n\n")
            for event in events:
                if event == b"data: [DONE]":
                    return
                for choice in decode_chunk(event[6:]).choices:
                    if choice.delta.content:
                        yield choice.delta.content
                    for call in choice.delta.tool_calls or ():
                        if call.id:
                            calls.append(call)
                        else:
                            calls[call.index].function.arguments += call.function.arguments


def _answer(call: Call) -> bytes:
    return encode({"role": "tool", "tool_call_id": call.id, "content": done(decode_noop(call.function.arguments).n)})


class Floor:
    """A contestant from a way to open a wire for each chat."""

    def __init__(self, setting: Setting, open_wire: Callable[[], Wire]) -> None:
        self._open_wire = open_wire
        self._log = Log(setting.folder / "floor.db") if setting.durable else None

    async def chat(self, model: str, name: str) -> FloorChat:
        return FloorChat(self._open_wire(), model, name, self._log)

    def commits(self) -> int:
        return self._log.commits if self._log else 0

    async def close(self) -> None:
        if self._log:
            self._log.close()
