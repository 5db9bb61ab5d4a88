"""`treadle diff`: what a run changed and what is left of it, with the numbers by which hunks are undone and kept."""

import asyncio

from treadle.cli.changes import Choice, Named, choose, print_changes, print_diff, write_json
from treadle.cli.inert import inert_line
from treadle.cli.notices import summary
from treadle.cli.session import configured, open_agent
from treadle.cli.terminal import Terminal
from treadle.config import Config
from treadle.lines.look import Shown
from treadle.protocol import wire
from treadle.protocol.events import UserMessage


def diff(wanted: Named, *, stat: bool, runs: bool, as_json: bool) -> int:
    return asyncio.run(_diff(configured(), wanted, stat, runs, as_json))


async def _diff(config: Config, wanted: Named, stat: bool, runs: bool, as_json: bool) -> int:
    terminal = Terminal()
    async with open_agent(config) as agent:
        choice = await choose(agent, wanted)
        if runs:
            await _list_runs(terminal, choice, as_json)
            return 0
        found = await choice.files.diff(choice.span, choice.paths, even_kept=choice.even_kept)
    if as_json:
        for each in found:
            write_json(as_dict(each))
        return 0
    files = [each.change for each in found]
    if not files:
        terminal.note(f"chat {choice.chat.id} has changed nothing that is neither undone nor kept", "dim")
    elif stat:
        print_changes(terminal, files, choice.aside)
    else:
        print_diff(terminal, found, choice.aside)
    if files:
        terminal.note(f"{summary(files, choice.aside)} · undo: treadle undo {choice.chat.id}", "dim")
    return 0


def as_dict(each: Shown) -> dict[str, object]:
    shown: dict[str, object] = wire.whole(each.change)
    return shown | {"notes": each.notes, "hunks": each.hunks}


async def _list_runs(terminal: Terminal, choice: Choice, as_json: bool) -> None:
    tasks = {each.seq: each.data.content for each in await choice.chat.events() if isinstance(each.data, UserMessage)}
    for number, span in enumerate(await choice.files.runs(), 1):
        files = [each.change for each in await choice.files.diff(span)]
        task = tasks.get(span.since, "")
        if as_json:
            write_json(
                {"run": number, "message": span.since, "task": task, "files": [wire.whole(each) for each in files]}
            )
        else:
            left = summary(files) if files else "nothing left"
            terminal.line(f"{number:>3}  message {span.since:<6} {left:24} {inert_line(task, terminal.width - 50)}")
