"""`treadle pending`: what chats ask of a person (S-08)."""

from typing import TYPE_CHECKING

import click

from treadle.cli.group import in_agent
from treadle.cli.options import json_option
from treadle.cli.terminal import Terminal, write_json

if TYPE_CHECKING:
    from treadle.runtime import Agent


@click.command("pending")
@json_option("Print one JSON object a line.")
@in_agent()
async def pending(agent: "Agent", as_json: bool) -> int:
    """List what chats ask of a person.

    Each with the id that approve takes, what would be done, how dangerous it is, and why it is asked.
    """
    from treadle.cli.approvals import asked_of_people
    from treadle.presentation.notices import waiting
    from treadle.protocol import wire

    terminal = Terminal()
    found = await asked_of_people(agent)
    for chat, action in found:
        id = f"{chat.id}:{action.action}"
        if as_json:
            write_json({"chat": chat.id, "id": id, **wire.whole(action)})
            continue
        terminal.line(terminal.paint(id, "bold"))
        for line in waiting(action):
            terminal.line(f"  {line}")
    if not found and not as_json:
        terminal.note("no chat waits for a person", "dim")
    return 0
