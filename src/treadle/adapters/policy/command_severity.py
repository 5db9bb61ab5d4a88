"""The severity of a shell command, judged by its text alone (S-04). Stable: `classify`, `parts`, `outside`.

Nothing is run and no file is read. Literal words, quotes, wrappers, lists, pipes and nested shells are parsed. Words
that are not literal are unknown; their effect is judged elsewhere, on a view. A text that cannot be parsed is high.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from treadle.adapters.policy.shell.idioms import ruin
from treadle.adapters.policy.shell.model import RANK, Finding, Part, Rating, Severity, worst
from treadle.adapters.policy.shell.outside import leading_out
from treadle.adapters.policy.shell.run import Record, Scope, ShellMemory, TooMuch
from treadle.adapters.policy.shell.walk import Walker

__all__ = ["Finding", "Part", "Severity", "classify", "outside", "parts", "parts_with_values"]

_MOST_CHARS = 200_000
_MOST_ROUNDS = 3
"""How often a value may hold a variable itself."""
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\ue002]")


def classify(command: str) -> Finding:
    """The highest severity of all parts, with the reasons for it first."""
    record = _read(command)
    ratings = [*record.notes, *(Rating(part.severity, reason) for part in record.parts for reason in part.reasons)]
    ordered = sorted(ratings, key=lambda each: -RANK[each.severity])
    reasons = tuple(dict.fromkeys(each.reason for each in ordered))
    network = any(part.network for part in record.parts) or any(note.network for note in record.notes)
    return Finding(worst(each.severity for each in ratings), reasons, network)


def parts(command: str) -> tuple[Part, ...]:
    """Each simple command that would run, wrapped and nested ones, too. A text that cannot be read to its end has a
    last part without a program that is unknown, so that nothing that must cover every part can cover it."""
    record = _read(command)
    worries = [note for note in record.notes if note.severity != "none"]
    if not worries:
        return tuple(record.parts)
    severity = worst(note.severity for note in worries)
    reasons = tuple(dict.fromkeys(note.reason for note in worries))
    return (*record.parts, Part("", (), unknown=True, severity=severity, reasons=reasons))


def parts_with_values(command: str) -> tuple[Part, ...]:
    """The parts of the command with its own variables replaced by the values that it gives them; empty if it sets none.
    Order and branches are not followed: the answer is good enough to refuse a command, never to allow one."""
    text = command
    for _ in range(_MOST_ROUNDS):
        expanded_text = _with_values(text, dict(_read(text).variables))
        if expanded_text == text or len(expanded_text) > _MOST_CHARS:
            break
        text = expanded_text
    return parts(text) if text != command else ()


def _with_values(text: str, values: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda match: values.get(match[1] or match[2], match[0]), text)


def outside(command: str, root: str, cwd: str) -> tuple[str, ...]:
    """The words by which a command leaves the project (S-15): a `..` among a path's names, or an absolute path that
    lies neither below the root nor where every system keeps its programs."""
    record = _read(command)
    return leading_out(command, tuple(record.words), record.failed, root)


def forget() -> None:
    """Drops what is remembered of the last commands; only a measurement needs that."""
    _read.cache_clear()


@lru_cache(maxsize=256)
def _read(command: str) -> Record:
    record = Record()
    if _UNSEEN.search(command):
        record.note("high", "it holds characters that cannot be seen")
        command = _UNSEEN.sub("", command.replace("\r\n", "\n"))
    try:
        if len(command) > _MOST_CHARS:
            raise TooMuch("it is longer than is looked at")
        Walker(record, ShellMemory(), Scope()).text(command)
    except (TooMuch, RecursionError) as problem:
        record.fail(f"it cannot be followed to its end: {problem}")
    if record.failed or record.unseen:
        record.notes += ruin(command)
    _together(record)
    return record


def _together(record: Record) -> None:
    """Raise the severity for parts that are dangerous only together: printing the environment and using the network."""
    shows = any("environment" in reason for part in record.parts for reason in part.reasons)
    if shows and any(part.network for part in record.parts):
        record.note("high", "may send the environment, with its secrets, over the network")
