"""What is known of models by name: window, output limit, prices, habits (M-12). A table and one lookup; a model that
is not in it works with the safe defaults of `ModelInfo`."""

from treadle.ports.model import ModelInfo

OUTPUT_CAP = 32_768
"""No turn is given more room than this to answer, though models may offer more: what a call may cost is reserved
from it (L-11), and the window is shared with it (L-19)."""

# name: window, output limit, USD per million tokens (input, cached input, output), whether it takes a temperature
_OPENAI: dict[str, tuple[int, int, float, float, float, bool]] = {
    "gpt-4o": (128_000, 16_384, 2.5, 1.25, 10.0, True),
    "gpt-4o-mini": (128_000, 16_384, 0.15, 0.075, 0.6, True),
    "gpt-4.1": (1_047_576, 32_768, 2.0, 0.5, 8.0, True),
    "gpt-4.1-mini": (1_047_576, 32_768, 0.4, 0.1, 1.6, True),
    "gpt-4.1-nano": (1_047_576, 32_768, 0.1, 0.025, 0.4, True),
    "gpt-5": (400_000, 128_000, 1.25, 0.125, 10.0, False),
    "gpt-5-mini": (400_000, 128_000, 0.25, 0.025, 2.0, False),
    "gpt-5-nano": (400_000, 128_000, 0.05, 0.005, 0.4, False),
    "gpt-5.1": (400_000, 128_000, 1.25, 0.125, 10.0, False),
    "gpt-5.2": (400_000, 128_000, 1.75, 0.175, 14.0, False),
    "gpt-5.4": (1_050_000, 128_000, 2.5, 0.25, 15.0, False),
    "gpt-5.4-mini": (400_000, 128_000, 0.75, 0.075, 4.5, False),
    "gpt-5.4-nano": (400_000, 128_000, 0.2, 0.02, 1.25, False),
    "gpt-5.5": (1_050_000, 128_000, 5.0, 0.5, 30.0, False),
    "gpt-5.6": (1_050_000, 128_000, 5.0, 0.5, 30.0, False),
    "o3": (200_000, 100_000, 2.0, 0.5, 8.0, False),
    "o3-mini": (200_000, 100_000, 1.1, 0.55, 4.4, False),
    "o4-mini": (200_000, 100_000, 1.1, 0.275, 4.4, False),
}

KNOWN: dict[str, dict[str, tuple[int, int, float, float, float, bool]]] = {"openai": _OPENAI}


def look_up(provider: str, name: str) -> ModelInfo:
    """What is known of a model. A dated name (`gpt-4.1-2025-04-14`) is known by its stem."""
    known = KNOWN.get(provider, {})
    row = known.get(name)
    if row is None:
        stem, _, year = name.rpartition("-20")
        row = known.get(stem) if year[:2].isdigit() else None
    if row is None:
        return ModelInfo(provider, name)
    window, limit, fresh, cached, output, temperature = row
    return ModelInfo(
        provider,
        name,
        window=window,
        max_output=min(limit, OUTPUT_CAP),
        usd_per_million_input=fresh,
        usd_per_million_cached=cached,
        usd_per_million_output=output,
        temperature=0.1 if temperature else None,
    )


def known_refs() -> list[str]:
    """Every `provider:name` in the table."""
    return [f"{provider}:{name}" for provider, names in KNOWN.items() for name in names]
