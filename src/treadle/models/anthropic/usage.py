"""What an answer of the Messages API used, and what that cost. The API counts input in three parts: new, written to the
cache, which costs more, and read from it, which costs less. The neutral count has no place for the second, so the cost
is worked out here."""

import msgspec

from treadle.ports.model import ModelInfo
from treadle.protocol.content import Usage

CACHE_WRITE = 1.25
"""The price of input that is written to the cache for five minutes, as a multiple of that of new input."""
_LONG_PROMPTS: dict[str, tuple[int, float]] = {"claude-haiku-5-5": (100_000, 5.0)}
"""Models whose prompts above a length cost a multiple of the catalogue's prices."""


class Details(msgspec.Struct, gc=False):
    thinking_tokens: int | None = None


class Report(msgspec.Struct, gc=False):
    """A `usage` object of the wire. Counts are totals so far; what is missing has not changed."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: Details | None = None


class Counter:
    """Adds the reports of one answer up."""

    def __init__(self, info: ModelInfo) -> None:
        self._info = info
        self._new = self._output = self._read = self._written = self._thinking = 0

    def take(self, report: Report) -> Usage:
        self._new = _newer(report.input_tokens, self._new)
        self._output = _newer(report.output_tokens, self._output)
        self._read = _newer(report.cache_read_input_tokens, self._read)
        self._written = _newer(report.cache_creation_input_tokens, self._written)
        if report.output_tokens_details is not None:
            self._thinking = _newer(report.output_tokens_details.thinking_tokens, self._thinking)
        whole = self._new + self._read + self._written
        return Usage(whole, self._output, self._read, self._thinking, self._cost(whole))

    def _cost(self, whole: int) -> float:
        info = self._info
        above, factor = _LONG_PROMPTS.get(info.name, (0, 1.0))
        usd = (
            (self._new + CACHE_WRITE * self._written) * info.usd_per_million_input
            + self._read * (info.usd_per_million_cached or info.usd_per_million_input)
            + self._output * info.usd_per_million_output
        ) / 1_000_000
        return usd * factor if whole > above else usd


def _newer(reported: int | None, known: int) -> int:
    return known if reported is None else reported
