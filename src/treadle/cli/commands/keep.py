"""`treadle keep`: accept what a run did, or parts of it."""

from typing import TYPE_CHECKING

import click

from treadle.cli.group import in_agent
from treadle.cli.options import Named, gathered, hunk_option, json_option, run_options, words_argument
from treadle.cli.terminal import Terminal

if TYPE_CHECKING:
    from treadle.runtime import Agent


@click.command("keep")
@words_argument
@hunk_option
@run_options
@json_option("Print what was kept as one JSON object.")
@gathered(Named, "wanted")
@in_agent()
async def keep(agent: "Agent", wanted: Named, as_json: bool) -> int:
    """Accept changes: an undo leaves them alone from then on.

    ID is a chat; without it, the newest that works in this project. Nothing in the project changes.
    """
    from treadle.cli.changes import choose, tell, tell_begun

    terminal = Terminal()
    choice = await choose(agent, wanted)
    await tell_begun(terminal, choice, as_json)
    done = await choice.files.keep(choice.span, choice.paths, choice.hunks)
    if not (as_json or done.files or done.conflicts or done.error):
        terminal.note(f"chat {choice.chat.id}: nothing to keep", "dim")
    return await tell(terminal, choice, done, "kept", as_json, listed=True)
