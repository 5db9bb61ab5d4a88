"""`treadle fork`: a copy of a chat up to a point, which goes its own way from there (D-07)."""

from typing import TYPE_CHECKING

import click

from treadle.errors import InvalidInput
from treadle.frontends.cli.options import json_option
from treadle.frontends.cli.terminal import Terminal, write_json

if TYPE_CHECKING:
    from treadle.library.agent import Agent


@click.command("fork")
@click.argument("point", metavar="ID[@SEQ]")
@click.option("--model", metavar="PROVIDER:NAME", help="The model of the new chat, or your alias for one.")
@json_option("Print one JSON object.")
def fork(point: str, model: str | None, as_json: bool) -> None:
    """Start a new chat as a copy of another up to a point.

    ID is a chat's id, the beginning of it, or last. SEQ is the number of its last event in the copy; without it
    everything is copied. Prints the id of the copy, which is the last chat from then on.
    """
    chat_ref, at, seq = point.partition("@")
    if at and not seq.isdecimal():
        raise InvalidInput(f"{point!r} names no event; write ID@SEQ with a number, as in last@12")
    from treadle.frontends.cli.session import with_agent

    with_agent(lambda agent: _fork(agent, chat_ref, int(seq) if at else None, model, as_json))


async def _fork(agent: "Agent", chat_ref: str, seq: int | None, model: str | None, as_json: bool) -> None:
    from treadle.frontends.cli.session import find_chat
    from treadle.library.config import load
    from treadle.library.transfer import fork

    store = agent.deps.store
    chat = await find_chat(store, chat_ref)
    if model is not None:
        model = load().model_of(model)
        agent.deps.models.get(model)
    upto = await store.head(chat) if seq is None else seq
    copy = await fork(store, chat, upto, {} if model is None else {"model": model})
    if as_json:
        write_json({"chat": copy, "forked_from": chat, "seq": upto})
        return
    terminal = Terminal()
    terminal.line(copy)
    terminal.note(f"a copy of {chat} up to event {upto} · go on: treadle run --chat {copy} PROMPT", "dim")
