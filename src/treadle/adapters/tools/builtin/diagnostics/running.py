"""Runs one tool on one file: in the sandbox if there is one, in a project that it cannot write to, with a time limit.
The answer for the same bytes is cached.

A tool of the project is preferred to that of the machine. It is code of the repository: it is only offered where it
would run in a sandbox (S-09)."""

import hashlib
import os
import re
import shutil
import sys
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from treadle.adapters.tools.builtin.base import in_thread
from treadle.adapters.tools.builtin.context import Guarded, ToolContext
from treadle.adapters.tools.builtin.diagnostics.linters import Diagnostic, Group, Linter, OtherLanguage, Target
from treadle.adapters.tools.builtin.environment import command_environment
from treadle.base.file_system import is_below
from treadle.base.subprocesses import Completed, run_program
from treadle.errors import SandboxError, ToolError
from treadle.ports.sandbox import HIDING, Confinement, Sandbox, Unwritable
from treadle.ports.toolset import Invocation
from treadle.ports.workspace import Workspace

TIMEOUT_S = 30.0
LOCAL = ("node_modules/.bin", ".venv/bin", "venv/bin")
_REMEMBERED = 512
_UNWANTED = ("BASH_ENV", "ENV", "NODE_OPTIONS", "PYTHONPATH", "PYTHONSTARTUP", "RUSTC_WRAPPER")
"""Variables that make a tool run something else first."""


class LinterAnswer(msgspec.Struct, frozen=True):
    by: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()
    missing: tuple[str, ...] = ()  # Tools that are not installed
    failed: tuple[str, ...] = ()  # Tools that were there and gave no answer, each with the reason
    withheld: str = ""  # A tool that could have run code of the project, or shown files outside, without a sandbox


class LinterContext(msgspec.Struct, frozen=True):
    """Where tools are run: made once for a call."""

    workspace: Workspace
    env: Mapping[str, str]
    sandbox: Sandbox | None = None
    guarded: Guarded = Guarded()
    secrets: tuple[str, ...] = ()

    @property
    def confined(self) -> bool:
        return self.sandbox is not None and self.sandbox.level != "none"

    @property
    def level(self) -> str:
        return f"{self.sandbox.level}, no network, read-only" if self.sandbox is not None and self.confined else ""

    def wrap(self, argv: list[str], cwd: str) -> list[str]:
        if self.sandbox is None or not self.confined:
            return argv
        project, hidden = Confinement(self.workspace.path, Unwritable()), self.guarded.hidden_paths
        confinement = msgspec.structs.replace(
            project, hidden_paths=hidden, secrets=self.secrets, home=self.guarded.home, world=self.workspace.world
        )
        return self.sandbox.wrap(argv, confinement, cwd)


def linter_context(context: ToolContext, workspace: Workspace, invocation: Invocation) -> LinterContext:
    """The sandbox that this chat's commands have; without one there is none here either."""
    env = command_environment(context.env or os.environ, context.allowance.env) | {"LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
    env = {name: value for name, value in env.items() if name not in _UNWANTED}
    sandbox: Sandbox | None = None
    if context.sandbox_of is not None:
        with suppress(SandboxError):
            sandbox = context.sandbox_of(invocation.options.sandbox)
    secrets = context.secrets(invocation) if sandbox is not None and sandbox.level in HIDING else ()
    hidden_paths = tuple(f"{workspace.path}/{path}" for path in secrets)
    return LinterContext(workspace, env, sandbox, context.guarded(workspace.path), hidden_paths)


class Asking:
    """Asks tools, and remembers what those said that look at nothing but the file."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[Diagnostic, ...]] = OrderedDict()

    async def ask(self, group: Group, target: Target, around: LinterContext) -> LinterAnswer:
        """The answer of the first tool of the group that is installed and can run."""
        missing: list[str] = []
        failed: tuple[str, ...] = ()
        withheld = ""
        for linter in group:
            if not linter.suits(target):
                continue
            if linter.marker:
                folder = await in_thread(marked_folder, linter.marker, target.path, around.workspace)
                if folder is None:
                    continue
                target = msgspec.structs.replace(target, folder=folder)
            program = await in_thread(find, linter.command, around.workspace, around.env, confined=around.confined)
            if program is None:
                missing.append(linter.name)
            elif linter.executes and not around.confined:
                withheld = linter.name
            else:
                answer = await self._run(linter, program, target, around)
                failed += answer.failed
                if answer.by:
                    return msgspec.structs.replace(answer, failed=failed)
        return LinterAnswer(missing=tuple(missing), failed=failed, withheld=withheld)

    async def _run(self, linter: Linter, program: str, target: Target, around: LinterContext) -> LinterAnswer:
        key = await in_thread(_key, linter, program, target, around.workspace) if not linter.executes else ""
        if key in self._known:
            self._known.move_to_end(key)
            return LinterAnswer(linter.name, self._known[key])
        answer = await _run(linter, program, target, around)
        if key and answer.by:
            self._known[key] = answer.diagnostics
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return answer


async def _run(linter: Linter, program: str, target: Target, around: LinterContext) -> LinterAnswer:
    cwd = f"{target.root}/{target.folder}" if target.folder else target.root
    if not around.confined:
        cwd = "/"  # some programs are looked up by what a folder says: rust-toolchain.toml, .tool-versions
    env = {**around.env, **dict(linter.env)}
    try:
        argv = await in_thread(around.wrap, [program, *linter.arguments(target)], cwd)
        cwd = cwd if around.workspace.world is None else "/"  # it may be there in the world alone
        stdin_data = target.data if linter.stdin else b""
        ran = await run_program(argv, cwd=cwd, env=env, stdin_data=stdin_data, timeout_s=TIMEOUT_S)
    except (OSError, SandboxError) as error:
        return LinterAnswer(failed=(f"{linter.name} could not be started: {error}",))
    if ran.ending == "timed_out":
        return LinterAnswer(failed=(f"{linter.name} gave no answer in {TIMEOUT_S:g} seconds",))
    try:
        diagnostics = tuple(linter.parse(target.path, ran.output, ran.errors))
    except OtherLanguage as error:
        return LinterAnswer(failed=(f"{linter.name} {error}",))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if ran.code in linter.fine and ran.output.strip():
            return LinterAnswer(failed=(f"{linter.name} gave an answer that cannot be read: {error}",))
        return LinterAnswer(failed=(_describe_failure(linter, ran),))
    # Exit codes alone prove nothing: rustup's proxies and bwrap end with 1 when there is no program to run, as linters
    # do when they find something. A code other than 0 counts as an answer only together with a diagnostic.
    if ran.code and not (diagnostics and ran.code in linter.fine):
        return LinterAnswer(failed=(_describe_failure(linter, ran),))
    return LinterAnswer(linter.name, diagnostics)


_ERROR_LINE = re.compile(r"(?:[\w.+-]+: )?(?:\w*error|fatal)\b", re.I)


def _describe_failure(linter: Linter, ran: Completed) -> str:
    """The line that says why: the first that calls itself an error, else the last."""
    lines = [line.strip() for line in (ran.errors.strip() or ran.output).splitlines() if line.strip()]
    line = next(filter(_ERROR_LINE.match, lines), lines[-1] if lines else "")
    return f"{linter.name} could not run (exit code {ran.code})" + (f": {line[:200].rstrip('.')}" if line else "")


def _key(linter: Linter, program: str, target: Target, workspace: Workspace) -> str:
    """Names everything that its answer depends on. Of the program itself its size and time: asking every one for its
    version would cost more than asking it."""
    with suppress(OSError):
        stat = os.stat(program)
        program = f"{program}:{stat.st_size}:{stat.st_mtime_ns}"
    hasher = hashlib.sha256(f"{linter.name}\0{program}\0{target.root}\0{target.path}\0".encode(errors="replace"))
    hasher.update(hashlib.sha256(target.data).digest())
    folders = target.path.split("/")[:-1]
    for depth in range(len(folders) + 1):
        for name in linter.configs:
            digest = None
            with suppress(ToolError):
                digest = workspace.digest("/".join([*folders[:depth], name]))
            hasher.update(f"\0{digest}".encode())
    return hasher.hexdigest()


def find(name: str, workspace: Workspace, env: Mapping[str, str], *, confined: bool) -> str | None:
    """The absolute path of the program of this name; those of the project only if it will be `confined`."""
    if os.path.isabs(name):
        return name if os.access(name, os.X_OK) else None
    for folder in LOCAL if confined else ():
        with suppress(ToolError):
            stat = workspace.stat(f"{folder}/{name}")
            if stat is not None and stat.kind == "file" and stat.mode & 0o111:
                return f"{workspace.path}/{folder}/{name}"

    def is_outside(path: str) -> bool:
        return os.path.isabs(path) and not is_below(os.path.realpath(path), workspace.path)

    folders = filter(is_outside, env.get("PATH", os.defpath).split(os.pathsep))
    program = shutil.which(name, path=os.pathsep.join([os.path.dirname(sys.executable), *folders]))
    return program if program and not is_below(os.path.realpath(program), workspace.path) else None


def marked_folder(marker: str, path: str, workspace: Workspace) -> str | None:
    """The nearest folder above a file that has a marker, inside the root; None if none has."""
    folders = path.split("/")[:-1]
    for depth in range(len(folders), -1, -1):
        with suppress(ToolError):
            if workspace.stat("/".join([*folders[:depth], marker])) is not None:
                return "/".join(folders[:depth])
    return None
