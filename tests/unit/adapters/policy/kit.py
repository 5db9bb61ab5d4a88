"""What the tests of the policy share: calls as the engine would make them, judged by the real parts."""

from pathlib import Path

from treadle.adapters.policy.standard import StandardPolicy
from treadle.base.types import CallKey, ChatId
from treadle.ports.policy import Verdict
from treadle.ports.toolset import Invocation, Rehearsal
from treadle.protocol.content import Shell
from treadle.protocol.files import FileChange
from treadle.protocol.options import ChatOptions
from treadle.protocol.permissions import Rule
from treadle.protocol.tools import ToolSpec

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

_NEW_SHELL = Shell()


def call(name: str, root: str = "/nowhere", shell: Shell = _NEW_SHELL, **arguments: object) -> Invocation:
    return Invocation(ChatId("c"), CallKey("1.0"), name, arguments, options=ChatOptions(root=root), shell=shell)


class Judge:
    """A policy with options and rules, asked in one word."""

    def __init__(self, root: Path | str = "/nowhere", policy: StandardPolicy | None = None, **options: object) -> None:
        self.root = str(root)
        self.policy = policy or StandardPolicy(now_ms=lambda: 1_000)
        self.options = ChatOptions(**{"interactive": True, **options})  # type: ignore[arg-type]
        self.shell = Shell()
        """As earlier commands left it."""

    async def verdict(self, name: str, **arguments: object) -> Verdict:
        """Where nobody can find out what the call would change."""
        return await self.review_rehearsed_call(None, name, **arguments)

    async def review_rehearsed_call(self, rehearsal: Rehearsal | None, name: str, **arguments: object) -> Verdict:
        """As the engine asks: by words, and if that is not enough by what the call would change."""
        spec, invocation = SPECS[name], call(name, self.root, self.shell, **arguments)
        verdict = await self.policy.review(spec, invocation, self.options)
        if verdict.decision == "review":
            verdict = await self.policy.judge(spec, invocation, self.options, rehearsal, verdict)
        return verdict

    async def changing(self, *files: FileChange, command: str = "make all", unrecoverable: tuple[str, ...] = ()) -> str:
        """A command with this effect."""
        rehearsal = Rehearsal("", files, unrecoverable=unrecoverable)
        return (await self.review_rehearsed_call(rehearsal, "run_command", command=command)).decision

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
