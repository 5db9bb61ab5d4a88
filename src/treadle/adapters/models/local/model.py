"""A model on this machine (M-15): no key, no network. Maps a request to the engine's chat template and grammar, and
what it writes to deltas. The inference process starts with the first call, gets one request at a time, and stops
requests without a reader."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

import msgspec

from treadle.adapters.models.base import ModelBase
from treadle.adapters.models.local import prompt as prompts
from treadle.adapters.models.local.prompt import GrammarReader, build_answer_schema, choose_reply_name
from treadle.adapters.models.local.weights import find_library, find_weights
from treadle.adapters.models.openai_chat.stream import ChatChunk, compute_usage
from treadle.adapters.models.provider_context import ProviderContext
from treadle.base.file_system import reach_faultpoint
from treadle.base.subprocesses import kill_group, start_program
from treadle.errors import ConfigError, ModelError
from treadle.ports.model import Memo, ModelInfo, ModelRequest
from treadle.protocol.deltas import Delta, FinishDelta, NoticeDelta, UsageDelta

SIGN_OF_LIFE_S = 10.0  # how often one who waits for the engine is told that it is still waited for
CLOSE_S = 2.0
READ_BYTES = 65_536
KEPT_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")


class EngineFault(msgspec.Struct, frozen=True):
    message: str = ""
    code: int = 500
    type: str = ""
    n_prompt_tokens: int = 0


class EngineChunk(ChatChunk):
    """One line of the engine: a chunk of Chat Completions, or a word of its own."""

    error: EngineFault | None = None
    ready: bool = False
    end: int = 0

    @property
    def text(self) -> str:
        content = self.choices[0].delta.content if self.choices and self.choices[0].delta is not None else None
        return content if isinstance(content, str) else ""


class EngineProcess:
    """One place to work at: requests wait for each other."""

    def __init__(self, ref: str, weights: Path, library: Path, *, window: int, threads: int) -> None:
        self._ref, self._weights = ref, weights
        self._settings = {"library": str(library), "weights": str(weights), "window": window, "threads": threads}
        self._process: asyncio.subprocess.Process | None = None
        self._rest = b""
        self._loaded = False
        self._number = 0
        self._ended = 0  # the last request whose end was heard; those after it may still have something to say
        self._place = asyncio.Lock()
        self._decoder = msgspec.json.Decoder(EngineChunk)

    @property
    def pid(self) -> int:
        """0 while there is no process."""
        return self._process.pid if self._process is not None else 0

    async def ask(
        self, body: Mapping[str, Any], schema: Mapping[str, Any] | None = None
    ) -> AsyncGenerator[Sequence[EngineChunk], None]:
        """The chunks of one answer, in batches as they were read. An empty batch is a sign of life. Closing the
        iterator stops the answer; it does not wait for that."""
        number, has_place = 0, False
        while not has_place:
            with suppress(TimeoutError):
                async with asyncio.timeout(SIGN_OF_LIFE_S):
                    has_place = await self._place.acquire()
            if not has_place:
                yield ()
        try:
            await self._start()
            while not self._loaded or self._ended < self._number:
                await self._read()
                yield ()
            self._number = number = self._number + 1
            self._send_order({"id": number, "body": body, "schema": schema})
            while self._ended < number:
                yield await self._read()
        finally:
            if self._ended < number:
                self._send_order({"stop": number})
            self._place.release()

    async def _start(self) -> None:
        if self._process is not None:
            return
        # Isolated, from a folder that is not writable and with few variables: no file of a project can be imported as a
        # module, and no key is passed on. In a session of its own, so that Ctrl-C reaches only this process.
        argv = [sys.executable, "-I", str(Path(__file__).with_name("engine.py"))]
        env = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        self._process = await start_program(argv, env, "/")
        self._rest, self._loaded, self._ended = b"", False, self._number
        self._send_order(self._settings)

    def _send_order(self, order: Mapping[str, Any]) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(msgspec.json.encode(order) + b"\n")

    async def _read(self) -> list[EngineChunk]:
        out = self._process.stdout if self._process is not None else None
        data = await out.read(READ_BYTES) if out is not None else b""
        if not data:
            process, loaded = self._process, self._loaded
            await self.close()
            code = process.returncode if process is not None else None
            if not loaded:
                raise ConfigError(f"{self._weights} cannot be loaded: its process ended with code {code}")
            message = f"the process of {self._ref} ended with code {code} in the middle of an answer"
            raise ModelError("cut_stream", message)
        *lines, self._rest = (self._rest + data).split(b"\n")
        chunks = [self._decoder.decode(line) for line in lines]
        for chunk in chunks:
            self._loaded = self._loaded or chunk.ready
            self._ended = max(self._ended, chunk.end)
            if chunk.error is not None and not self._loaded:
                await self.close()
                raise ConfigError(
                    f"{self._weights} cannot be loaded: {chunk.error.message.strip()} Is there enough memory, and is "
                    "it a whole GGUF file? One that was fetched can be deleted and fetched again."
                )
        return chunks

    async def close(self) -> None:
        process, self._process, self._loaded = self._process, None, False
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await process.wait()
        kill_group(process.pid)
        await process.wait()


CHARS_PER_TOKEN = 3.0  # where the fitting begins; the engine tells its count if that is too much
MARGIN_TOKENS = 16
TRIES = 4
TOO_LONG = "exceed_context_size_error"


class _TooLong(Exception):
    def __init__(self, tokens: int) -> None:
        super().__init__(f"the prompt has {tokens} tokens")
        self.tokens = tokens


class LocalModel(ModelBase):
    def __init__(self, info: ModelInfo, weights: Path, library: Path, *, threads: int = 1) -> None:
        super().__init__(info)
        self.engine = EngineProcess(info.ref, weights, library, window=info.window, threads=threads)
        self._told: WeakSet[Memo] = WeakSet()  # the conversations with a notice that they are shortened

    async def close(self) -> None:
        await self.engine.close()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        if notices := self._fit_effort(request)[1]:
            yield notices
        tools = () if request.rung == "plain" else request.tools or request.withdrawn
        withheld = request.withheld if request.tools else {tool.name for tool in tools}
        params: dict[str, Any] = {
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,  # chunks while the prompt is read: between them a call can be stopped
            "cache_prompt": True,
            "temperature": self._choose_temperature(request),
            "max_tokens": min(request.max_tokens or self._info.max_output, self._info.window // 2),
        }
        body = {name: value for name, value in params.items() if value is not None}
        room = self._info.window - body["max_tokens"] - MARGIN_TOKENS
        chars = int(room * CHARS_PER_TOKEN)
        formal = prompts.is_formal(request.entries, tools)
        schema = build_answer_schema(tools, withheld) if formal else None
        for _ in range(TRIES):
            prompt = prompts.build(request.system, request.entries, tools, chars)
            body["messages"] = prompt.messages
            if prompt.shortened and request.memo not in self._told:
                self._told.add(request.memo)
                text = f"The conversation is longer than the {self._info.window} tokens of {self._info.ref}"
                yield [NoticeDelta("history_shortened", f"{text}: it sees a shortened one.")]
            reader = GrammarReader(choose_reply_name(tools) if formal else "")
            try:
                async with aclosing(self._stream_answer(body, schema, reader)) as answer:
                    async for deltas in answer:
                        yield deltas
                return
            except _TooLong as long:
                chars = int(prompt.chars * 0.9 * room / max(long.tokens, room + 1))
        message = f"the conversation does not fit the {self._info.window} tokens of {self._info.ref}"
        raise ModelError("context_limit", message)

    async def _stream_answer(
        self, body: dict[str, Any], schema: dict[str, Any] | None, reader: GrammarReader
    ) -> AsyncGenerator[Sequence[Delta], None]:
        finish = ""
        reach_faultpoint("models.local_asked")
        async with aclosing(self.engine.ask(body, schema)) as chunks:
            async for batch in chunks:
                piece = "".join(text for chunk in batch if (text := chunk.text))
                deltas: list[Delta] = reader.feed(piece) if piece else []
                for chunk in batch:
                    if chunk.error is not None:
                        raise self._make_error(chunk.error)
                    finish = (chunk.choices[0].finish_reason if chunk.choices else None) or finish
                    if chunk.usage is not None:
                        deltas.append(UsageDelta(compute_usage(chunk.usage)))
                yield deltas
        if not finish:
            raise ModelError("cut_stream", f"the answer of {self._info.ref} stopped before its end")
        reach_faultpoint("models.streamed")
        yield [*reader.end(), FinishDelta("tool_calls" if finish == "stop" and reader.has_calls else finish)]

    def _make_error(self, fault: EngineFault) -> Exception:
        if fault.type == TOO_LONG:
            return _TooLong(fault.n_prompt_tokens)
        error_text = f"{self._info.ref}: {fault.message}"
        return ModelError("bad_request" if fault.code < 500 else "overloaded", error_text, status=fault.code)


def connect(name: str, context: ProviderContext) -> LocalModel:
    library = find_library(f"local:{name}")
    info, weights = find_weights(name, context.home)
    threads = context.env.get("TREADLE_LOCAL_THREADS", "").strip() or "1"
    if not threads.isdecimal() or int(threads) < 1:
        raise ConfigError(f"TREADLE_LOCAL_THREADS is {threads!r}; it must be a whole number from 1 on")
    return LocalModel(context.catalogue.adjust(info), weights, library, threads=int(threads))
