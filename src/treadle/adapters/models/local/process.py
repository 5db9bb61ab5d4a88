"""Manages the inference process: starts it when it is first needed, sends it one request at a time, and stops requests
without a reader. Knows the line protocol, not its meaning for a chat."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from treadle.adapters.models.openai_chat.stream import ChatChunk
from treadle.base.subprocesses import kill_group, start_program
from treadle.errors import ConfigError, ModelError

SIGN_OF_LIFE_S = 10.0
"""How often one who waits for the engine is told that it is still waited for."""
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
        choice = self.choices[0] if self.choices else None
        content = choice.delta.content if choice is not None and choice.delta is not None else None
        return content if isinstance(content, str) else ""

    @property
    def finish_reason(self) -> str | None:
        return self.choices[0].finish_reason if self.choices else None


class EngineProcess:
    """One model in one process with one place to work at: requests wait for each other."""

    def __init__(self, ref: str, weights: Path, library: Path, *, window: int, threads: int) -> None:
        self._ref = ref
        self._weights = weights
        self._settings = {
            "library": str(library),
            "weights": str(weights),
            "window": window,
            "threads": threads,
        }
        self._process: asyncio.subprocess.Process | None = None
        self._rest = b""
        self._loaded = False
        self._number = 0
        self._ended = 0
        """The last request whose end was heard; those after it may still have something to say."""
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
        while not await self._try_acquire():
            yield ()
        number = 0
        try:
            await self._start()
            while not self._loaded or self._ended < self._number:
                await self._read()
                yield ()
            self._number = number = self._number + 1
            self._order({"id": number, "body": body, "schema": schema})
            while self._ended < number:
                yield await self._read()
        finally:
            if self._ended < number:
                self._order({"stop": number})
            self._place.release()

    async def _try_acquire(self) -> bool:
        try:
            async with asyncio.timeout(SIGN_OF_LIFE_S):
                return await self._place.acquire()
        except TimeoutError:
            return False

    async def _start(self) -> None:
        if self._process is not None:
            return
        # Isolated, from a folder that is not writable and with few variables: no file of a project can be imported as a
        # module, and no key is passed on. In a session of its own, so that Ctrl-C reaches only this process.
        argv = [sys.executable, "-I", str(Path(__file__).with_name("engine.py"))]
        env = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        self._process = await start_program(argv, env, "/")
        self._rest, self._loaded, self._ended = b"", False, self._number
        self._order(self._settings)

    def _order(self, order: Mapping[str, Any]) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(msgspec.json.encode(order) + b"\n")

    async def _read(self) -> list[EngineChunk]:
        """Read the new output of the engine."""
        out = self._process.stdout if self._process is not None else None
        data = await out.read(READ_BYTES) if out is not None else b""
        if not data:
            await self._raise_process_lost()
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

    async def _raise_process_lost(self) -> NoReturn:
        process, loaded = self._process, self._loaded
        await self.close()
        code = process.returncode if process is not None else None
        if not loaded:
            raise ConfigError(f"{self._weights} cannot be loaded: its process ended with code {code}")
        raise ModelError("cut_stream", f"the process of {self._ref} ended with code {code} in the middle of an answer")

    async def close(self) -> None:
        """End the process. It ends by itself when its input does."""
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
