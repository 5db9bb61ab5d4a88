"""The common base of adapters: a model described by its `ModelInfo`. Knows no provider and no protocol."""

from typing import Literal
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from treadle.adapters.models.reasoning_effort import nearest
from treadle.ports.model import Memo, ModelInfo, ModelRequest
from treadle.protocol.deltas import NoticeDelta
from treadle.protocol.options import ReasoningEffort


class ModelBase:
    """One model. Subclasses add `stream`."""

    def __init__(self, info: ModelInfo) -> None:
        self._info = info
        self._server_efforts: tuple[ReasoningEffort, ...] | None = None
        """The levels of reasoning effort that the server itself named, when it refused another one."""
        self._told_efforts: WeakKeyDictionary[Memo, str] = WeakKeyDictionary()
        """By conversation: the effort of which it was told that another is sent instead, or none."""

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

    def _fit_effort(self, request: ModelRequest) -> tuple[ModelRequest, list[NoticeDelta]]:
        """The request with an effort that the model takes, and once a notice if it is another than asked for (M-16)."""
        effort = request.effort
        levels = self._info.efforts if self._server_efforts is None else self._server_efforts
        if not effort or levels is None or effort in levels:
            return request, []
        fitted_effort: ReasoningEffort | Literal[""] = nearest(effort, levels) if levels else ""
        text = f"takes the reasoning efforts {', '.join(levels)}; it is asked for {fitted_effort} instead of {effort}"
        if not fitted_effort:
            text = f"has no reasoning effort; it goes on without {effort}"
        is_news = effort != "none" or bool(fitted_effort)
        notices = [self._notice("effort", text)] if is_news and self._told_efforts.get(request.memo) != effort else []
        self._told_efforts[request.memo] = effort
        return replace(request, effort=fitted_effort), notices

    def _notice(self, kind: str, text: str) -> NoticeDelta:
        return NoticeDelta(kind, f"{self._info.ref} {text}")
