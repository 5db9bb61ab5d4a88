"""The common base of adapters: a model described by its `ModelInfo`, and its reasoning effort (M-16), in levels that
all wires share: which level a model takes in place of another, and which ones a server names when it refuses one. Each
adapter writes a level in the words of its own protocol."""

import re
from collections.abc import Collection
from typing import Literal
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from treadle.errors import ConfigError, InvalidInput
from treadle.ports.model import Memo, ModelInfo, ModelRequest, Models
from treadle.protocol.deltas import NoticeDelta
from treadle.protocol.options import EFFORTS, ReasoningEffort

_LEVEL = re.compile(rf"(?<![\w-])({'|'.join(EFFORTS)})(?![\w-])", re.I)
_SUPPORTED = re.compile(
    r"supported values|support(?:s|ed)?\b.{0,20}:|one of|should be|must be|allowed|expected|only", re.I
)


def choose_nearest(effort: ReasoningEffort, levels: Collection[ReasoningEffort]) -> ReasoningEffort:
    """The closest level; of two, the lower one, which costs less. Thinking is switched off only if asked for."""
    target = EFFORTS.index(effort)
    thinking = [level for level in levels if level != "none"] if effort != "none" else list(levels)
    return min(thinking or levels, key=lambda level: (abs(EFFORTS.index(level) - target), EFFORTS.index(level)))


def parse_levels(sentence: str) -> tuple[ReasoningEffort, ...]:
    """The levels that a server says it takes, in a sentence with which it refuses another one. Empty: it names none."""
    start = _SUPPORTED.search(sentence)
    if start is None:
        return ()
    level_names = {match[1].lower() for match in _LEVEL.finditer(sentence, start.start())}
    return tuple(level for level in EFFORTS if level in level_names)


def check_effort(models: Models, ref: str, effort: str) -> None:
    """InvalidInput if a caller asks for an effort of a model that is known to have none."""
    if effort not in EFFORTS or effort == "none":  # a model without reasoning does none
        return
    try:
        info = models.get(ref).info
    except ConfigError:
        return  # said when the model is used
    if info.efforts == ():
        raise InvalidInput(
            f"{info.ref} has no reasoning effort; leave out reasoning_effort ({effort}), or choose another model."
        )


class ModelBase:
    def __init__(self, info: ModelInfo) -> None:
        self._info = info
        self._server_efforts: tuple[ReasoningEffort, ...] | None = None  # those that the server named in a refusal
        # By conversation: the effort of which it was told that another is sent instead, or none.
        self._told_efforts: WeakKeyDictionary[Memo, str] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._info.ref!r})"

    @property
    def info(self) -> ModelInfo:
        return self._info

    async def close(self) -> None:
        """Nothing is held open, unless a subclass does."""

    def _choose_temperature(self, request: ModelRequest) -> float | None:
        """The request's own, else the catalogue's; None sends none."""
        return self._info.temperature if request.temperature is None else request.temperature

    def _fit_effort(self, request: ModelRequest) -> tuple[ModelRequest, list[NoticeDelta]]:
        """The request with an effort that the model takes, and once a notice if it is another than asked for (M-16)."""
        effort = request.effort
        levels = self._info.efforts if self._server_efforts is None else self._server_efforts
        if not effort or levels is None or effort in levels:
            return request, []
        fitted_effort: ReasoningEffort | Literal[""] = choose_nearest(effort, levels) if levels else ""
        text = f"takes the reasoning efforts {', '.join(levels)}; it is asked for {fitted_effort} instead of {effort}"
        if not fitted_effort:
            text = f"has no reasoning effort; it goes on without {effort}"
        is_news = effort != "none" or bool(fitted_effort)
        notices = (
            [self._make_notice("effort", text)] if is_news and self._told_efforts.get(request.memo) != effort else []
        )
        self._told_efforts[request.memo] = effort
        return replace(request, effort=fitted_effort), notices

    def _make_notice(self, kind: str, text: str) -> NoticeDelta:
        return NoticeDelta(kind, f"{self._info.ref} {text}")
