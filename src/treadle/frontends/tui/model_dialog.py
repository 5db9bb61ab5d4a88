"""The dialog in which a model is chosen, at the first start and with /model (U-10): models that can be used, keys and
addresses to enter, the sign-in to GitHub Copilot and the demo model. Stores nothing but what a person enters."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from treadle.adapters.models.catalog.table import PREFERRED
from treadle.adapters.models.providers import PROVIDER_NAMES, VARIABLES
from treadle.base.inert import make_inert_line
from treadle.errors import TreadleError
from treadle.frontends.presentation.rich_text import Text
from treadle.frontends.tui.command_context import CommandContext
from treadle.frontends.tui.connection import ModelRow
from treadle.frontends.tui.screens import Entry, Picker, TextPrompt

COPILOT = "copilot"
FETCH = "download a small model: leave with Ctrl-C and run  treadle models fetch qwen-coder  (1.1 GB)"
REMOTE_KEYS = "keys are set where the server runs, in its environment"


class ModelDialogChoice(msgspec.Struct, frozen=True):
    kind: Literal["model", "key", "address", "copilot", "demo"]
    name: str = ""  # the model, or the provider whose key is entered


async def choose_first_model(context: CommandContext) -> None:
    model = await choose_model(context, "Welcome to Treadle. Choose a model, or type its name")
    if not model:
        context.app.tell("no model is chosen; /model opens the list again", grave=False)
    elif await context.ensure_consent(model):
        context.next_chat_options["model"] = model
        context.app.showing.draw_facts()


async def choose_model(context: CommandContext, title: str = "Model") -> str:
    """The model that the person chose, ready to be used; empty if they left."""
    query = ""
    while True:
        rows = list(await context.connection.list_model_rows())
        usable = {row.model.partition(":")[0] for row in rows if not row.unusable_reason}
        best = [f"{provider}:{name}" for provider, name in PREFERRED.items() if name and provider in usable]
        # The best model of each provider that can be used, should the catalogue list it elsewhere.
        rows += [ModelRow(model) for model in best if all(row.model != model for row in rows)]

        def find(typed: str, rows: Sequence[ModelRow] = rows) -> Sequence[Entry[ModelDialogChoice]]:
            return list(_yield_entries(context, rows, typed.strip()))

        offer = await context.app.push_screen_wait(Picker(title, find, query=query))
        if offer is None:
            return ""
        if offer.kind == "demo":
            assert context.app.start.make_demo is not None
            context.next_chat_options["root"], model = context.app.start.make_demo()
            context.app.tell("the demo: a small project with a failing test; write anything", grave=False)
            return model
        provider = offer.name.partition(":")[0]
        reasons = [row.unusable_reason for row in rows if row.model.partition(":")[0] == provider]
        lacks_key = bool(reasons) and all(reasons) and provider in PREFERRED
        if offer.kind == "model" and not lacks_key:
            return offer.name
        try:
            query = await _get_access(context, offer)
        except TreadleError as error:
            query = ""
            context.app.tell(make_inert_line(str(error), 400))


async def _get_access(context: CommandContext, offer: ModelDialogChoice) -> str:
    """Have the person enter what is missing. Returns what the list is searched for afterwards."""
    provider = offer.name.partition(":")[0]
    if offer.kind == "address":
        return await _enter_server(context)
    is_copilot = offer.kind == "copilot" or provider == COPILOT
    if is_copilot and (gh := shutil.which("gh")) is not None:
        with context.app.suspend():
            completed = await asyncio.to_thread(subprocess.run, [gh, "auth", "login"])
        if completed.returncode:
            context.app.tell("gh auth login did not sign you in")
        return "" if completed.returncode else f"{COPILOT}:"
    query = await _enter_key(context, COPILOT if is_copilot else provider)
    return offer.name if query and offer.kind == "model" and not is_copilot else query


async def _enter_key(context: CommandContext, provider: str) -> str:
    name, variable = PROVIDER_NAMES[provider], VARIABLES[provider].keys[0]
    key = await context.app.push_screen_wait(TextPrompt(f"The key for {name} ({variable}):", secret=True))
    if not key:
        return ""
    place = await context.connection.store_key(provider, variable, key)
    context.app.tell(f"the key for {name} is kept in {place}", grave=False)
    return f"{provider}:"


async def _enter_server(context: CommandContext) -> str:
    app = context.app
    question = "The base URL of the server, for instance http://127.0.0.1:8000/v1:"
    if not (url := await app.push_screen_wait(TextPrompt(question))):
        return ""
    key = await app.push_screen_wait(TextPrompt("Its key; leave it empty if it needs none:", secret=True))
    if key is None:
        return ""
    count = await context.connection.add_server(url, key)
    app.tell(f"the server has {count} models", grave=False)
    return "custom:"


def _yield_entries(context: CommandContext, rows: Sequence[ModelRow], typed: str) -> Iterator[Entry[ModelDialogChoice]]:
    """All rows that match, under their headings. A model that is not in the list is offered as it was typed."""
    words = typed.casefold()
    if ":" in typed and not typed.endswith(":") and all(row.model != typed for row in rows):
        yield Entry(f"  use {make_inert_line(typed, 80)} (as typed)", ModelDialogChoice("model", typed))
    groups = [
        ("models that you can use now", [row for row in _sort_rows(rows) if not row.unusable_reason]),
        ("models that need a key first", [row for row in _sort_rows(rows) if row.unusable_reason] if words else []),
    ]
    takes_keys = context.connection.takes_keys
    for heading, group in groups:
        labels: list[tuple[Text, ModelDialogChoice | None]] = []
        for row in group:
            # A model without its key can be chosen where the key can be entered.
            can_choose = not row.unusable_reason or (takes_keys and row.model.partition(":")[0] in PREFERRED)
            model = (f"  {make_inert_line(row.model, 60)}", "dim" if row.unusable_reason else "bold")
            reason = make_inert_line(row.unusable_reason, 120)
            facts = [f"{row.window:,} tokens" if row.window else "", row.place, reason]
            label = Text.assemble(model, ("  " + "  ".join(filter(None, facts)), "dim"), no_wrap=True)
            labels.append((label, ModelDialogChoice("model", row.model) if can_choose else None))
        yield from _yield_group(heading, labels, words)
    lacking = {row.model.partition(":")[0] for row in rows if row.unusable_reason}
    keys: list[tuple[Text, ModelDialogChoice | None]] = [
        (Text.assemble(f"  {PROVIDER_NAMES[name]}", ("  enter a key", "dim")), ModelDialogChoice("key", name))
        for name in PREFERRED
        if takes_keys and name != COPILOT and name in lacking
    ]
    yield from _yield_group("enter a key", keys if takes_keys else [(Text(f"  {REMOTE_KEYS}"), None)], words)
    options: dict[ModelDialogChoice, tuple[str, str]] = {}
    if takes_keys:
        options[ModelDialogChoice("address")] = "enter the address of a server", "vLLM, LM Studio, a gateway …"
        options[ModelDialogChoice("copilot")] = "sign in to GitHub Copilot", "with gh, or a token"
    if context.app.start.make_demo is not None:
        options[ModelDialogChoice("demo")] = "try the demo model", "a script on a small project; no key"
    others: list[tuple[Text, ModelDialogChoice | None]] = [
        (Text.assemble(f"  {does}", (f"  {about}", "dim")), offer) for offer, (does, about) in options.items()
    ]
    yield from _yield_group("other ways", [*others, (Text(f"  {FETCH}"), None)] if takes_keys else others, words)
    if typed and ":" not in typed:
        yield Entry(Text(f"  a model of another name: type provider:name, such as openai:{typed}", "dim"), None)


def _sort_rows(rows: Sequence[ModelRow]) -> list[ModelRow]:
    """Models on this machine first, then the best of each provider."""
    preferred = {f"{provider}:{name}" for provider, name in PREFERRED.items()}
    return sorted(rows, key=lambda row: (not row.place, row.model not in preferred))


def _yield_group(
    heading: str, rows: Sequence[tuple[Text, ModelDialogChoice | None]], words: str
) -> Iterator[Entry[ModelDialogChoice]]:
    matching_rows = [(label, offer) for label, offer in rows if words in label.plain.casefold()]
    if matching_rows:
        yield Entry(Text(heading, "bold cyan"), None)
        for label, offer in matching_rows:
            yield Entry(label, offer)
