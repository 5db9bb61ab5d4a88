"""What adapters have in common: a model that is known by its `ModelInfo`. Knows no provider and no protocol."""

from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.deltas import NoticeDelta


class ModelBase:
    """One model. Subclasses add `stream`."""

    def __init__(self, info: ModelInfo) -> None:
        self._info = info

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._info.ref!r})"

    @property
    def info(self) -> ModelInfo:
        return self._info

    async def close(self) -> None:
        """Nothing is held open, unless a subclass does."""

    def _temperature(self, request: ModelRequest) -> float | None:
        """The request's own, else the catalogue's; None sends none."""
        return self._info.temperature if request.temperature is None else request.temperature

    def _notice(self, kind: str, text: str) -> NoticeDelta:
        return NoticeDelta(kind, f"{self._info.ref} {text}")
