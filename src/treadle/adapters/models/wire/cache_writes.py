"""The cost of input that is written to a provider's cache, which is dearer than other input (L-11)."""

from msgspec.structs import replace

from treadle.ports.model import ModelInfo
from treadle.protocol.content import Usage

CACHE_WRITE = 1.25
"""The price of input that is written to the cache for minutes, as a multiple of that of new input. Anthropic and OpenAI
take the same."""


def price_with_writes(usage: Usage, written_tokens: int, info: ModelInfo) -> Usage:
    """The usage of a call with its cost, if a part of its input was written to the cache and the provider did not tell
    the cost itself."""
    if not written_tokens or usage.usd or not info.has_price:
        return usage
    fresh = max(0, usage.input - usage.cached - written_tokens)
    usd = (
        (fresh + CACHE_WRITE * written_tokens) * info.usd_per_million_input
        + usage.cached * (info.usd_per_million_cached or info.usd_per_million_input)
        + usage.output * info.usd_per_million_output
    ) / 1_000_000
    return replace(usage, usd=usd)
