"""A model on this machine (M-15): no key, no network, one inference thread. Maps a request to the engine's chat
template and grammar, and what it writes to deltas. Loading waits for the first call."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any
from weakref import WeakSet

from treadle.adapters.models.base import ModelBase
from treadle.adapters.models.local import prompt as prompts
from treadle.adapters.models.local.answer import GrammarReader, PlainReader, answer_schema, reply_name
from treadle.adapters.models.local.process import EngineFault, EngineProcess
from treadle.adapters.models.local.weights import find_library, find_weights
from treadle.adapters.models.openai_chat.stream import usage_of
from treadle.adapters.models.provider_context import ProviderContext
from treadle.base.faultpoint import faultpoint
from treadle.errors import ConfigError, ModelError
from treadle.ports.model import Memo, ModelInfo, ModelRequest
from treadle.protocol.deltas import Delta, FinishDelta, NoticeDelta, UsageDelta

CHARS_PER_TOKEN = 3.0
"""Where the fitting begins; if the engine counts more tokens than there is room for, it is told how many."""
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
        self._told: WeakSet[Memo] = WeakSet()
        """The conversations of which it was told that they are shortened."""

    async def close(self) -> None:
        await self.engine.close()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        if notices := self._fit_effort(request)[1]:
            yield notices
        tools = () if request.rung == "plain" else request.tools or request.withdrawn
        withheld = request.withheld if request.tools else {tool.name for tool in tools}
        body = self._body(request)
        room = self._info.window - body["max_tokens"] - MARGIN_TOKENS
        chars = int(room * CHARS_PER_TOKEN)
        formal = prompts.is_formal(request.entries, tools)
        schema = answer_schema(tools, withheld) if formal else None
        for _ in range(TRIES):
            prompt = prompts.build(request.system, request.entries, tools, chars)
            body["messages"] = prompt.messages
            if prompt.shortened and request.memo not in self._told:
                self._told.add(request.memo)
                yield [_notice(self._info)]
            reader = GrammarReader(reply_name(tools)) if formal else PlainReader()
            try:
                async with aclosing(self._answer(body, schema, reader)) as answer:
                    async for deltas in answer:
                        yield deltas
                return
            except _TooLong as long:
                chars = int(prompt.chars * 0.9 * room / max(long.tokens, room + 1))
        raise ModelError(
            "context_limit", f"the conversation does not fit the {self._info.window} tokens of {self.info.ref}"
        )

    async def _answer(
        self, body: dict[str, Any], schema: dict[str, Any] | None, reader: GrammarReader | PlainReader
    ) -> AsyncGenerator[Sequence[Delta], None]:
        finish = ""
        faultpoint("models.local_asked")
        async with aclosing(self.engine.ask(body, schema)) as chunks:
            async for batch in chunks:
                piece = "".join(text for chunk in batch if (text := chunk.text))
                deltas: list[Delta] = reader.feed(piece) if piece else []
                for chunk in batch:
                    if chunk.error is not None:
                        raise self._failure(chunk.error)
                    finish = chunk.finish_reason or finish
                    if chunk.usage is not None:
                        deltas.append(UsageDelta(usage_of(chunk.usage)))
                yield deltas
        if not finish:
            raise ModelError("cut_stream", f"the answer of {self._info.ref} stopped before its end")
        faultpoint("models.streamed")
        yield [*reader.end(), FinishDelta("tool_calls" if finish == "stop" and reader.has_calls else finish)]

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        params = {
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,  # chunks while the prompt is read: between them a call can be stopped
            "cache_prompt": True,
            "temperature": self._temperature(request),
            "max_tokens": min(request.max_tokens or self._info.max_output, self._info.window // 2),
        }
        return {name: value for name, value in params.items() if value is not None}

    def _failure(self, fault: EngineFault) -> Exception:
        if fault.type == TOO_LONG:
            return _TooLong(fault.n_prompt_tokens)
        error_text = f"{self._info.ref}: {fault.message}"
        return ModelError("bad_request" if fault.code < 500 else "overloaded", error_text, status=fault.code)


def _notice(info: ModelInfo) -> NoticeDelta:
    text = f"The conversation is longer than the {info.window} tokens of {info.ref}: it sees a shortened one."
    return NoticeDelta("history_shortened", text)


def connect(name: str, context: ProviderContext) -> LocalModel:
    library = find_library(f"local:{name}")
    info, weights = find_weights(name, context.home)
    threads = context.env.get("TREADLE_LOCAL_THREADS", "").strip() or "1"
    if not threads.isdecimal() or int(threads) < 1:
        raise ConfigError(f"TREADLE_LOCAL_THREADS is {threads!r}; it must be a whole number from 1 on")
    return LocalModel(context.catalogue.adjust(info), weights, library, threads=int(threads))
