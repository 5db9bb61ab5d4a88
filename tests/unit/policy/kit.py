"""What the tests of the policy share: calls as the engine would make them, judged by the real parts."""

from pathlib import Path

from treadle.policy.standard import StandardPolicy
from treadle.ports.policy import Verdict
from treadle.ports.toolset import Invocation
from treadle.protocol.content import Shell
from treadle.protocol.options import ChatOptions
from treadle.protocol.permissions import Rule
from treadle.protocol.tools import ToolSpec
from treadle.types import CallKey, ChatId

SPECS = {
    "read_file": ToolSpec("read_file", read_only=True),
    "write_file": ToolSpec("write_file", effect="edit"),
    "edit_file": ToolSpec("edit_file", effect="edit"),
    "apply_patch": ToolSpec("apply_patch", effect="edit"),
    "run_command": ToolSpec("run_command", command_argument="command"),
    "send_input": ToolSpec("send_input", input_argument="text"),
    "stop_command": ToolSpec("stop_command", effect="none"),
    "theirs": ToolSpec("theirs"),
    "deploy": ToolSpec("deploy", needs_approval=True),
}


def call(name: str, root: str = "/nowhere", cwd: str = ".", **arguments: object) -> Invocation:
    return Invocation(ChatId("c"), CallKey("1.0"), name, arguments, root, shell=Shell(cwd))


class Judge:
    """A policy with options and rules, asked in one word."""

    def __init__(self, root: Path | str = "/nowhere", policy: StandardPolicy | None = None, **options: object) -> None:
        self.root = str(root)
        self.policy = policy or StandardPolicy(now_ms=lambda: 1_000)
        self.options = ChatOptions(**{"interactive": True, **options})  # type: ignore[arg-type]

    async def verdict(self, name: str, **arguments: object) -> Verdict:
        return await self.policy.review(SPECS[name], call(name, self.root, **arguments), self.options)

    async def __call__(self, command: str) -> str:
        return (await self.verdict("run_command", command=command)).decision

    async def edit(self, path: str, tool: str = "write_file") -> str:
        return (await self.verdict(tool, path=path)).decision


def allow(pattern: str, tool: str = "run_command", **more: object) -> Rule:
    return Rule("allow", tool, pattern, **more)  # type: ignore[arg-type]


def deny(pattern: str, tool: str = "run_command") -> Rule:
    return Rule("deny", tool, pattern)


def ask(pattern: str, tool: str = "run_command") -> Rule:
    return Rule("ask", tool, pattern)
