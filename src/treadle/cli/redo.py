"""`treadle redo`: take the last undo back."""

import asyncio

from treadle.cli.changes import Named, choose, print_changes, print_conflicts
from treadle.cli.session import configured, open_agent
from treadle.cli.terminal import Terminal
from treadle.cli.undo import tell, tell_begun, whole
from treadle.config import Config
from treadle.protocol.events import Restored


def redo(wanted: Named, merge: bool, as_json: bool) -> int:
    return asyncio.run(_redo(configured(), wanted, merge, as_json))


async def _redo(config: Config, wanted: Named, merge: bool, as_json: bool) -> int:
    terminal = Terminal()
    async with open_agent(config) as agent:
        choice = await choose(agent, wanted)
        await tell_begun(terminal, choice, as_json)
        done: Restored = await choice.files.redo(merge=merge)
        if not as_json:
            done = await whole(choice, done)
    if not as_json:
        print_changes(terminal, done.files)
        print_conflicts(terminal, done.conflicts)
    return tell(terminal, choice, done, "redone", as_json)
