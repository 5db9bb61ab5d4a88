"""What a call of run_command says, as its supervisor needs it: where the command runs, in which environment, confined
how and for how long."""

import os
from typing import Any

import msgspec

from treadle.errors import SandboxError, ToolError
from treadle.file_system import is_below
from treadle.host_patterns import joined, without
from treadle.ports.commands import CommandSpec, Ended
from treadle.ports.sandbox import LAID, Confinement, Direct, Sandbox, View
from treadle.ports.toolset import Invocation
from treadle.ports.workspace import inert
from treadle.protocol.content import Shell
from treadle.protocol.options import NetworkChoice
from treadle.tools.builtin.base import in_thread
from treadle.tools.builtin.command import output, shell
from treadle.tools.builtin.command.network import network_of, through_proxy
from treadle.tools.builtin.command.shell import ShellEnd
from treadle.tools.builtin.context import ToolContext
from treadle.tools.builtin.environment import command_environment

DEFAULT_TIMEOUT_S = 120
MAX_TIMEOUT_S = 600
BACKGROUND_S = 24 * 3600.0
"""A background process that everybody forgot ends after a day."""

_LOST = "[the command's supervisor was killed; what the command did before and after that is not known]"
_LOST_VIEW = "[the command's supervisor was killed; nothing of what the command changed in the project was committed"
_LOST_NETWORK = "; what it did over the network is not known"


_ONLY_BUBBLEWRAP = (
    "[named hosts can be reached only in the sandbox bubblewrap, so this command had no network; a person can "
    "allow all hosts]"
)


_BARRED = (
    "[a rule denies some hosts, and of all hosts none can be left out, so this command had no network; a person can "
    "allow hosts by name]"
)


class CommandPlan(msgspec.Struct, frozen=True):
    """How the command of a call runs: decided before the intent is recorded, and recorded with it."""

    place: str = ""
    """The machine and the home where it was planned; see `Commands.place`."""
    sandbox: str = ""
    """The confinement in words (S-03)."""
    view: bool = False
    network: NetworkChoice = False
    key: str = ""
    """Of its first attempt."""
    captured: bool = False
    """Whether the tree is compared before and after."""
    discard: str = ""
    """Why nothing of what it changes is committed; empty: it is."""
    attempt: int = 1
    """Which attempt a trial begins."""
    own: str = ""
    """The name under which this home knows it: the call's key, with a number behind it if there was a call of this key
    before, in a log that was lost (a database that was put back)."""


def _as_recorded(plan: dict[str, Any], call: str) -> CommandPlan:
    own = str(plan.get("own") or call)
    known = {name: plan[name] for name in CommandPlan.__struct_fields__ if name in plan}
    return msgspec.convert({"key": own, **known, "own": own}, CommandPlan)


class CommandCall:
    """The words of one call. Where it runs is known after `locate`."""

    cwd: str
    environment: dict[str, str]
    """Of a fresh command."""
    notes: tuple[str, ...]
    """What is to be said about where it runs."""

    def __init__(self, context: ToolContext, invocation: Invocation) -> None:
        self._context = context
        self._invocation = invocation
        self._arguments = invocation.arguments
        recorded = invocation.plan or {}
        self.trial = None if invocation.trial is None else _as_recorded(invocation.trial.plan, invocation.call)
        """How it was last tried, as far as that is recorded."""
        self.plan = _as_recorded(recorded, invocation.call if self.trial is None else self.trial.own)
        """As the intent recorded it. Calls of earlier versions wrote through, and nothing was compared."""
        self._sandbox: Sandbox | SandboxError | None = None

    @property
    def background(self) -> bool:
        return bool(self._arguments.get("background"))

    @property
    def title(self) -> str:
        """The command in one line, for lists."""
        return str(self._arguments["command"]).strip().partition("\n")[0][:200]

    @property
    def timeout_s(self) -> float:
        return min(float(self._arguments.get("timeout_s") or DEFAULT_TIMEOUT_S), MAX_TIMEOUT_S)

    @property
    def shell(self) -> Shell:
        """The shell that it goes on with."""
        return Shell() if self._arguments.get("fresh") else self._invocation.shell

    async def sandbox(self) -> Sandbox | None:
        """The one that the chat demands, looked for once; None where there is none to be had and none is demanded."""
        if self._sandbox is None and self._context.sandbox_of is not None:
            await in_thread(self._find_sandbox)
        if isinstance(self._sandbox, SandboxError):
            raise self._sandbox
        return self._sandbox

    def _find_sandbox(self) -> None:
        if self._sandbox is None and self._context.sandbox_of is not None:
            try:
                self._sandbox = self._context.sandbox_of(self._invocation.options.sandbox)
            except SandboxError as error:  # for whoever needs it: what runs already does not
                self._sandbox = error

    async def locate(self) -> None:
        """Find out where it runs."""
        await in_thread(self.look_around)

    def look_around(self) -> None:
        """The same in a thread of the caller's."""
        workspace = self._context.workspace_of(*self._invocation.project)
        self.cwd, note = shell.start_directory(workspace, str(self._arguments.get("cwd") or ""), self.shell.cwd)
        self._world = workspace.world
        self.notes = (note,) if note else ()
        self._root = os.path.realpath(self._invocation.root)
        self._guarded = self._context.guarded(self._root)
        self.environment = command_environment(self._context.env, self._context.allowance.env)
        if self._guarded.home is not None:
            self.environment = {**self._guarded.home.variables, **self.environment}
        if self._arguments.get("pty"):
            self.environment["TERM"] = "xterm"
        self._find_sandbox()

    async def refuse_outside(self) -> None:
        """The strict profile: by setting, and always where no sandbox works (S-15)."""
        sandbox = await self.sandbox()
        confined = sandbox is not None and sandbox.level != "none"
        if confined and not self._invocation.options.strict_paths:
            return
        words = self._context.outside(str(self._arguments["command"]), self._invocation.root, self.cwd)
        if words:
            why = "strict_paths is on" if confined else "no sandbox confines commands on this machine"
            named = ", ".join(inert(word) for word in words[:5])
            raise ToolError(
                f"Not run: {named} leads out of the project root, and {why}. Use paths inside the project, relative "
                "and without '..'."
            )

    async def spec(self, plan: CommandPlan, view: str, log: str) -> CommandSpec:
        """`view` is the folder of the copy-on-write view that it runs on; empty: on the project itself. `log` is where
        the proxy writes what the command reaches."""
        sandbox, line = await self.sandbox(), str(self._arguments["command"])
        root, pty = self._root, bool(self._arguments.get("pty"))
        argv, state_fd = shell.shell_argv(line)
        lays = bool(view) and sandbox is not None and sandbox.lays
        lays = lays and self._world is None and not is_below(root, LAID) and not is_below(view, LAID)
        if sandbox is not None:
            guarded = self._guarded
            mount = View(f"{view}/upper", f"{view}/work", lays) if view else Direct()
            confinement = Confinement(
                root,
                mount,
                network_of(plan.network, log),
                guarded.protected,
                guarded.hidden,
                guarded.home,
                world=self._world,
                terminal=pty,
            )
            argv = tuple(sandbox.wrap(argv, confinement, self.cwd))
        return CommandSpec(
            argv,
            self.cwd if self._world is None else root,  # where it is only in the world there is nothing to start it in
            shell.environment(self._environment(plan), self.shell),
            BACKGROUND_S if self.background else self.timeout_s,
            idle_s=self._context.allowance.job_idle_s if self.background else 0.0,
            pty=pty,
            background=self.background,
            input=self.background or pty,
            output_cap=output.CAP,
            state_fd=0 if self.background or self._arguments.get("fresh") else state_fd,
            title=self.title,
            view=root if view else "",
            lays=LAID if lays else "",
            limits=self._context.allowance.limits,
        )

    async def network(self, *, rehearsal: bool = False) -> NetworkChoice:
        """What the command may reach. Named hosts need a network of its own, which only bubblewrap makes: elsewhere
        there are none."""
        wanted = self.wanted(rehearsal=rehearsal)
        sandbox = await self.sandbox()
        return wanted if isinstance(wanted, bool) or (sandbox is not None and sandbox.level == "bubblewrap") else False

    def wanted(self, *, rehearsal: bool = False) -> NetworkChoice:
        """In mode review a rehearsal reaches only what a person granted to this very call: what is to be reviewed has
        done nothing yet, anywhere (W-09)."""
        options, barred = self._invocation.options, self._invocation.barred
        granted = without(self._invocation.network, barred)
        if rehearsal and options.mode == "review":
            return granted
        return joined(without(options.network, barred), granted)

    def network_notes(self, plan: CommandPlan) -> tuple[str, ...]:
        """What is to be said about hosts that were allowed and yet could not be reached."""
        unable = plan.sandbox.startswith(("landlock", "sandbox-exec"))
        if self._invocation.barred and self._invocation.options.network is True and not plan.network:
            return (_BARRED,)
        return (_ONLY_BUBBLEWRAP,) if unable and not plan.network and self.wanted() else ()

    def _environment(self, plan: CommandPlan) -> dict[str, str]:
        """Of a fresh command with this plan."""
        return self.environment | (through_proxy() if isinstance(plan.network, tuple) else {})

    async def can_view(self) -> bool:
        """Whether the command can run on a copy-on-write view of the project."""
        if self.background or self._arguments.get("pty") or not self._invocation.options.command_view:
            return False
        return self._context.snapshots_of is not None and await in_thread(self._views)

    def _views(self) -> bool:
        self._find_sandbox()
        if isinstance(self._sandbox, SandboxError):
            raise self._sandbox
        sandbox = self._sandbox
        return sandbox is not None and sandbox.views and self._context.views(sandbox, self._invocation.root)

    def ending(self, ended: Ended, plan: CommandPlan) -> tuple[str, str]:
        """In a few words for people, and as the last line for the model."""
        match ended.ending:
            case "timed_out":
                how = f"timed out after {self.timeout_s:g} s"
                return how, f"[{how}; the command and everything it started were stopped]"
            case "exceeded":
                how = output.exit_words(ended)
                kept = "; nothing of what it changed was committed" if plan.view else ""
                return how, f"[{how}; everything it had started was ended{kept}]"
            case "stopped":
                return "stopped", "[the command was stopped, with everything it had started]"
            case "lost" if plan.view:
                return "lost", f"{_LOST_VIEW}{_LOST_NETWORK if plan.network else ''}]"
            case "lost":
                return "lost", _LOST
            case _:
                how = output.exit_words(ended)
                return how, f"[{how}]"

    def shell_end(self, told: bytes, plan: CommandPlan) -> ShellEnd:
        workspace = self._context.workspace_of(*self._invocation.project)
        return shell.read_end(told, self._invocation.shell, self._environment(plan), workspace, self._context.env)
