"""`treadle stop`: end the run of a chat from any process (L-07). The stop is recorded first; whoever drives the chat,
or this process if nobody does, settles what was under way."""

from typing import TYPE_CHECKING

import click

from treadle.cli.group import in_agent
from treadle.cli.options import json_option
from treadle.cli.terminal import Terminal, write_json

if TYPE_CHECKING:
    from treadle.runtime import Agent


@click.command("stop")
@click.argument("named", metavar="ID")
@json_option("Print one JSON object.")
@in_agent(works=True)
async def stop(agent: "Agent", named: str, as_json: bool) -> None:
    """Stop the run of a chat, wherever it works.

    ID is a chat's id, the beginning of it, or last. Running commands end, open calls get a result that says so, and the
    chat can be continued. Background commands stay: see jobs.
    """
    from treadle.cli.session import find_chat
    from treadle.presentation.notices import end
    from treadle.protocol.events import SessionIdle

    chat = agent.chat(await find_chat(agent.deps.store, named))
    await chat.interrupt()
    ended = SessionIdle("interrupted")
    async for envelope in chat.resume():
        if isinstance(envelope.data, SessionIdle):
            ended = envelope.data
    if as_json:
        write_json({"chat": chat.id, "reason": ended.reason})
    else:
        Terminal().note(f"chat {chat.id}: {end(ended)} · go on: treadle run --chat {chat.id} PROMPT", "dim")
