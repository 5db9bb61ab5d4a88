"""`treadle keep`: accept what a run did, or parts of it."""

import asyncio

from treadle.cli.changes import Named, choose, print_changes, print_conflicts
from treadle.cli.session import configured, open_agent
from treadle.cli.terminal import Terminal
from treadle.cli.undo import tell, tell_begun, whole
from treadle.config import Config
from treadle.protocol.events import Restored


def keep(wanted: Named, as_json: bool) -> int:
    return asyncio.run(_keep(configured(), wanted, as_json))


async def _keep(config: Config, wanted: Named, as_json: bool) -> int:
    terminal = Terminal()
    async with open_agent(config) as agent:
        choice = await choose(agent, wanted)
        await tell_begun(terminal, choice, as_json)
        done: Restored = await choice.files.keep(choice.span, choice.paths, choice.hunks)
        if not as_json:
            done = await whole(choice, done)
    if not as_json:
        print_changes(terminal, done.files)
        print_conflicts(terminal, done.conflicts)
        if not (done.files or done.conflicts or done.error):
            terminal.note(f"chat {choice.chat.id}: nothing to keep", "dim")
    return tell(terminal, choice, done, "kept", as_json)
