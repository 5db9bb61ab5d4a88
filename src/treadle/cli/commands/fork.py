"""`treadle fork`: a copy of a chat up to a point, which goes its own way from there (D-07)."""

from typing import TYPE_CHECKING

import click

from treadle.cli.terminal import Terminal
from treadle.errors import InvalidInput

if TYPE_CHECKING:
    from treadle.runtime import Agent


@click.command("fork")
@click.argument("point", metavar="ID[@SEQ]")
@click.option("--model", metavar="PROVIDER:NAME", help="The model of the new chat.")
def fork(point: str, model: str | None) -> int:
    """Begin a new chat as a copy of another up to a point.

    ID is a chat's id, the beginning of it, or last. SEQ is the number of its last event in the copy; without it
    everything is copied. Prints the id of the copy; go on with treadle run --chat.
    """
    named, at, seq = point.partition("@")
    if at and not seq.isdecimal():
        raise InvalidInput(f"{point!r} names no event; write ID@SEQ with a number, as in last@12")
    from treadle.cli.session import with_agent

    return with_agent(lambda agent: _fork(agent, named, int(seq) if at else None, model))


async def _fork(agent: "Agent", named: str, seq: int | None, model: str | None) -> int:
    from treadle.cli.session import find_chat
    from treadle.transfer import fork

    store = agent.deps.store
    chat = await find_chat(store, named)
    if model is not None:
        agent.deps.models.get(model)
    upto = await store.head(chat) if seq is None else seq
    copy = await fork(store, chat, upto, {} if model is None else {"model": model})
    terminal = Terminal()
    terminal.line(copy)
    terminal.note(f"a copy of {chat} up to event {upto} · go on: treadle run --chat {copy} PROMPT", "dim")
    return 0
