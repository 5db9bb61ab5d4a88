"""`treadle redo`: take the last undo back."""

from typing import TYPE_CHECKING

import click

from treadle.cli.group import in_agent
from treadle.cli.options import Named, json_option, merge_option
from treadle.cli.terminal import Terminal

if TYPE_CHECKING:
    from treadle.runtime import Agent


@click.command("redo")
@click.argument("chat", metavar="[ID]", default="")
@merge_option
@json_option("Print what was done as one JSON object.")
@in_agent()
async def redo(agent: "Agent", chat: str, merge: bool, as_json: bool) -> int:
    """Take an undo back.

    ID is a chat; without it, the newest that works in this project. It is the last undo that was not redone.
    """
    from treadle.cli.changes import choose, tell, tell_begun

    terminal = Terminal()
    choice = await choose(agent, Named(only_chat=chat))
    await tell_begun(terminal, choice, as_json)
    return await tell(terminal, choice, await choice.files.redo(merge=merge), "redone", as_json, listed=True)
