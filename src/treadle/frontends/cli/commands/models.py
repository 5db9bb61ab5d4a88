"""`treadle models`: the models that are usable with the present keys, their properties, and the missing parts of the
others (M-12); `treadle models fetch` downloads models. Only `--remote` and `fetch` use the network."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from treadle.base.inert import make_inert_line
from treadle.errors import ConfigError, InvalidInput, ModelError
from treadle.frontends.cli.lazy import asyncio, model_registry, session
from treadle.frontends.cli.options import add_json_option
from treadle.frontends.cli.terminal import Terminal, write_json
from treadle.frontends.presentation.styled import Span, join_spans

if TYPE_CHECKING:
    from treadle.adapters.models.local.weights import Weights
    from treadle.adapters.models.registry import ModelRegistry
    from treadle.ports.model import ModelInfo

    Listed = list[tuple[ModelInfo, str, model_registry.State]]  # a model, why it cannot be used, and its state

REMOTE_S = 10.0  # how long a server may take for its list
HEADER = ("model", "window", "output", "$ in", "$ cached", "$ out", "can")
FIELDS = {
    **{"model": "ref", "window": "window", "max_output": "max_output", "price_input": "usd_per_million_input"},
    **{"price_cached": "usd_per_million_cached", "price_output": "usd_per_million_output"},
    **{name: name for name in ("temperature", "native_tools", "thinking", "efforts", "vision")},
}
MARKS = {"missing": ["(not ready)"], "failed": ["(failed when asked)"]}


@click.group("models", invoke_without_command=True)
@click.option("--all", "everything", is_flag=True, help="Also list models that cannot be used now.")
@click.option("--remote", is_flag=True, help="Ask the providers for their lists of models.")
@add_json_option("Print one JSON object.")
@click.pass_context
def models(context: click.Context, everything: bool, remote: bool, as_json: bool) -> None:
    """List the models that can be used, or get one that runs on this machine.

    Without --remote nothing is asked of any network: it lists the models that are known by name."""
    if context.invoked_subcommand is not None:
        return
    registry = model_registry.ModelRegistry(os.environ, home=session.load_config().home)
    session.warn(registry.catalogue.warnings)
    offers = model_registry.list_offers(registry)
    if remote:
        asyncio.run(_ask(registry, offers))
    listed: Listed = [
        (info, reason, model_registry.get_model_state(registry, offer, info))
        for offer in offers
        for info in offer.models
        if not (reason := model_registry.explain_unusable(registry, offer, info)) or everything
    ]
    if as_json:
        write_json(_build_object(listed, registry, offers))
    else:
        _print(listed)
        _print_states(registry, offers, remote)


@models.command("fetch")
@click.argument("name")
def fetch(name: str) -> None:
    """Download a model to run it on this machine, without any key.

    NAME is smollm2 (0.1 GB) or qwen-coder (1.1 GB). Data downloaded before an interruption is kept."""
    from treadle.adapters.models.local.weights import KNOWN, locate
    from treadle.adapters.models.local.weights import fetch as download

    name = name.removeprefix("local:")
    weights = KNOWN.get(name)
    if weights is None:
        raise InvalidInput(f"there is no model {name!r} to fetch; there are {', '.join(KNOWN)}")
    home = session.load_config().home
    terminal = Terminal()
    if (there := locate(weights, home)) is not None:
        terminal.write_note(f"{weights.info.ref} is here already: {there}")
        return
    terminal.write_note(f"fetching {weights.title}, {weights.size / 1e6:,.0f} MB")
    with _show_progress(weights, terminal) as progress:
        path = download(weights, home, progress)
    terminal.write_note(f"verified and kept in {path}")
    terminal.write_line(f"Use it with: treadle run --model {weights.info.ref} PROMPT")


async def _ask(registry: "ModelRegistry", offers: "Sequence[model_registry.ProviderModels]") -> None:
    """Replace what is known by what the servers say, all at once; a server that fails costs only its own list."""

    async def ask(offer: "model_registry.ProviderModels") -> None:
        try:
            async with asyncio.timeout(REMOTE_S):
                listed = await registry.ask(offer.provider)
        except TimeoutError:
            offer.failure = f"no answer within {REMOTE_S:g} seconds"
        except (ConfigError, ModelError) as error:
            offer.failure = str(error)
        else:
            offer.has_answered = listed is not None
            offer.models = offer.models if listed is None else listed

    await asyncio.gather(*(ask(offer) for offer in offers if not offer.unusable_reason))
    await registry.close()


def _build_object(
    listed: "Listed", registry: "ModelRegistry", offers: "Sequence[model_registry.ProviderModels]"
) -> dict[str, object]:
    """In the words of the user's own file."""
    models = [
        {name: getattr(info, field) for name, field in FIELDS.items()}
        | {"temperature": False if info.temperature is None else info.temperature}
        | {"usable": not reason, "why": reason, "state": state}
        for info, reason, state in listed
    ]
    providers = {
        offer.provider: {
            "usable": not offer.unusable_reason,
            "why": offer.unusable_reason,
            "asked": offer.has_answered,
            "failure": offer.failure,
            "state": model_registry.get_provider_state(registry, offer),
        }
        for offer in offers
    }
    return {"models": models, "providers": providers}


def _print(listed: "Listed") -> None:
    rows = []
    for info, _, state in listed:
        prices = (info.usd_per_million_input, info.usd_per_million_cached, info.usd_per_million_output)
        price_cells = [f"{price:.4g}" if any(prices) else "" for price in prices]
        abilities = {"tools": info.native_tools, "thinking": info.thinking, "vision": info.vision}
        traits = " ".join([name for name, has in abilities.items() if has] + MARKS.get(state, []))
        sizes = [_format_tokens(info.window), _format_tokens(info.max_output)]
        rows.append((make_inert_line(info.ref), *sizes, *price_cells, traits))
    if not rows:
        return
    terminal = Terminal()
    widths = [max(map(len, column)) for column in zip(HEADER, *rows, strict=True)]
    for number, (ref, *cells, traits) in enumerate([HEADER, *rows]):
        right = (f"{cell:>{width}}" for cell, width in zip(cells, widths[1:6], strict=True))
        terminal.write_line("  ".join([f"{ref:{widths[0]}}", *right, traits]).rstrip(), *(() if number else ("bold",)))
    terminal.write_line("Prices in USD for a million tokens, where they are known.", "dim")


def _print_states(registry: "ModelRegistry", offers: "Sequence[model_registry.ProviderModels]", remote: bool) -> None:
    """Print the state of the providers and how it is known. A provider that was not checked is not called ready."""
    from treadle.adapters.models.local.weights import PROVIDER

    terminal = Terminal()
    ready, missing = {}, {}
    for offer in offers:
        if offer.unusable_reason:
            missing[offer.provider] = offer.unusable_reason
        elif offer.has_answered:
            ready[offer.provider] = f"answered just now; models: {len(offer.models)}"
        else:  # models on this machine are there one by one
            reasons = {info.ref: model_registry.explain_unusable(registry, offer, info) for info in offer.models}
            missing |= {ref: reason for ref, reason in reasons.items() if reason}
            if offer.provider == PROVIDER:
                ready |= {ref: "its weights are on this machine" for ref, reason in reasons.items() if not reason}
    _print_pairs(terminal, "Ready:", ready)
    unasked = [offer.provider for offer in offers if model_registry.get_provider_state(registry, offer) == "not asked"]
    if unasked:
        hint = "they cannot be" if remote else "--remote asks whether their servers answer and take the key"
        terminal.write_line(f"\nNot asked: {', '.join(unasked)} ({hint})")
    _print_pairs(terminal, "Failed when asked:", {o.provider: o.failure for o in offers if o.failure})
    _print_pairs(terminal, "Not ready:", missing)
    if not ready and not unasked:
        terminal.write_note("no model can be used yet; the list above says why")


def _format_tokens(count: int) -> str:
    return f"{count / 1e6:.3g}M" if count >= 1_000_000 else f"{count / 1000:.0f}k"


def _print_pairs(terminal: Terminal, title: str, pairs: dict[str, str]) -> None:
    if pairs:
        width = max(map(len, pairs))
        terminal.write_line(f"\n{title}")
        for name, text in pairs.items():
            dimmed_text = Span(make_inert_line(text), ("dim",))
            terminal.write_line(join_spans(f"  {make_inert_line(name):{width}}  ", dimmed_text))


@contextmanager
def _show_progress(weights: "Weights", terminal: Terminal) -> Iterator[Callable[[int], None]]:
    """Show how far a download is: as a bar where someone sees it, else in a line for each quarter."""
    quarter = 0

    def report_download(downloaded_bytes: int) -> None:
        nonlocal quarter
        if (new_quarter := downloaded_bytes * 4 // weights.size) > quarter:
            terminal.write_note(f"{downloaded_bytes / 1e6:,.0f} of {weights.size / 1e6:,.0f} MB")
        quarter = new_quarter

    if not os.isatty(2):
        yield report_download
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(make_inert_line(weights.name), total=weights.size)
        yield lambda downloaded_bytes: bar.update(task, completed=downloaded_bytes)
