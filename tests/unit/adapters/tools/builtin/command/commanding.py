"""A chat that runs commands: real supervisors in a temporary home, calls with keys of their own, and what the loop
would remember between them."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from treadle.adapters.sandbox.supervisor.commands import SupervisedCommands
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin.base import ToolContext
from treadle.adapters.tools.builtin.command.background import CheckCommand, SendInput, StopCommand
from treadle.adapters.tools.builtin.command.output import ReadOutput
from treadle.adapters.tools.builtin.command.tool import RunCommand
from treadle.adapters.workspace.root import Root
from treadle.base.types import CallKey, ChatId
from treadle.ports.toolset import Invocation, Outcome, Tool
from treadle.protocol.content import Shell
from treadle.protocol.options import ChatOptions

CHAT = ChatId("c_1")


class Bench:
    def __init__(self, folder: Path, env: Mapping[str, str] | None = None, **context: Any) -> None:
        self.project = folder / "project"
        self.project.mkdir(exist_ok=True)
        self.home = folder / "home"
        self.commands = SupervisedCommands(self.home / "commands")
        self.context = ToolContext(
            Root, MemoryStore(), self.commands, env=os.environ if env is None else env, **context
        )
        tools: list[Tool] = [RunCommand(self.context), CheckCommand(self.context), SendInput(self.context)]
        tools += [StopCommand(self.context), ReadOutput(self.context)]
        self.tools = {tool.spec.name: tool for tool in tools}
        self.options = ChatOptions()
        self.shell = Shell()
        self.outputs: dict[str, str] = {}
        self._calls = 0

    def call(self, name: str = "run_command", *, emit: Callable[[str], None] = lambda _: None, **arguments: Any):
        self._calls += 1
        return Invocation(
            CHAT,
            CallKey(f"{self._calls}.0"),
            name,
            arguments,
            options=msgspec.structs.replace(self.options, root=str(self.project)),
            shell=self.shell,
            outputs=self.outputs,
            emit=emit,
        )

    async def run(self, invocation: Invocation) -> Outcome:
        outcome = await self.tools[invocation.name].run(invocation)
        self.shell = outcome.shell or self.shell
        if outcome.output:
            self.outputs[invocation.call] = outcome.output
        return outcome

    async def __call__(self, command: str, **arguments: Any) -> Outcome:
        return await self.run(self.call(command=command, **arguments))

    async def use(self, name: str, **arguments: Any) -> Outcome:
        """A call that is prepared before it runs, as the loop does."""
        call = self.call(name, **arguments)
        return await self.run(replace(call, plan=await self.tools[name].prepare(call)))


class OutputRecorder:
    """Live output, and a way to wait for a piece of it."""

    def __init__(self) -> None:
        self.text = ""
        self._news = asyncio.Event()

    def __call__(self, text: str) -> None:
        self.text += text
        self._news.set()

    async def wait_for(self, piece: str) -> str:
        async with asyncio.timeout(30):
            while piece not in self.text:
                self._news.clear()
                await self._news.wait()
        return self.text


def alive(pid: int) -> bool:
    """A zombie is dead, only not yet buried."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    if sys.platform == "linux":
        return False
    return subprocess.run(["ps", "-p", str(pid)], capture_output=True, check=False).returncode == 0


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not fact():  # noqa: ASYNC110 - a fact of other processes
            await asyncio.sleep(0.01)
