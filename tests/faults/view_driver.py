"""A program that runs a command on a copy-on-write view and is killed at every point of that, one after the other, each
time in a fork and in a folder of its own; another fork then comes and settles it, as the next worker would. Prints what
was wrong, as JSON.

    python -m tests.faults.view_driver FOLDER HOME (settle|stop|lost) STEP

settle: the next worker goes on with it · stop: it was interrupted meanwhile · lost: its supervisor was killed, too.
STEP: every how many points it is killed.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.unit.adapters.workspace.trees import Node, build, picture
from treadle.adapters.sandbox.choose import choose
from treadle.adapters.sandbox.supervisor import folder as names
from treadle.adapters.sandbox.supervisor.commands import SupervisedCommands
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin.base import ToolContext
from treadle.adapters.tools.builtin.command.tool import RunCommand
from treadle.adapters.workspace.history.snapshots import ProjectSnapshots
from treadle.adapters.workspace.root import Root
from treadle.base import file_system
from treadle.base.types import CallKey, ChatId
from treadle.ports.sandbox import Sandbox
from treadle.ports.toolset import Invocation, Outcome
from treadle.protocol.options import ChatOptions
from treadle.testing.faults import Fault, Faults

OLD = {
    b"edited": Node("file", 0o640, b"old\n"),
    b"mode": Node("file", 0o644, b"mode"),
    b"gone": Node("file", 0o600, b"gone"),
    b"tree": Node("directory", 0o755, inside={b"empty": Node("directory", 0o711), b"f": Node("file", 0o644, b"f")}),
    b"moved": Node("link", 0, b"nowhere"),
}
NEW = {
    b"counter": Node("file", 0o644, b"ran\n"),
    b"edited": Node("file", 0o640, b"old\nmore\n"),
    b"mode": Node("file", 0o755, b"mode"),
    b"tree": Node("file", 0o644, b"tree\n"),
    b"there": Node("link", 0, b"nowhere"),
    b"made": Node(
        "directory", 0o750, inside={b"p": Node("link", 0, b"closed"), b"closed": Node("file", 0o000, b"x\n")}
    ),
}
COMMAND = (
    "umask 022; echo ran >> counter; echo more >> edited; chmod 755 mode; rm gone; rm -r tree; echo tree > tree; "
    "mv moved there; mkdir made; ln -s closed made/p; echo x > made/closed; chmod 000 made/closed; chmod 750 made; "
    "echo said"
)
CHAT, CALL = ChatId("c_1"), CallKey("1.0")


class Case:
    def __init__(self, folder: Path, sandbox: Sandbox) -> None:
        self.folder = folder
        self.project = folder / "project"
        self._sandbox = sandbox

    def build(self) -> None:
        self.folder.mkdir()
        self.project.mkdir()
        build(self.project, OLD)

    def tool(self) -> RunCommand:
        home = self.folder / "home"
        means = ToolContext(
            Root,
            MemoryStore(),
            SupervisedCommands(home / "commands"),
            lambda _demand: self._sandbox,
            os.environ,
            snapshots_of=lambda root, root_id, _world="": ProjectSnapshots(Root(root, root_id), home),
        )
        return RunCommand(means)

    def call(self) -> Invocation:
        """The call with its recorded intent."""
        plan = json.loads((self.folder / "plan").read_text())
        return replace(self._bare(), plan=plan)

    def _bare(self) -> Invocation:
        arguments = {"command": COMMAND, "fresh": True}
        options = ChatOptions(root=str(self.project))
        return Invocation(CHAT, CALL, "run_command", arguments, options=options)

    async def intend(self) -> None:
        (self.folder / "plan").write_text(json.dumps(await self.tool().prepare(self._bare())))

    async def run(self) -> None:
        self._record(await self.tool().run(self.call()))

    async def settle(self) -> None:
        decision = await self.tool().settle(self.call())
        assert decision == "run_again", decision
        await self.run()

    async def stop(self) -> None:
        self._record(await self.tool().stop(self.call()))

    def _record(self, outcome: Outcome | None) -> None:
        record = None if outcome is None else {"text": outcome.text, "files": [file.path for file in outcome.files]}
        (self.folder / "outcome").write_text(json.dumps(record))

    def outcome(self) -> dict[str, Any] | None:
        record: dict[str, Any] | None = json.loads((self.folder / "outcome").read_text())
        return record

    def end_supervisor(self) -> None:
        """Kill -9, if it lives; wait until nothing is left of it."""
        folder = self.folder / "home/commands" / CHAT / CALL
        with suppress(FileNotFoundError):
            os.kill(int((folder / names.OWNER).read_text().split()[0]), signal.SIGKILL)
        until = time.monotonic() + 60
        while names.read_state(str(folder)) == names.RUNNING and time.monotonic() < until:
            time.sleep(0.005)

    def tidy(self) -> None:
        """No process of the case is left, so that its folder can go."""
        until = time.monotonic() + 60
        for folder in (self.folder / "home/commands" / CHAT).iterdir():
            while names.read_state(str(folder)) == names.RUNNING and time.monotonic() < until:
                time.sleep(0.005)


def run_in_fork(work: Callable[[], Coroutine[Any, Any, None]], kill_at: int = 0) -> int:
    """Do something in a process of its own; the signal that ended it, or 0, or a negative number for an error."""
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            if kill_at:
                file_system.install_fault_hook(Faults([Fault("kill", passing=kill_at)]))
            asyncio.run(work())
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            code = 1
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)


def problems_of(case: Case, scenario: str, point: int) -> list[str]:
    """One kill, one recovery, and what is not as it must be."""
    case.build()
    old, goal = picture(case.project), case.folder / "goal"
    goal.mkdir()
    build(goal, NEW)
    if run_in_fork(case.intend):
        return [f"point {point}: the call could not be prepared"]
    killed = run_in_fork(case.run, point)
    if killed == 0:
        return [DONE]
    if scenario == "lost":
        case.end_supervisor()
    code = run_in_fork(case.stop if scenario == "stop" else case.settle)
    case.tidy()
    new = picture(case.project)
    context = f"{scenario}, killed ({killed}) at point {point}"
    if code:
        return [f"{context}: the next worker failed ({code})"]
    outcome = case.outcome()
    is_unchanged, is_changed = new == old, new == picture(goal)
    problems = [] if is_unchanged or is_changed else [f"{context}: neither before nor after: {sorted(new)}"]
    if scenario != "stop":
        problems += [] if is_changed else [f"{context}: it was not made"]
        if outcome is None or not outcome["text"].startswith("said\n"):
            problems.append(f"{context}: its output is lost: {outcome}")
        if outcome is not None and "counter" not in outcome["files"]:
            problems.append(f"{context}: what it changed is not told: {outcome}")
    elif is_changed != (outcome is not None and "counter" in outcome["files"]):
        problems.append(f"{context}: made {is_changed}, told {outcome}")
    return problems


DONE = "all points were passed"


def main(folder: Path, home: Path, scenario: str, step: int) -> dict[str, Any]:
    sandbox = choose(home).sandbox
    if not sandbox.views:
        return {"skip": "no copy-on-write view works on this machine"}
    all_problems: list[str] = []
    point = 1
    while True:
        problems = problems_of(Case(folder / str(point), sandbox), scenario, point)
        if problems == [DONE]:
            return {"points": point - 1, "problems": all_problems}
        all_problems += problems
        point += step


if __name__ == "__main__":
    _, _folder, _home, _scenario, _step = sys.argv
    os.umask(0o022)
    print(json.dumps(main(Path(_folder), Path(_home), _scenario, int(_step))))
