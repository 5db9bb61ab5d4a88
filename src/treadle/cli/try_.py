"""`treadle try`: a command on a copy-on-write view of the project, its output and its effect; the project stays as
it is (W-09)."""

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from treadle.cli.inert import inert, inert_line
from treadle.cli.project import project_root
from treadle.cli.session import configured
from treadle.cli.terminal import Colour, Terminal
from treadle.config import Config
from treadle.errors import SandboxError
from treadle.file_system import is_below
from treadle.lines.aside import count
from treadle.lines.changes import total
from treadle.ports.toolset import Invocation
from treadle.protocol.options import ChatOptions
from treadle.sandbox.supervisor.commands import SupervisedCommands
from treadle.sandbox.supervisor.removal import remove_tree
from treadle.sandbox.view_trial import view_works
from treadle.stores.memory import MemoryStore
from treadle.tool_setup import ToolSetup
from treadle.tools.builtin.command.output import exit_words
from treadle.tools.builtin.command.run import DryRun
from treadle.tools.builtin.command.tool import RunCommand
from treadle.types import CallKey, ChatId
from treadle.workspace.history.snapshots import ProjectSnapshots
from treadle.workspace.paths.root import Root

_PREFIX = "try-"
_OLD_S = 86_400
_COLOURS: dict[str, Colour] = {"+": "green", "-": "red", "@": "cyan", "[": "dim"}


class Wanted(msgspec.Struct, frozen=True):
    line: str
    root: str | None = None
    force_root: bool = False
    network: bool = False
    timeout_s: float = 120.0


def try_(wanted: Wanted, as_json: bool) -> int:
    config = configured()
    root = project_root(wanted.root, force=wanted.force_root)
    folder = _folder(config)
    try:
        terminal = Terminal()
        tried = asyncio.run(_tried(config, wanted, str(root), folder, None if as_json else terminal))
    finally:
        remove_tree(folder)
    if as_json:
        _print_json(wanted, str(root), tried)
    else:
        _print(terminal, tried)
    return 0


def _folder(config: Config) -> str:
    """Where the view lies: in Treadle's home, which may have more room than the memory behind /tmp. What a trial that
    was killed left there goes after a day."""
    config.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in config.home.glob(f"{_PREFIX}*"):
        if left.lstat().st_mtime < time.time() - _OLD_S:
            remove_tree(str(left))
    return str(Path(tempfile.mkdtemp(prefix=_PREFIX, dir=config.home)).resolve())


async def _tried(config: Config, wanted: Wanted, root: str, folder: str, terminal: Terminal | None) -> DryRun:
    equipment = ToolSetup(MemoryStore(), os.environ, config.home)
    commands = SupervisedCommands(Path(folder) / "commands")
    means = msgspec.structs.replace(
        equipment.context,
        commands=commands,
        snapshots_of=lambda path, bound: ProjectSnapshots(Root(path, bound), Path(folder)),
        views=lambda sandbox, path: view_works(sandbox, path, folder),
    )
    try:
        tried = await RunCommand(means).dry_run(_call(config, wanted, root, terminal), network=wanted.network)
    finally:
        await commands.close()
        await equipment.close()
    if tried is None:
        raise SandboxError(
            f"no copy-on-write view of {root} works here, so a command cannot be tried without really running it; "
            "treadle doctor shows which sandbox works, and views need bubblewrap 0.11"
        )
    return tried


def _call(config: Config, wanted: Wanted, root: str, terminal: Terminal | None) -> Invocation:
    arguments: dict[str, object] = {"command": wanted.line, "timeout_s": wanted.timeout_s, "fresh": True}
    here = os.path.realpath(os.getcwd())
    if is_below(here, root):
        arguments["cwd"] = here
    show = (lambda _text: None) if terminal is None else (lambda text: terminal.stream(inert(text)))
    options = ChatOptions(root=root, sandbox=config.settings.sandbox, network=wanted.network)
    return Invocation(ChatId("try"), CallKey("1.0"), "run_command", arguments, root, options=options, emit=show)


def _print(terminal: Terminal, tried: DryRun) -> None:
    terminal.end_line()
    for note in tried.notes:
        terminal.note(inert_line(note), "yellow")
    terminal.line(terminal.paint(f"[{_how(tried)}]", "dim"))
    for line in inert(tried.diff).split("\n"):
        colour = _COLOURS.get(line[:1])
        terminal.line(terminal.paint(line, colour) if colour else line)
    terminal.note("tried on a copy: nothing in the project was changed", "dim")


def _how(tried: DryRun) -> str:
    ended = tried.ended
    if ended.ending == "timed_out":
        return "it took too long and was stopped"
    return exit_words(ended)


def _print_json(wanted: Wanted, root: str, tried: DryRun) -> None:
    stat = total(tried.effect.files)
    told = {
        "command": wanted.line,
        "root": root,
        "ending": tried.ended.ending,
        "code": tried.ended.code,
        "output": tried.output,
        "added": stat.added,
        "removed": stat.removed,
        "files": tried.effect.files,
        "uncaptured": tried.effect.uncaptured,
        "summary": f"{_how(tried)}, {count(len(tried.effect.files), 'change')}",
    }
    sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
