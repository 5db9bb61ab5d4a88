"""Reasoning effort (M-16): how much a model is asked to think, in levels that all wires share. Which level a model
takes in place of another, which ones a server names when it refuses one, and the refusal for models that have none.
Each adapter writes a level in the words of its own protocol."""

import re
from collections.abc import Collection

from treadle.errors import ConfigError, InvalidInput
from treadle.ports.model import Models
from treadle.protocol.options import EFFORTS, ReasoningEffort

_LEVEL = re.compile(rf"(?<![\w-])({'|'.join(EFFORTS)})(?![\w-])", re.I)
_SUPPORTED = re.compile(
    r"supported values|support(?:s|ed)?\b.{0,20}:|one of|should be|must be|allowed|expected|only", re.I
)


def nearest(effort: ReasoningEffort, levels: Collection[ReasoningEffort]) -> ReasoningEffort:
    """The closest level; of two, the lower one, which costs less. Thinking is switched off only if asked for."""
    target = EFFORTS.index(effort)
    thinking = [level for level in levels if level != "none"] if effort != "none" else list(levels)
    return min(thinking or levels, key=lambda level: (abs(EFFORTS.index(level) - target), EFFORTS.index(level)))


def named_levels(sentence: str) -> tuple[ReasoningEffort, ...]:
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
