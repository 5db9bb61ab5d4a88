"""`treadle models`: what can be used with the keys at hand, what is known of it, and what is missing for the rest
(M-12). Nothing is asked of any network unless `--remote` says so."""

import os
import sys
from collections.abc import Sequence

import msgspec

from treadle.cli.inert import inert_line
from treadle.cli.session import configured, warn
from treadle.cli.terminal import Terminal
from treadle.errors import ConfigError, ModelError
from treadle.models.local import weights as local
from treadle.models.offering import Offer, State, all_offers, model_state, provider_state, usable
from treadle.models.registry import ModelRegistry
from treadle.ports.model import ModelInfo

REMOTE_S = 10.0
"""How long a server may take for its list."""


def list_models(*, everything: bool, remote: bool, as_json: bool) -> int:
    registry = ModelRegistry(os.environ, home=configured().home)
    warn(registry.catalogue.warnings)
    offers = all_offers(registry)
    if remote:
        import asyncio

        asyncio.run(_ask(registry, offers))
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(_object(registry, offers, everything)) + b"\n")
    else:
        _print(Terminal(), registry, offers, everything)
        _print_states(Terminal(), registry, offers, remote)
    return 0


async def _ask(registry: ModelRegistry, offers: Sequence[Offer]) -> None:
    """Replace what is known by what the servers say, all at once; a server that fails costs only its own list."""
    import asyncio

    async def ask(offer: Offer) -> None:
        try:
            async with asyncio.timeout(REMOTE_S):
                listed = await registry.ask(offer.provider)
        except TimeoutError:
            offer.failure = f"no answer within {REMOTE_S:g} seconds"
        except (ConfigError, ModelError) as error:
            offer.failure = str(error)
        else:
            offer.asked = listed is not None
            offer.models = offer.models if listed is None else listed

    await asyncio.gather(*(ask(offer) for offer in offers if not offer.why))
    await registry.close()


def _object(registry: ModelRegistry, offers: Sequence[Offer], everything: bool) -> dict[str, object]:
    models = []
    for offer in offers:
        for info in offer.models:
            why = usable(registry, offer, info)
            if everything or not why:
                state = model_state(registry, offer, info)
                models.append(_described(info) | {"usable": not why, "why": why, "state": state})
    providers = {
        offer.provider: {
            "usable": not offer.why,
            "why": offer.why,
            "asked": offer.asked,
            "failure": offer.failure,
            "state": provider_state(registry, offer),
        }
        for offer in offers
    }
    return {"models": models, "providers": providers}


def _described(info: ModelInfo) -> dict[str, object]:
    """In the words of the user's own file."""
    return {
        "model": info.ref,
        "window": info.window,
        "max_output": info.max_output,
        "price_input": info.usd_per_million_input,
        "price_cached": info.usd_per_million_cached,
        "price_output": info.usd_per_million_output,
        "temperature": False if info.temperature is None else info.temperature,
        "native_tools": info.native_tools,
        "thinking": info.thinking,
        "vision": info.vision,
    }


HEADER = ("model", "window", "output", "$ in", "$ cached", "$ out", "can")
MARKS = {"missing": ["(not ready)"], "failed": ["(failed when asked)"]}
LOCALLY = "its weights are on this machine"


def _print(terminal: Terminal, registry: ModelRegistry, offers: Sequence[Offer], everything: bool) -> None:
    rows = [
        _row(info, model_state(registry, offer, info))
        for offer in offers
        for info in offer.models
        if everything or not usable(registry, offer, info)
    ]
    if rows:
        _table(terminal, rows)
        terminal.line(terminal.paint("Prices in USD for a million tokens, where they are known.", "dim"))


def _print_states(terminal: Terminal, registry: ModelRegistry, offers: Sequence[Offer], remote: bool) -> None:
    """What is known of the providers, and how: nothing is called ready that was not looked at."""
    ready: dict[str, str] = {}
    missing: dict[str, str] = {}
    for offer in offers:
        if offer.why:
            missing[offer.provider] = offer.why
        elif offer.asked:
            ready[offer.provider] = f"answered just now; models: {len(offer.models)}"
        else:  # models on this machine are there one by one
            found = {info.ref: usable(registry, offer, info) for info in offer.models}
            missing |= {ref: why for ref, why in found.items() if why}
            ready |= {ref: LOCALLY for ref, why in found.items() if not why and offer.provider == local.PROVIDER}
    _pairs(terminal, "Ready:", ready)
    unasked = [offer.provider for offer in offers if provider_state(registry, offer) == "not asked"]
    if unasked:
        how = "they cannot be" if remote else "--remote asks whether their servers answer and take the key"
        terminal.line(f"\nNot asked: {', '.join(unasked)} ({how})")
    _pairs(terminal, "Failed when asked:", {o.provider: o.failure for o in offers if o.failure})
    _pairs(terminal, "Not ready:", missing)
    if not ready and not unasked:
        terminal.note("no model can be used yet; see above what is missing")


def _row(info: ModelInfo, state: State) -> tuple[str, ...]:
    prices = (info.usd_per_million_input, info.usd_per_million_cached, info.usd_per_million_output)
    known = any(prices)
    can = {"tools": info.native_tools, "thinking": info.thinking, "vision": info.vision}
    traits = [name for name, has in can.items() if has] + MARKS.get(state, [])
    shown = (f"{price:.4g}" if known else "" for price in prices)
    return (inert_line(info.ref), _tokens(info.window), _tokens(info.max_output), *shown, " ".join(traits))


def _tokens(count: int) -> str:
    return f"{count / 1e6:.3g}M" if count >= 1_000_000 else f"{count / 1000:.0f}k"


def _table(terminal: Terminal, rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(HEADER, *rows, strict=True)]
    for number, row in enumerate([HEADER, *rows]):
        cells = [
            f"{row[0]:{widths[0]}}",
            *(f"{cell:>{width}}" for cell, width in zip(row[1:6], widths[1:6], strict=True)),
        ]
        line = "  ".join([*cells, row[6]]).rstrip()
        terminal.line(terminal.paint(line, "bold") if not number else line)


def _pairs(terminal: Terminal, title: str, pairs: dict[str, str]) -> None:
    if pairs:
        width = max(map(len, pairs))
        terminal.line(f"\n{title}")
        for name, text in pairs.items():
            terminal.line(f"  {inert_line(name):{width}}  {terminal.paint(inert_line(text), 'dim')}")
