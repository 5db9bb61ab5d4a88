"""`treadle delete`: remove a chat from the database for good (A-06)."""

from typing import TYPE_CHECKING

import click

from treadle.base.inert import inert_line
from treadle.errors import InvalidInput
from treadle.frontends.cli.group import in_agent
from treadle.frontends.cli.options import EXIT_ERROR, EXIT_OK, json_option
from treadle.frontends.cli.terminal import Terminal, write_json

if TYPE_CHECKING:
    from treadle.library.agent import Agent


@click.command("delete")
@click.argument("chat_name", metavar="ID")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option("Print one JSON object; needs --yes.")
@in_agent()
async def delete(agent: "Agent", chat_name: str, yes: bool, as_json: bool) -> int:
    """Delete a chat and its sub-agents for good.

    ID is a chat's id, the beginning of it, or last. A chat that works is not deleted: stop it first. Its background
    commands end. The files of the project stay as they are, but what the chat changed can no longer be undone. Worlds
    stay. To keep a copy, export the chat before; to hide it, archive it.
    """
    from treadle.frontends.cli.dialogue import agreed, someone_is_there
    from treadle.frontends.cli.session import find_chat

    chat = await find_chat(agent.deps.store, chat_name)
    if not yes:
        if as_json or not someone_is_there():
            raise InvalidInput(f"A deleted chat cannot be brought back. Delete it with: treadle delete --yes {chat}")
        title = inert_line((await agent.deps.store.get(chat)).summary.title or chat, 60)
        if not await agreed(f"delete “{title}” for good? [y/N] "):
            Terminal().note("nothing was deleted", "dim")
            return EXIT_ERROR
    await agent.delete_chat(chat)
    if as_json:
        write_json({"chat": chat, "deleted": True})
    else:
        Terminal().note(f"chat {chat} is deleted", "dim")
    return EXIT_OK
