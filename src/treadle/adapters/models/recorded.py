"""Cassettes: recorded answers of a model, stored as JSONL and replayed (M-14). A line holds the digest of a request,
the name of the model, and its deltas; neither the request itself nor a key."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from treadle.adapters.models.base import ModelBase
from treadle.adapters.models.provider_context import ProviderContext
from treadle.base.file_system import reach_faultpoint
from treadle.errors import ConfigError, ModelError, ModelErrorKind, ScriptError
from treadle.ports.model import Model, ModelInfo, ModelRequest
from treadle.protocol import deltas as d
from treadle.protocol.content import UserEntry

_WORDS: dict[str, type[d.Delta]] = {
    **{"text": d.TextDelta, "thinking": d.ThinkingDelta, "block": d.ThinkingBlock, "call": d.CallDelta},
    **{"usage": d.UsageDelta, "finish": d.FinishDelta, "notice": d.NoticeDelta},
}
_WORD_OF = {kind: word for word, kind in _WORDS.items()}


class _Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: ModelErrorKind
    message: str
    status: int = 0
    retry_after: float | None = None


class _Take(msgspec.Struct, frozen=True, omit_defaults=True):
    request: str
    model: ModelInfo
    reads: list[list[tuple[str, msgspec.Raw]]]
    error: _Failure | None = None


_takes = msgspec.json.Decoder(_Take)


def compute_request_digest(request: ModelRequest) -> str:
    """Return a hash of the parts of a request that the model sees, without the positions in the log."""
    entries = [(entry.text, entry.images) if isinstance(entry, UserEntry) else entry for entry in request.entries]
    tools = [(tool.name, tool.description, tool.parameters) for tool in request.tools]
    effort = (request.effort,) if request.effort else ()  # cassettes from before it was known stay as they are
    content = (request.system, entries, tools, request.temperature, request.max_tokens, *effort)
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()


class RecordingModel:
    """Passes a model's answers through and adds each to a cassette when it has ended, well or not."""

    def __init__(self, inner: Model, path: str | Path) -> None:
        self._inner = inner
        self._path = Path(path)

    @property
    def info(self) -> ModelInfo:
        return self._inner.info

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[d.Delta]]:
        reads: list[list[tuple[str, msgspec.Raw]]] = []
        error: _Failure | None = None
        try:
            async for deltas in self._inner.stream(request):
                reads.append([(_WORD_OF[type(delta)], msgspec.Raw(msgspec.json.encode(delta))) for delta in deltas])
                yield deltas
        except ModelError as failed:
            error = _Failure(failed.kind, str(failed), failed.status, failed.retry_after)
            raise
        finally:
            if error is not None or (reads and reads[-1] and reads[-1][-1][0] == "finish"):
                take = _Take(compute_request_digest(request), self.info, reads, error)
                reach_faultpoint("models.record")
                with self._path.open("ab") as tape:
                    tape.write(msgspec.json.encode(take) + b"\n")

    async def close(self) -> None:
        await self._inner.close()


class RecordedModel(ModelBase):
    """Plays a cassette. Equal requests are answered in the order of their recording, the last answer repeatedly."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._takes: dict[str, list[_Take]] = {}
        self._played: dict[str, int] = {}
        try:
            lines = Path(path).read_bytes().splitlines()
            takes = [_takes.decode(line) for line in lines if line]
        except OSError as error:
            raise ConfigError(f"the cassette {path} cannot be read: {error.strerror or error}") from error
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{path} is no cassette: {error}") from error
        if not takes:
            raise ConfigError(f"the cassette {path} is empty; record something with RecordingModel first")
        for take in takes:
            self._takes.setdefault(take.request, []).append(take)
        super().__init__(takes[0].model)

    def assert_done(self) -> None:
        """Raise ScriptError if the cassette has answers that were never requested (M-14)."""
        unplayed = sum(max(0, len(takes) - self._played.get(key, 0)) for key, takes in self._takes.items())
        if unplayed:
            raise ScriptError(f"{unplayed} recorded answers of {self._path} were never asked for")

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[d.Delta]]:
        key = compute_request_digest(request)
        takes = self._takes.get(key)
        if takes is None:
            raise ScriptError(f"{self._path} has no answer to this request; record it again")
        number = self._played.get(key, 0)
        self._played[key] = number + 1
        take = takes[min(number, len(takes) - 1)]
        for read in take.reads:
            yield [msgspec.json.decode(body, type=_WORDS[word]) for word, body in read]
        if take.error is not None:
            failed = take.error
            raise ModelError(failed.kind, failed.message, status=failed.status, retry_after=failed.retry_after)


def connect(name: str, context: ProviderContext) -> RecordedModel:
    return RecordedModel(name)
