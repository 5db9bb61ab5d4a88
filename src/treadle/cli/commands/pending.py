"""`treadle pending`: what chats ask of a person (S-08)."""

from typing import TYPE_CHECKING

import click

from treadle.cli.group import in_agent
from treadle.cli.options import json_option
from treadle.cli.terminal import Terminal, write_list

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
    rows = []
    for chat, action in await asked_of_people(agent):
        id = f"{chat.id}:{action.action}"
        lines = [terminal.paint(id, "bold"), *(f"  {line}" for line in waiting(action))]
        rows.append(({"chat": chat.id, "id": id, **wire.whole(action)}, "\n".join(lines)))
    write_list(terminal, rows, "no chat waits for a person", as_json=as_json)
    return 0
