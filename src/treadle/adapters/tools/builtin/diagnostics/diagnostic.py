"""One finding of a tool at one place of a file, and the text of a list of findings."""

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


def arranged(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Each once, by file and place; of two tools that say the same about a place, both are heard."""
    return sorted(
        set(diagnostics), key=lambda each: (each.path, each.line, each.column, _ORDER[each.severity], each.message)
    )


def bounded(diagnostics: Sequence[Diagnostic]) -> list[Diagnostic]:
    """At most so many, errors before the rest."""
    if len(diagnostics) <= MAX_SHOWN:
        return list(diagnostics)
    worst = sorted(diagnostics, key=lambda each: _ORDER[each.severity])[:MAX_SHOWN]
    return arranged(worst)


def count(diagnostics: Sequence[Diagnostic]) -> str:
    errors = sum(each.severity == "error" for each in diagnostics)
    warning_count = len(diagnostics) - errors
    parts = [f"{errors} {'error' if errors == 1 else 'errors'}"] if errors or not warning_count else []
    parts += [f"{warning_count} {'warning' if warning_count == 1 else 'warnings'}"] if warning_count else []
    return ", ".join(parts)


def _one_line(message: str) -> str:
    line = " ".join(message.split())
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    return printable if len(printable) <= _LONGEST else f"{printable[: _LONGEST - 1]}…"
