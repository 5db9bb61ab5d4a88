"""`treadle stop`: end the run of a chat from any process (L-07). The stop is recorded first; then the worker that
drives the chat, or this process if there is none, settles the open calls."""

from typing import TYPE_CHECKING

import click

from treadle.frontends.cli.group import in_agent
from treadle.frontends.cli.options import json_option
from treadle.frontends.cli.terminal import Terminal, write_json

if TYPE_CHECKING:
    from treadle.library.agent import Agent


@click.command("stop")
@click.argument("chat_ref", metavar="ID")
@json_option("Print one JSON object.")
@in_agent(works=True)
async def stop(agent: "Agent", chat_ref: str, as_json: bool) -> None:
    """Stop the run of a chat, wherever it works.

    ID is a chat's id, the beginning of it, or last. Running commands end, open calls get a result that says so, and the
    chat can be continued. Background commands stay: see jobs.
    """
    from treadle.frontends.cli.session import find_chat
    from treadle.frontends.presentation.notices import end
    from treadle.protocol.events import SessionIdle

    chat = agent.chat(await find_chat(agent.deps.store, chat_ref))
    await chat.interrupt()
    idle_event = SessionIdle("interrupted")
    async for envelope in chat.resume():
        if isinstance(envelope.data, SessionIdle):
            idle_event = envelope.data
    if as_json:
        write_json({"chat": chat.id, "reason": idle_event.reason})
    else:
        Terminal().note(f"chat {chat.id}: {end(idle_event)} · go on: treadle run --chat {chat.id} PROMPT", "dim")
