"""`python -m bench.asked [--mode MODE] [--only WORD] [--json FILE]`: how often a person is asked. Every command of a
list of ordinary work is run for real, by a scripted model through the loop, in a sample project; then every command of
a list whose effect nobody wants; in the foreground, and some in the background. Counted: ordinary commands that pass
unasked, harmful effects committed unasked."""

import argparse
import asyncio
import contextlib
import shutil
import stat
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.asked import projects
from bench.asked.commands import HARMFUL, background_commands, commands
from treadle import Agent, ChatOptions
from treadle.adapters.models.scripted import Call, Say, ScriptedModel
from treadle.adapters.stores.memory import MemoryStore
from treadle.protocol.options import MODES, Mode

_TIMEOUT_S = 120
_WAIT_S = 20
"""How long a background command may be silent before it is stopped."""


class Typed(msgspec.Struct, frozen=True):
    """What became of one command."""

    kind: str
    command: str
    reason: str
    """Why a person was asked; empty: nobody was."""
    changed: tuple[str, ...]
    """What is different in the project, if nobody was asked."""
    background: bool = False


class Desk:
    """Where the commands are typed: one sample project of each kind, copied for every command."""

    def __init__(self, folder: Path, mode: Mode) -> None:
        self._folder = folder
        self._mode = mode
        for kind in projects.FILES:
            projects.make(kind, folder / "samples" / kind)

    async def type(self, kind: str, command: str, *, background: bool = False) -> Typed:
        root = self._folder / "project"
        if root.exists():
            shutil.rmtree(root)
        shutil.copytree(self._folder / "samples" / kind, root, symlinks=True)
        before = _tree(root)
        model = ScriptedModel([*_calls(command, background=background), Say("Done.")])
        options = ChatOptions(mode=self._mode, interactive=True, summarize=False, verify=False, root=str(root))
        async with Agent(MemoryStore(), model=model, home=self._folder / "home", options=options) as agent:
            chat = agent.chat()
            async for _ in chat.send("Go."):
                pass
            actions = await chat.actions()
            reason = actions[0].reason if actions else ""
            if actions:
                await chat.interrupt()
        after = _tree(root)
        changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
        return Typed(kind, command, reason, () if reason else tuple(changed), background)


def _calls(command: str, *, background: bool) -> list[Call]:
    """Start a command, or start it in the background, wait for its first output, and stop it, which commits."""
    if not background:
        return [Call("run_command", command=command, timeout_s=_TIMEOUT_S)]
    return [
        Call("run_command", command=command, background=True),
        Call("check_command", handle="1.0", wait_s=_WAIT_S),
        Call("stop_command", handle="1.0"),
    ]


def _tree(root: Path) -> dict[str, tuple[int, bytes]]:
    """Paths with mode and bytes, without git's own bookkeeping, which any look at a project may touch."""
    found: dict[str, tuple[int, bytes]] = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        status = path.lstat()
        content = b""
        with contextlib.suppress(OSError):
            content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        if name != ".git/index" and not stat.S_ISDIR(status.st_mode):
            found[name] = (status.st_mode, content)
    return found


async def run(mode: Mode, only: str) -> tuple[list[Typed], list[Typed]]:
    with tempfile.TemporaryDirectory(prefix="treadle-asked-", dir=Path.home()) as folder:
        desk = Desk(Path(folder), mode)
        lists: tuple[list[Typed], list[Typed]] = ([], [])
        in_background = (background_commands(), [(kind, f"{command}; echo done") for kind, command in HARMFUL])
        for found, wanted, started in zip(lists, (commands(), HARMFUL), in_background, strict=True):
            typed = [(each, False) for each in wanted] + [(each, True) for each in started]
            for (kind, command), background in typed:
                if only in command:
                    found.append(await desk.type(kind, command, background=background))
                    print("." if not found[-1].reason else "?", end="", flush=True, file=sys.stderr)
            print(file=sys.stderr)
        return lists


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.asked", description=__doc__)
    parser.add_argument("--mode", choices=MODES, default="ask")
    parser.add_argument("--only", default="", metavar="WORD", help="only commands that contain this")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what became of each command")
    chosen = parser.parse_args(words)
    ordinary, harmful = asyncio.run(run(chosen.mode, chosen.only))
    asked = [each for each in ordinary if each.reason]
    unasked = [each for each in harmful if not each.reason and each.changed]
    for each in asked:
        print(f"asked for   {each.kind:10} {each.command!r}{' &' * each.background}: {each.reason}")
    for each in unasked:
        print(f"not asked   {each.kind:10} {each.command!r}{' &' * each.background}: {', '.join(each.changed[:5])}")
    share = 1 - len(asked) / max(1, len(ordinary))
    print(f"mode {chosen.mode}: {len(ordinary)} ordinary commands, {share:.1%} without a question")
    print(f"{len(harmful)} harmful commands, {len(unasked)} committed something unasked")
    if chosen.json:
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode({"ordinary": ordinary, "harmful": harmful})))


if __name__ == "__main__":
    main(sys.argv[1:])
