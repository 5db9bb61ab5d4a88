"""`treadle try`: a command on a copy-on-write view of the project, its output and its effect; the project stays as
it is (W-09)."""

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from treadle.base.file_system import is_below
from treadle.base.inert import inert, inert_line
from treadle.errors import SandboxError
from treadle.frontends.cli.options import (
    FiniteFloat,
    NetworkCommand,
    gathered,
    json_option,
    network_option,
    root_options,
)
from treadle.frontends.cli.terminal import Terminal, write_json
from treadle.frontends.presentation.styled import Colour

if TYPE_CHECKING:
    from treadle.adapters.tools.builtin.command.trial import DryRun
    from treadle.library.config import Config
    from treadle.ports.toolset import Invocation

_PREFIX = "try-"
_OLD_S = 86_400
_COLOURS: dict[str, Colour] = {"+": "green", "-": "red", "@": "cyan", "[": "dim"}


class TryOptions(NamedTuple):
    line: str
    root: str | None
    force_root: bool
    network: str | None
    timeout_s: float


@click.command("try", cls=NetworkCommand)
@click.argument("line", metavar="CMD")
@root_options
@network_option
@click.option("--timeout", "timeout_s", type=FiniteFloat(min=0, min_open=True, max=600), default=120, metavar="S")
@json_option("Print one JSON object.")
@gathered(TryOptions, "try_options")
def try_(try_options: TryOptions, as_json: bool) -> None:
    """Show what a command would change in the project, without changing it.

    CMD runs for real, in the sandbox, on a copy-on-write view of the project: it sees what it writes, and the project
    stays as it is. Its output comes first, then the files that it created, changed and deleted. It is stopped after S
    seconds (120). With --network, its changes to hosts that it can reach are real. The exit code is 0 when the command
    could be tried, regardless of its own exit code, and 1 when it could not.
    """
    import asyncio

    from treadle.adapters.sandbox.supervisor.removal import remove_tree
    from treadle.frontends.cli.session import configured, project_root

    config = configured()
    root = project_root(try_options.root, force=try_options.force_root)
    folder = _folder(config)
    try:
        terminal = Terminal()
        dry_run = asyncio.run(_run_trial(config, try_options, str(root), folder, None if as_json else terminal))
    finally:
        remove_tree(folder)
    if as_json:
        _print_json(try_options, str(root), dry_run)
    else:
        _print(terminal, dry_run)


def _folder(config: "Config") -> str:
    """Create the folder of the view in Treadle's home, which may have more room than the memory behind /tmp. The folder
    of a killed trial is removed after a day."""
    from treadle.adapters.sandbox.supervisor.removal import remove_tree

    config.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for leftover in config.home.glob(f"{_PREFIX}*"):
        if leftover.lstat().st_mtime < time.time() - _OLD_S:
            remove_tree(str(leftover))
    return str(Path(tempfile.mkdtemp(prefix=_PREFIX, dir=config.home)).resolve())


async def _run_trial(
    config: "Config", try_options: TryOptions, root: str, folder: str, terminal: Terminal | None
) -> "DryRun":
    from msgspec.structs import replace

    from treadle.adapters.sandbox.supervisor.commands import SupervisedCommands
    from treadle.adapters.sandbox.trial_folders import view_works
    from treadle.adapters.stores.memory import MemoryStore
    from treadle.adapters.tools.builtin.command.tool import RunCommand
    from treadle.adapters.workspace.history.snapshots import ProjectSnapshots
    from treadle.adapters.workspace.root import Root
    from treadle.library.tool_setup import ToolSetup

    setup = ToolSetup(MemoryStore(), os.environ, config.home, allowance=config.settings.allowance)
    commands = SupervisedCommands(Path(folder) / "commands")
    context = replace(
        setup.context,
        commands=commands,
        snapshots_of=lambda path, root_id, _world="": ProjectSnapshots(Root(path, root_id), Path(folder)),
        views=lambda sandbox, path: view_works(sandbox, path, folder),
    )
    try:
        dry_run = await RunCommand(context).dry_run(_call(config, try_options, root, terminal))
    finally:
        await commands.close()
        await setup.close()
    if dry_run is None:
        raise SandboxError(
            f"no copy-on-write view of {root} works here, so a command cannot be tried without really running it; "
            "treadle doctor shows which sandbox works, and views need bubblewrap 0.11"
        )
    return dry_run


def _call(config: "Config", try_options: TryOptions, root: str, terminal: Terminal | None) -> "Invocation":
    from treadle.base.host_patterns import read
    from treadle.base.types import CallKey, ChatId
    from treadle.ports.toolset import Invocation
    from treadle.protocol.options import ChatOptions

    arguments: dict[str, object] = {"command": try_options.line, "timeout_s": try_options.timeout_s, "fresh": True}
    here = os.path.realpath(os.getcwd())
    if is_below(here, root):
        arguments["cwd"] = here
    show = (lambda _text: None) if terminal is None else terminal.stream
    options = ChatOptions(root=root, sandbox=config.settings.sandbox, network=read(try_options.network or ""))
    return Invocation(ChatId("try"), CallKey("1.0"), "run_command", arguments, options=options, emit=show)


def _print(terminal: Terminal, dry_run: "DryRun") -> None:
    terminal.end_line()
    for note in dry_run.notes:
        terminal.note(inert_line(note), "yellow")
    terminal.line(f"[{_describe_exit(dry_run)}]", "dim")
    for line in inert(dry_run.diff).split("\n"):
        colour = _COLOURS.get(line[:1])
        terminal.line(line, *([colour] if colour else []))
    if dry_run.wants_network:
        terminal.note(f"it needs the network: --network {','.join(dry_run.wants_network)}", "yellow")
    terminal.note("tried on a copy: nothing in the project was changed", "dim")


def _describe_exit(dry_run: "DryRun") -> str:
    from treadle.adapters.tools.builtin.command.output import exit_words

    exit_status = dry_run.command_exit
    if exit_status.ending == "timed_out":
        return "it took too long and was stopped"
    return exit_words(exit_status)


def _print_json(try_options: TryOptions, root: str, dry_run: "DryRun") -> None:
    from treadle.diff.changes import count, total

    stat = total(dry_run.effect.files)
    report = {
        "command": try_options.line,
        "root": root,
        "ending": dry_run.command_exit.ending,
        "code": dry_run.command_exit.code,
        "output": dry_run.output,
        "added": stat.added,
        "removed": stat.removed,
        "files": dry_run.effect.files,
        "uncaptured": dry_run.effect.uncaptured,
        "wants_network": dry_run.wants_network,
        "summary": f"{_describe_exit(dry_run)}, {count(len(dry_run.effect.files), 'change')}",
    }
    write_json(report)
