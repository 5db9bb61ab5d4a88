"""`treadle world`: copy-on-write worlds of projects, in which chats work without changing those (W-11 to W-13).
`treadle try`: a command on a copy-on-write view of the project, its output and its effect (W-09)."""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from treadle.adapters.sandbox.supervisor.removal import remove_tree
from treadle.base.file_system import is_below
from treadle.base.inert import make_inert, make_inert_line
from treadle.base.types import CallKey, ChatId
from treadle.errors import Conflict, InvalidInput, NotFound, SandboxError
from treadle.frontends.cli import options as o
from treadle.frontends.cli.group import pass_agent

from treadle.frontends.cli.lazy import (  # isort: skip
    Agent, Config, asyncio, changes, chat_options, dialogue, diff_changes, msgspec, session, toolset, wire,
)  # fmt: skip
from treadle.frontends.cli.terminal import Terminal, age, write_json, write_list, write_outcome
from treadle.frontends.presentation.styled import Colour, Line, Span, join_spans

if TYPE_CHECKING:
    from treadle.adapters.tools.builtin.command.trial import DryRun
    from treadle.library.worlds.record import World

_ID = click.argument("id", metavar="WORLD")
_TRY_PREFIX = "try-"
_COLOURS: dict[str, Colour] = {"+": "green", "-": "red", "@": "cyan", "[": "dim"}


@click.group("world")
def world() -> None:
    """List, look into, commit and drop worlds: copies of a project in which chats work.

    A chat in a new world starts with treadle run --world. The project changes when the world is committed.
    WORLD is its id or the beginning of it."""


@world.command("open")
@o.add_root_options
@click.option("--parent", default="", metavar="WORLD", help="Make it a world of this one.")
@click.option("--label", default="", help="Its purpose, in a few words.")
@o.add_json_option("Print it as one JSON object.")
@pass_agent()
async def open_world(
    agent: "Agent", root: str | None, force_root: bool, parent: str, label: str, as_json: bool
) -> None:
    """Open a new world of this project; nothing is copied until it is written."""
    above = (await _find(agent, parent)).id if parent else ""
    new_world = await agent.worlds.open(o.resolve_project_root(root, force=force_root), above, label=label)
    write_list([(wire.to_wire_form(new_world), _format_world(new_world))], "", as_json=as_json)


@world.command("list")
@o.add_json_option("Print one JSON object a line.")
@pass_agent()
async def list_worlds(agent: "Agent", as_json: bool) -> None:
    """List the worlds, the oldest first."""
    rows = [(wire.to_wire_form(each), _format_world(each)) for each in await agent.worlds.list()]
    write_list(rows, "no worlds; begin one with: treadle run --world", as_json=as_json)


@world.command("show")
@_ID
@o.add_json_option("Print it as one JSON object.")
@pass_agent()
async def show(agent: "Agent", id: str, as_json: bool) -> None:
    """Show the changes that a commit of a world would make, and what is in its way."""
    world_info = await _find(agent, id)
    if as_json:
        effect = await agent.worlds.effect(world_info.id)
        fields = {"files": wire.to_wire_form(effect.files), "conflicts": wire.to_wire_form(effect.conflicts)}
        return write_json({**wire.to_wire_form(world_info), **fields})
    Terminal().write_line(_format_world(world_info))
    changes.print_patch(Terminal(), await agent.worlds.diff(world_info.id))


@world.command("enter")
@_ID
@click.argument("command", nargs=-1, metavar="[-- COMMAND [ARG]...]")
@pass_agent()
async def enter(agent: "Agent", id: str, command: tuple[str, ...]) -> int:
    """Open a shell in a world, or run a command there; exit to come back.

    It is your own shell, not confined: only the project's folder is the world's."""
    world_info = await _find(agent, id)
    words = list(command) or [os.environ.get("SHELL") or "/bin/sh"]
    if not command:
        project = make_inert_line(world_info.root)
        Terminal().write_note(f"in the world {world_info.id} of {project}; exit to come back", "dim")
    return await asyncio.to_thread(agent.worlds.run_inside, world_info.id, words)


@world.command("commit")
@_ID
@click.option("--chat", type=o.CHAT, help="Record it in this chat; by default in a new one.")
@click.option("--yes", "-y", is_flag=True, help="Commit without asking; sensitive changes still need an approval.")
@o.add_json_option("Print the result as one JSON object, and do not ask.")
@pass_agent(works=True)
async def commit(agent: "Agent", id: str, chat: str | None, yes: bool, as_json: bool) -> int:
    """Commit the changes of a world to the project, as one change that treadle undo reverses.

    Changes that need an approval in the project, such as of sensitive files, need one here too."""
    world_info, terminal = await _find(agent, id), Terminal()
    effect = await agent.worlds.effect(world_info.id)
    if not as_json:
        changes.print_patch(terminal, await agent.worlds.diff(world_info.id))
    if not effect.files:
        return o.EXIT_OK
    if effect.conflicts:
        advice = f"Try: treadle world rebase {world_info.id}"
        raise Conflict(f"the same files changed in the project; nothing was committed. {advice}")
    asks = not (yes or as_json)
    question = f"commit {diff_changes.count(len(effect.files), 'change')}? [y/N] "
    if not await dialogue.confirm_action(terminal, question, asks=asks):
        return o.EXIT_ERROR
    into = await session.open_chat(agent, chat) if chat else None
    answer = lambda target: dialogue.answer_next(terminal, target, asks=asks)  # noqa: E731
    result = await agent.worlds.commit(world_info.id, into, answer)
    note = f"committed {diff_changes.count(len(result.files), 'change')}; take it back with: treadle undo {result.chat}"
    write_outcome(wire.to_wire_form(result), note, as_json=as_json)
    return o.EXIT_OK


@world.command("rebase")
@_ID
@pass_agent()
async def rebase(agent: "Agent", id: str) -> None:
    """Rebase a world onto the project's newest state; files that both changed are merged."""
    world_info, terminal = await _find(agent, id), Terminal()
    for path in await agent.worlds.rebase(world_info.id):
        terminal.write_line(f"merged {make_inert_line(path)}")
    terminal.write_note(f"{world_info.id} is up to date", "dim")


@world.command("drop")
@_ID
@pass_agent()
async def drop(agent: "Agent", id: str) -> None:
    """Remove a world with all its changes."""
    world_info = await _find(agent, id)
    await agent.worlds.drop(world_info.id)
    Terminal().write_note(f"dropped {world_info.id}", "dim")


async def _find(agent: "Agent", world_ref: str) -> "World":
    """By its id or the beginning of it."""
    fit = [each for each in await agent.worlds.list() if each.id.startswith((world_ref, f"world_{world_ref}"))]
    if not fit:
        raise NotFound(f"there is no world {world_ref!r}; see them with: treadle world list")
    if len(fit) > 1:
        raise InvalidInput(f"{len(fit)} worlds begin with {world_ref!r}; say more of the id")
    return fit[0]


def _format_world(world_info: "World") -> Line:
    inside = f" · in {world_info.parent}" if world_info.parent else ""
    remarks = "".join(f" · {make_inert_line(text, 60)}" for text in (world_info.label, world_info.why) if text)
    details = f"  {world_info.how:8} {make_inert_line(world_info.root, 60)}{inside}{remarks}"
    return join_spans(f"{world_info.id} ", Span(f"{age(world_info.made_ms):>8}", ("dim",)), details)


@click.command("try", cls=o.NetworkCommand)
@click.argument("line", metavar="CMD")
@o.add_root_options
@o.network_option
@click.option("--timeout", "timeout_s", type=o.FiniteFloat(min=0, min_open=True, max=600), default=120, metavar="S")
@o.add_json_option("Print one JSON object.")
def try_(line: str, root: str | None, force_root: bool, network: str | None, timeout_s: float, as_json: bool) -> None:
    """Show what a command would change in the project, without changing it.

    CMD runs for real, in the sandbox, on a copy-on-write view of the project: it sees what it writes, and the project
    stays as it is. Its output comes first, then the files that it created, changed and deleted. It is stopped after S
    seconds (120). With --network, its changes to hosts that it can reach are real. The exit code is 0 when the command
    could be tried, regardless of its own exit code, and 1 when it could not."""
    from treadle.adapters.tools.builtin.command.output import describe_exit

    config = session.load_config()
    project = str(o.resolve_project_root(root, force=force_root))
    arguments: dict[str, object] = {"command": line, "timeout_s": timeout_s, "fresh": True}
    # The view lies in Treadle's home, which may have more room than the memory behind /tmp.
    config.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for leftover in config.home.glob(f"{_TRY_PREFIX}*"):  # of a killed trial
        if leftover.lstat().st_mtime < time.time() - 86_400:
            remove_tree(str(leftover))
    folder = str(Path(tempfile.mkdtemp(prefix=_TRY_PREFIX, dir=config.home)).resolve())
    terminal = Terminal()
    try:
        show = (lambda _text: None) if as_json else terminal.stream
        dry_run = asyncio.run(_run_trial(config, arguments, network or "", project, folder, show))
    finally:
        remove_tree(folder)
    status = dry_run.command_exit
    ending = "it took too long and was stopped" if status.ending == "timed_out" else describe_exit(status)
    if as_json:
        effect, stat = dry_run.effect, diff_changes.sum_stats(dry_run.effect.files)
        report = {"command": line, "root": project, "ending": status.ending, "code": status.code}
        report |= {"output": dry_run.output, "added": stat.added, "removed": stat.removed, "files": effect.files}
        report |= {"uncaptured": effect.uncaptured, "wants_network": dry_run.wants_network}
        return write_json(report | {"summary": f"{ending}, {diff_changes.count(len(effect.files), 'change')}"})
    terminal.end_line()
    for note in dry_run.notes:
        terminal.write_note(make_inert_line(note), "yellow")
    terminal.write_line(f"[{ending}]", "dim")
    for text in make_inert(dry_run.diff).split("\n"):
        terminal.write_line(text, *([_COLOURS[text[0]]] if text[:1] in _COLOURS else []))
    if dry_run.wants_network:
        terminal.write_note(f"it needs the network: --network {','.join(dry_run.wants_network)}", "yellow")
    terminal.write_note("tried on a copy: nothing in the project was changed", "dim")


async def _run_trial(
    config: "Config", arguments: dict[str, object], network: str, root: str, folder: str, show: Callable[[str], None]
) -> "DryRun":
    from treadle.adapters.sandbox.supervisor.commands import SupervisedCommands
    from treadle.adapters.sandbox.trial_folders import can_make_view
    from treadle.adapters.stores.memory import MemoryStore
    from treadle.adapters.tools.builtin.command.tool import RunCommand
    from treadle.adapters.workspace.history.snapshots import ProjectSnapshots
    from treadle.adapters.workspace.root import Root
    from treadle.base.host_patterns import read
    from treadle.library.tool_setup import ToolSetup

    here = os.getcwd()
    arguments |= {"cwd": here} if is_below(here, root) else {}
    options = chat_options.ChatOptions(root=root, sandbox=config.settings.sandbox, network=read(network))
    call = toolset.Invocation(ChatId("try"), CallKey("1.0"), "run_command", arguments, options=options, emit=show)
    setup = ToolSetup(MemoryStore(), os.environ, config.home, allowance=config.settings.allowance)
    commands = SupervisedCommands(Path(folder) / "commands")
    context = msgspec.structs.replace(
        setup.context,
        commands=commands,
        snapshots_of=lambda path, root_id, _world="": ProjectSnapshots(Root(path, root_id), Path(folder)),
        views=lambda sandbox, path: can_make_view(sandbox, path, folder),
    )
    try:
        dry_run = await RunCommand(context).run_trial(call)
    finally:
        await commands.close()
        await setup.close()
    if dry_run is None:
        raise SandboxError(
            f"no copy-on-write view of {root} works here, so a command cannot be tried without really running it; "
            "treadle doctor shows which sandbox works, and views need bubblewrap 0.11"
        )
    return dry_run
