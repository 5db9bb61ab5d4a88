"""run_command: a shell command in the project, its output live and bounded (T-05)."""

from typing import TYPE_CHECKING, Any

import msgspec

from treadle.adapters.tools.builtin.base import WithContext, build_parameters
from treadle.adapters.tools.builtin.command.output import HEAD_LINES, TAIL_LINES
from treadle.adapters.tools.builtin.command.request import DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S, parse_request
from treadle.ports.toolset import Invocation, Outcome, PlainTool, Rehearsal, Settlement, Trial
from treadle.protocol.tools import ShortForm, ToolSpec

if TYPE_CHECKING:
    from treadle.adapters.tools.builtin.command.trial import CommandTrial, DryRun

_LAST_LINES = 20


class RunCommand(WithContext, PlainTool):
    spec = ToolSpec(
        name="run_command",
        description=(
            "Run a shell command (bash) in the project. Output and errors come merged, with the exit code; of long "
            f"output the first {HEAD_LINES} and the last {TAIL_LINES} lines, and a handle for read_output. Folder and "
            "exported variables carry over to the next command. No input. All it starts ends with it, or after "
            f"timeout_s seconds ({DEFAULT_TIMEOUT_S}, at most {MAX_TIMEOUT_S}). For servers and interactive programs "
            "use background: they work on a copy of the project, and check_command or stop_command commits their "
            "changes. Dev servers and watchers need live too: they see later edits, and write only to ignored folders "
            "and those in writes."
        ),
        short=ShortForm("Run a shell command (bash) and see its output.", ("command",), untold=("timeout_s", "cwd")),
        parameters=build_parameters(
            required=("command",),
            command={"type": "string", "minLength": 1},
            timeout_s={"type": "number", "exclusiveMinimum": 0, "maximum": MAX_TIMEOUT_S, "default": DEFAULT_TIMEOUT_S},
            cwd={
                "type": "string",
                "description": "Where to run it, relative to the project root; else where the last command ended.",
            },
            background={"type": "boolean", "default": False, "description": "Start it and return at once."},
            live={
                "type": "boolean",
                "default": False,
                "description": "With background: it sees the project's own files, read-only, as they change.",
            },
            writes={
                "type": "array",
                "items": {"type": "string", "minLength": 1},
                "maxItems": 20,
                "description": 'With live: folders to write to, new or ignored, such as ".next".',
            },
            pty={"type": "boolean", "default": False, "description": "Give it a terminal."},
            fresh={
                "type": "boolean",
                "default": False,
                "description": "Start in the root with a fresh environment, and leave the shell as it was.",
            },
        ),
        timeout_s=MAX_TIMEOUT_S + 60.0,  # its own limit comes first, and then it tidies up
        summary_argument="command",
        command_argument="command",
    )

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        return msgspec.structs.asdict(await self._make_command_trial(invocation).prepare())

    async def run(self, invocation: Invocation) -> Outcome:
        return await self._make_command_trial(invocation).run_to_outcome()

    async def plan_trial(self, invocation: Invocation) -> Trial | None:
        return await self._make_command_trial(invocation).plan_trial()

    async def rehearse(self, invocation: Invocation) -> Rehearsal | None:
        command = self._make_command_trial(invocation)
        if invocation.arguments.get("background"):
            return await command.rehearse_start()
        trial_run = await self.run_trial(invocation)
        if trial_run is None:
            return None
        from treadle.adapters.tools.builtin.command.network import format_hosts  # many runs have no command

        lines = trial_run.output.split("\n") if trial_run.command_exit.size else []
        if len(lines) > _LAST_LINES:
            lines = [f"[{len(lines) - _LAST_LINES:,} lines before]", *lines[-_LAST_LINES:]]
        reached = [f"[{format_hosts(trial_run.hosts)}]"] if trial_run.hosts else []
        text = "\n".join([*trial_run.notes, *lines, *reached, trial_run.last, "", trial_run.diff])
        wants = " ".join(trial_run.wants_network)
        effect = trial_run.effect
        return Rehearsal(text, effect.files, effect.uncaptured, trial_run.unrecoverable, wants, history=effect.history)

    async def run_trial(self, invocation: Invocation) -> "DryRun | None":
        return await self._make_command_trial(invocation).run_trial()

    async def stop(self, invocation: Invocation) -> Outcome | None:
        return None if self._context.commands is None else await self._make_command_trial(invocation).stop()

    async def settle(self, invocation: Invocation) -> Settlement:
        return await self._make_command_trial(invocation).settle()

    def _make_command_trial(self, invocation: Invocation) -> "CommandTrial":
        from treadle.adapters.tools.builtin.command.trial import CommandTrial  # many runs have no command

        return CommandTrial(self._context, parse_request(invocation))
