"""How the command of a request is set up, as its supervisor needs it: where it runs, in which environment, confined how
and for how long."""

import os
from functools import cached_property

from msgspec import to_builtins
from msgspec.structs import replace

from treadle.adapters.tools.builtin.base import Guarded, ToolContext, run_in_thread
from treadle.adapters.tools.builtin.command import output, shell
from treadle.adapters.tools.builtin.command.network import make_network, make_proxy_variables
from treadle.adapters.tools.builtin.command.request import CommandPlan, CommandRequest
from treadle.adapters.tools.builtin.command.shell import ShellEnd, build_command_environment
from treadle.base.file_system import is_below
from treadle.errors import SandboxError, ToolError
from treadle.ports.commands import CommandSpec
from treadle.ports.sandbox import HIDING, LAID, Confinement, Direct, FolderLayer, Live, RootMount, Sandbox, View
from treadle.ports.workspace import escape_name
from treadle.protocol.files import encode_path
from treadle.protocol.options import NetworkChoice

BACKGROUND_S = 24 * 3600.0  # A background process that everybody forgot ends after a day


class CommandSetup:
    """Where it runs is known after `locate`."""

    cwd: str
    notes: tuple[str, ...]  # Notes about the folder that the command runs in

    def __init__(self, context: ToolContext, request: CommandRequest) -> None:
        self._context, self._request = context, request
        self._sandbox: Sandbox | SandboxError | None = None

    async def get_sandbox(self) -> Sandbox | None:
        """The one that the chat demands, looked for once; None where there is none to be had and none is demanded."""
        if self._sandbox is None and self._context.sandbox_of is not None:
            await run_in_thread(self._find_sandbox)
        return self._require_sandbox()

    async def is_confined(self) -> bool:
        sandbox = await self.get_sandbox()
        return sandbox is not None and sandbox.level != "none"

    def _require_sandbox(self) -> Sandbox | None:
        self._find_sandbox()
        if isinstance(self._sandbox, SandboxError):
            raise self._sandbox
        return self._sandbox

    def _find_sandbox(self) -> None:
        if self._sandbox is None and self._context.sandbox_of is not None:
            try:
                self._sandbox = self._context.sandbox_of(self._request.options.sandbox)
            except SandboxError as error:  # raised when a sandbox is needed: a running command needs none
                self._sandbox = error

    def locate(self) -> None:
        workspace = self._context.workspace_of(*self._request.project)
        self.cwd, note = shell.choose_start_directory(workspace, self._request.cwd, self._request.begins_in.cwd)
        self._world = workspace.world
        self.notes = (note,) if note else ()
        self._root = os.path.realpath(self._request.project.root)
        self._find_sandbox()

    # A call makes several setups, and only the one that starts the command needs all of it.

    @cached_property
    def _guarded(self) -> Guarded:
        return self._context.guarded(self._root)

    @cached_property
    def _fresh_environment(self) -> dict[str, str]:
        environment = build_command_environment(self._context.env, self._context.allowance.env)
        if self._guarded.home is not None:
            environment = {**self._guarded.home.variables, **environment}
        return environment | ({"TERM": "xterm"} if self._request.pty else {})

    async def refuse_outside(self) -> None:
        """The strict profile: by setting, and always where no sandbox works (S-15)."""
        confined = await self.is_confined()
        if confined and not self._request.options.strict_paths:
            return
        if words := self._context.outside(self._request.line, self._request.project.root):
            reason = "strict_paths is on" if confined else "no sandbox confines commands on this machine"
            raise ToolError(
                f"Not run: {', '.join(map(escape_name, words[:5]))} leads out of the project root, and {reason}. Use "
                "paths inside the project, relative and without '..'."
            )

    def build_spec(self, plan: CommandPlan, view: str, log: str) -> CommandSpec:
        """`view` is the folder of the copy-on-write view that it runs on; empty: on the project itself. `log` is where
        the proxy writes what the command reaches. Blocks for a moment."""
        sandbox, root, request = self._require_sandbox(), self._root, self._request
        argv, state_fd = shell.build_shell_argv(request.line)
        covered_sockets: tuple[str, ...] = ()
        lays = bool(view) and sandbox is not None and sandbox.lays
        lays = lays and not plan.live and self._world is None and not is_below(root, LAID) and not is_below(view, LAID)
        if sandbox is not None:
            mount: RootMount = View(f"{view}/upper", f"{view}/work", lays) if view else Direct()
            if view and plan.live:
                layers = [
                    FolderLayer(f"{root}/{path}", f"{view}/upper/{path}", f"{view}/work/{number}")
                    for number, path in enumerate(plan.layers)
                ]
                mount = Live(tuple(layers))
            guarded = self._guarded
            confinement = Confinement(
                root,
                mount,
                make_network(plan.network, log),
                guarded.protected,
                guarded.hidden_paths,
                guarded.home,
                world=self._world,
                terminal=request.pty,
                secrets=tuple(f"{root}/{path}" for path in self.list_hidden_secrets()),
                report_fd=state_fd,
            )
            if lays:
                covered_sockets = sandbox.list_sockets_to_cover(confinement)
                confinement = replace(confinement, covered_sockets=covered_sockets)
            argv = tuple(sandbox.wrap(argv, confinement, self.cwd))
        begins_in = None
        if request.background:  # the shell that it goes on with, in the folder in which it starts
            workspace = self._context.workspace_of(*request.project)
            begins_in = to_builtins(replace(request.begins_in, cwd=encode_path(workspace.to_relative(self.cwd))))
        return CommandSpec(
            argv,
            self.cwd if self._world is None else root,  # where it is only in the world there is nothing to start it in
            shell.build_shell_environment(self._build_environment(plan), request.begins_in),
            BACKGROUND_S if request.background else request.timeout_s,
            idle_s=self._context.allowance.job_idle_s if request.background else 0.0,
            pty=request.pty,
            background=request.background,
            input=request.background or request.pty,
            output_cap=output.CAP,
            state_fd=state_fd,
            state_cap=shell.STATE_CAP,
            title=request.title,
            line=request.line,
            shell=begins_in,
            view=root if view else "",
            layers=plan.layers if plan.live else (),
            lays=LAID if lays else "",
            covered_sockets=covered_sockets,
            limits=self._context.allowance.limits,
            sandbox="none" if sandbox is None else sandbox.level,
        )

    async def choose_network(self, *, rehearsal: bool = False) -> NetworkChoice:
        """The hosts that it may reach. Named ones need a network namespace, so only bubblewrap has them."""
        choice = self._request.get_wanted_network(rehearsal=rehearsal)
        sandbox = await self.get_sandbox()
        return choice if isinstance(choice, bool) or (sandbox is not None and sandbox.level == "bubblewrap") else False

    def list_hidden_secrets(self) -> tuple[str, ...]:
        """The secret files that the command cannot read, relative to the root. Blocks for a moment."""
        sandbox = self._sandbox
        if not isinstance(sandbox, Sandbox) or sandbox.level not in HIDING:
            return ()
        return self._context.secrets(self._request)

    def _build_environment(self, plan: CommandPlan) -> dict[str, str]:
        return self._fresh_environment | (make_proxy_variables() if isinstance(plan.network, tuple) else {})

    async def can_view(self) -> bool:
        def is_supported() -> bool:
            sandbox = self._require_sandbox()
            return sandbox is not None and sandbox.views and self._context.views(sandbox, self._request.project.root)

        has_views = self._request.options.command_view and self._context.snapshots_of is not None
        return has_views and await run_in_thread(is_supported)

    def read_shell_end(self, report: bytes, plan: CommandPlan) -> ShellEnd:
        workspace = self._context.workspace_of(*self._request.project)
        end = shell.read_end(report, self._request.shell, self._build_environment(plan), workspace, self._context.env)
        return ShellEnd(stopped=end.stopped) if self._request.fresh else end
