"""The request of a run_command call and its plan, read once from the invocation. All modules of the tool work with it.
Looks at nothing but the call."""

from typing import Any

import msgspec

from treadle.adapters.tools.builtin.command.output import describe_exit
from treadle.base.host_patterns import exclude_hosts, join_choices
from treadle.ports.commands import CommandExit
from treadle.ports.toolset import Invocation
from treadle.protocol.content import Shell
from treadle.protocol.options import NetworkChoice
from treadle.protocol.tools import compute_digest

DEFAULT_TIMEOUT_S = 120
MAX_TIMEOUT_S = 600

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

    place: str = ""  # The machine and the home where it was planned; see `Commands.place`
    sandbox: str = ""  # The confinement in words (S-03)
    view: bool = False
    network: NetworkChoice = False
    key: str = ""  # Of its first attempt
    captured: bool = False  # True if the tree is compared before and after
    discard: str = ""  # Why nothing of what it changes is committed; empty: it is
    attempt: int = 1  # Which attempt a trial begins
    live: bool = False  # True if it sees the project's own files, read-only, with a view of `layers` alone
    layers: tuple[str, ...] = ()
    read_only: int = 0  # How many ignored folders have no layer, because there are too many
    made: tuple[str, ...] = ()  # Folders that are made in the project for it, each before those that lie in it
    own: str = ""  # its name in this home: the call's key, with a number if a lost log had used that key


class CommandRequest(Invocation, frozen=True, kw_only=True):
    planned: CommandPlan  # as the intent recorded it. Earlier versions wrote through, and compared nothing
    trial_plan: CommandPlan | None  # The plan of `trial`

    line: str
    cwd: str
    timeout_s: float
    writes: tuple[str, ...]
    background: bool
    live: bool
    pty: bool
    fresh: bool

    @property
    def title(self) -> str:
        return self.line.strip().partition("\n")[0][:200]

    @property
    def begins_in(self) -> Shell:
        return Shell() if self.fresh else self.shell

    def get_wanted_network(self, *, rehearsal: bool = False) -> NetworkChoice:
        """The hosts that it may reach. In mode review a rehearsal reaches only those granted to this call (W-09)."""
        granted, is_reviewed = exclude_hosts(self.network, self.barred), rehearsal and self.options.mode == "review"
        return granted if is_reviewed else join_choices(exclude_hosts(self.options.network, self.barred), granted)

    def list_network_notes(self, plan: CommandPlan) -> tuple[str, ...]:
        if plan.network:
            return ()
        if self.barred and self.options.network is True:
            return (_BARRED,)
        unable = plan.sandbox.startswith(("landlock", "sandbox-exec"))
        return (_ONLY_BUBBLEWRAP,) if unable and self.get_wanted_network() else ()

    def make_dry_key(self, own_key: str) -> str:
        """The key of the trial. An edited command, or one that may reach more hosts, is another one."""
        network = self.get_wanted_network(rehearsal=True)
        return f"{own_key}~{compute_digest([self.arguments, network] if network else self.arguments)[:12]}"

    def describe_ending(self, command_exit: CommandExit, plan: CommandPlan) -> tuple[str, str]:
        match command_exit.ending:
            case "timed_out":
                description = f"timed out after {self.timeout_s:g} s"
                return description, f"[{description}; the command and everything it started were stopped]"
            case "exceeded":
                description = describe_exit(command_exit)
                commit_note = "; nothing of what it changed was committed" if plan.view else ""
                return description, f"[{description}; everything it had started was ended{commit_note}]"
            case "stopped":
                return "stopped", "[the command was stopped, with everything it had started]"
            case "lost":
                return "lost", f"{_LOST_VIEW}{_LOST_NETWORK if plan.network else ''}]" if plan.view else _LOST
            case _:
                description = describe_exit(command_exit)
                return description, f"[{description}]"


def parse_request(invocation: Invocation) -> CommandRequest:
    trial, arguments = invocation.trial, invocation.arguments
    trial_plan = None if trial is None else _as_recorded(trial.plan, invocation.call)
    return CommandRequest(
        **msgspec.structs.asdict(invocation),
        planned=_as_recorded(invocation.plan or {}, invocation.call if trial_plan is None else trial_plan.own),
        trial_plan=trial_plan,
        line=str(arguments.get("command") or ""),
        cwd=str(arguments.get("cwd") or ""),
        timeout_s=min(float(arguments.get("timeout_s") or DEFAULT_TIMEOUT_S), MAX_TIMEOUT_S),
        writes=tuple(map(str, arguments.get("writes") or ())),
        background=bool(arguments.get("background")),
        live=bool(arguments.get("live")),
        pty=bool(arguments.get("pty")),
        fresh=bool(arguments.get("fresh")),
    )


def _as_recorded(plan: dict[str, Any], call: str) -> CommandPlan:
    own_key = str(plan.get("own") or call)
    return msgspec.convert({"key": own_key, **plan, "own": own_key}, CommandPlan)
