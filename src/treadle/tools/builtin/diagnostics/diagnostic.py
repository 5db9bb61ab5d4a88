"""What a tool has to say about one place of a file, and how a list of that reads."""

from collections.abc import Iterable, Sequence
from typing import Literal

from treadle.ports.workspace import inert
from treadle.protocol.content import Value

Severity = Literal["error", "warning", "info"]
MAX_SHOWN = 100
_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}
_LONGEST = 400


class Diagnostic(Value, frozen=True):
    """Lines and columns count from 1; 0 is the file as a whole."""

    path: str
    line: int
    column: int
    severity: Severity
    message: str
    source: str
    code: str = ""

    @property
    def text(self) -> str:
        place = ":".join(str(part) for part in (inert(self.path), self.line, self.column) if part)
        code = f" {self.code}" if self.code else ""
        return f"{place}: {self.severity}{code}: {_one_line(self.message)} [{self.source}]"


def arranged(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Each once, by file and place; of two tools that say the same about a place, both are heard."""
    return sorted(set(found), key=lambda each: (each.path, each.line, each.column, _ORDER[each.severity], each.message))


def bounded(found: Sequence[Diagnostic]) -> list[Diagnostic]:
    """At most so many, errors before the rest."""
    if len(found) <= MAX_SHOWN:
        return list(found)
    worst = sorted(found, key=lambda each: _ORDER[each.severity])[:MAX_SHOWN]
    return arranged(worst)


def count(found: Sequence[Diagnostic]) -> str:
    errors = sum(each.severity == "error" for each in found)
    others = len(found) - errors
    parts = [f"{errors} {'error' if errors == 1 else 'errors'}"] if errors or not others else []
    parts += [f"{others} {'warning' if others == 1 else 'warnings'}"] if others else []
    return ", ".join(parts)


def _one_line(message: str) -> str:
    line = " ".join(message.split())
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
