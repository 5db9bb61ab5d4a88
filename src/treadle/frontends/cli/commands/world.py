"""`treadle world`: copy-on-write worlds of projects, in which chats work without changing those (W-11 to W-13)."""

import os
from typing import TYPE_CHECKING

import click

from treadle.base.inert import inert_line
from treadle.frontends.cli.group import in_agent
from treadle.frontends.cli.options import EXIT_ERROR, EXIT_OK, json_option, root_options
from treadle.frontends.cli.terminal import Terminal, write_json
from treadle.frontends.presentation.styled import Span, spans

if TYPE_CHECKING:
    from treadle.library.agent import Agent
    from treadle.library.worlds.record import World

_ID = click.argument("id", metavar="WORLD")


@click.group("world")
def world() -> None:
    """List, look into, commit and drop worlds: copies of a project in which chats work.

    A chat in a new world starts with treadle run --world. The project changes when the world is committed.
    WORLD is its id or the beginning of it.
    """


@world.command("open")
@root_options
@click.option("--parent", default="", metavar="WORLD", help="Make it a world of this one.")
@click.option("--label", default="", help="Its purpose, in a few words.")
@json_option("Print it as one JSON object.")
@in_agent()
async def open_world(
    agent: "Agent", root: str | None, force_root: bool, parent: str, label: str, as_json: bool
) -> None:
    """Open a new world of this project; nothing is copied until it is written."""
    from treadle.frontends.cli.session import project_root

    above = (await _find(agent, parent)).id if parent else ""
    new_world = await agent.worlds.open(project_root(root, force=force_root), above, label=label)
    _tell(Terminal(), new_world, as_json)


@world.command("list")
@json_option("Print one JSON object a line.")
@in_agent()
async def list_worlds(agent: "Agent", as_json: bool) -> None:
    """List the worlds, the oldest first."""
    terminal, worlds = Terminal(), await agent.worlds.list()
    for each in worlds:
        _tell(terminal, each, as_json)
    if not worlds and not as_json:
        terminal.note("no worlds; begin one with: treadle run --world", "dim")


@world.command("show")
@_ID
@json_option("Print it as one JSON object.")
@in_agent()
async def show(agent: "Agent", id: str, as_json: bool) -> None:
    """Show the changes that a commit of a world would make, and what is in its way."""
    from treadle.frontends.cli.changes import print_patch
    from treadle.protocol import wire

    world_info = await _find(agent, id)
    if as_json:
        effect = await agent.worlds.effect(world_info.id)
        write_json(
            {
                **wire.to_wire_form(world_info),
                "files": wire.to_wire_form(effect.files),
                "conflicts": wire.to_wire_form(effect.conflicts),
            }
        )
        return
    terminal = Terminal()
    _tell(terminal, world_info, as_json)
    print_patch(terminal, await agent.worlds.diff(world_info.id))


@world.command("enter")
@_ID
@click.argument("command", nargs=-1, metavar="[-- COMMAND [ARG]...]")
@in_agent()
async def enter(agent: "Agent", id: str, command: tuple[str, ...]) -> int:
    """Open a shell in a world, or run a command there; exit to come back.

    It is your own shell, not confined: only the project's folder is the world's.
    """
    import asyncio

    world_info = await _find(agent, id)
    words = list(command) or [os.environ.get("SHELL") or "/bin/sh"]
    if not command:
        Terminal().note(f"in the world {world_info.id} of {inert_line(world_info.root)}; exit to come back", "dim")
    return await asyncio.to_thread(agent.worlds.run_inside, world_info.id, words)


@world.command("commit")
@_ID
@click.option("--chat", metavar="ID", help="Record it in this chat; by default in a new one.")
@click.option("--yes", "-y", is_flag=True, help="Commit without asking; sensitive changes still need an approval.")
@json_option("Print the result as one JSON object, and do not ask.")
@in_agent(works=True)
async def commit(agent: "Agent", id: str, chat: str | None, yes: bool, as_json: bool) -> int:
    """Commit the changes of a world to the project, as one change that treadle undo reverses.

    Changes that need an approval in the project, such as of sensitive files, need one here too.
    """
    from treadle.diff.changes import count
    from treadle.errors import Conflict
    from treadle.frontends.cli.changes import print_patch
    from treadle.frontends.cli.dialogue import answer_next, may_go_on
    from treadle.frontends.cli.session import find_chat
    from treadle.protocol import wire

    world_info, terminal = await _find(agent, id), Terminal()
    effect = await agent.worlds.effect(world_info.id)
    if not as_json:
        print_patch(terminal, await agent.worlds.diff(world_info.id))
    if not effect.files:
        return EXIT_OK
    if effect.conflicts:
        raise Conflict(
            f"the same files changed in the project; nothing was committed. Try: treadle world rebase {world_info.id}"
        )
    question = f"commit {count(len(effect.files), 'change')}? [y/N] "
    if not await may_go_on(terminal, question, asks=not (yes or as_json)):
        return EXIT_ERROR
    into = agent.chat(await find_chat(agent.deps.store, chat)) if chat else None
    asks = not (yes or as_json)
    result = await agent.worlds.commit(world_info.id, into, lambda target: answer_next(terminal, target, asks=asks))
    if as_json:
        write_json(wire.to_wire_form(result))
    else:
        amount = count(len(result.files), "change")
        terminal.note(f"committed {amount}; take it back with: treadle undo {result.chat}", "dim")
    return EXIT_OK


@world.command("rebase")
@_ID
@in_agent()
async def rebase(agent: "Agent", id: str) -> None:
    """Rebase a world onto the project's newest state; files that both changed are merged."""
    world_info, terminal = await _find(agent, id), Terminal()
    for path in await agent.worlds.rebase(world_info.id):
        terminal.line(f"merged {inert_line(path)}")
    terminal.note(f"{world_info.id} is up to date", "dim")


@world.command("drop")
@_ID
@in_agent()
async def drop(agent: "Agent", id: str) -> None:
    """Remove a world with all its changes."""
    world_info = await _find(agent, id)
    await agent.worlds.drop(world_info.id)
    Terminal().note(f"dropped {world_info.id}", "dim")


async def _find(agent: "Agent", world_ref: str) -> "World":
    """By its id or the beginning of it."""
    from treadle.errors import InvalidInput, NotFound

    fit = [each for each in await agent.worlds.list() if each.id.startswith((world_ref, f"world_{world_ref}"))]
    if not fit:
        raise NotFound(f"there is no world {world_ref!r}; see them with: treadle world list")
    if len(fit) > 1:
        raise InvalidInput(f"{len(fit)} worlds begin with {world_ref!r}; say more of the id")
    return fit[0]


def _tell(terminal: Terminal, world_info: "World", as_json: bool) -> None:
    from treadle.frontends.cli.commands.chats import age
    from treadle.protocol import wire

    if as_json:
        write_json(wire.to_wire_form(world_info))
        return
    reason = f" · {inert_line(world_info.why, 60)}" if world_info.why else ""
    inside = f" · in {world_info.parent}" if world_info.parent else ""
    aged = Span(f"{age(world_info.made_ms):>8}", ("dim",))
    label = f" · {inert_line(world_info.label, 60)}" if world_info.label else ""
    details = f"  {world_info.how:8} {inert_line(world_info.root, 60)}{inside}{label}{reason}"
    terminal.line(spans(f"{world_info.id} ", aged, details))
