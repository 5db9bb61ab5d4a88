"""Hooks that are programs (E-03): the user's own from config.toml, and a project's from `.treadle/hooks.toml` once a
person has trusted its content (S-09). One JSON object goes to the program's input; how it ends is its answer.

before  exit 0: go on · exit 2: refuse, the reason on standard error · or print {"block": "reason"}
after   exit 0, and perhaps {"append": "text"} or {"result": "text instead of the tool's own"}

Anything else (another exit code, a time-out, output that is no such object) is a failure of the hook. A failure before
a call refuses the call, because a broken hook must not let through a call that it should stop. A failure after a call
is reported.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from treadle.adapters.tools.builtin.command.project import CommandProject
from treadle.adapters.tools.builtin.context import ToolContext
from treadle.adapters.tools.builtin.environment import without_secrets
from treadle.base.file_system import faultpoint
from treadle.base.logs import log_warning
from treadle.base.subprocesses import Completed, run_program
from treadle.diff.changes import merged, total
from treadle.errors import ConfigError, SandboxError, ToolError
from treadle.ports.sandbox import Confinement, Unwritable, WorldMount
from treadle.ports.toolset import Invocation, Outcome
from treadle.protocol.content import Value
from treadle.protocol.tools import ToolSpec

BLOCK = 2
FILE = ".treadle/hooks.toml"
_MOST = 64 * 1024
_SHOWN = 2_000

When = Literal["before", "after"]
Wrap = Callable[[list[str], str], list[str]]  # (command line, root) → the command line that is run instead


class Hook(Value, frozen=True, forbid_unknown_fields=True):
    """One entry `[[hooks]]`."""

    when: When
    command: str  # A shell command. It is run in the project's root: name a script by its whole path.
    tools: tuple[str, ...] = ()  # The names of the tools that it is about; none means all
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=600)] = 30.0


class _Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    block: str = ""
    append: str = ""
    result: str | None = None


class _HooksFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hooks: tuple[Hook, ...] = ()


def read_hooks(value: object, source: str) -> tuple[Hook, ...]:
    try:
        return msgspec.convert(value, tuple[Hook, ...])
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: the hooks do not fit: {error}") from error


class CommandHooks:
    """Implements `treadle.ports.hooks.Hooks` by programs."""

    def __init__(self, hooks: Sequence[Hook], env: Mapping[str, str], wrap: Wrap | None = None) -> None:
        self._hooks = tuple(hooks)
        self._env = without_secrets(env)
        self._wrap = wrap

    async def before_call(self, spec: ToolSpec, invocation: Invocation) -> str:
        for hook in self.concerned("before", spec):
            ran = await self._run(hook, _build_payload("before", invocation))
            if isinstance(ran, str):
                return _refusal(hook, f"it {ran}")
            if ran.code == BLOCK:
                return _refusal(hook, ran.errors.strip()[:_SHOWN] or ran.output.strip()[:_SHOWN], is_explicit=True)
            answer = _answer(ran)
            if isinstance(answer, str):
                return _refusal(hook, f"it {answer}")
            if answer.block:
                return _refusal(hook, answer.block[:_SHOWN], is_explicit=True)
        return ""

    async def after_call(self, spec: ToolSpec, invocation: Invocation, outcome: Outcome) -> Outcome:
        for hook in self.concerned("after", spec):
            payload = _build_payload(
                "after", invocation, success=outcome.success, result=outcome.text, summary=outcome.summary
            )
            ran = await self._run(hook, payload)
            answer = ran if isinstance(ran, str) else _answer(ran)
            if isinstance(answer, str):
                outcome = _appended(outcome, f"[The hook `{hook.command}` {answer}.]")
                continue
            if answer.result is not None:
                outcome = msgspec.structs.replace(outcome, text=answer.result)
            if answer.append:
                outcome = _appended(outcome, answer.append)
        return outcome

    def concerned(self, phase: When, spec: ToolSpec) -> list[Hook]:
        return [hook for hook in self._hooks if hook.when == phase and (not hook.tools or spec.name in hook.tools)]

    async def _run(self, hook: Hook, payload: dict[str, Any]) -> Completed | str:
        """How the program ended, or in words why it did not."""
        root = str(payload["root"]) or "/"
        try:
            argv = ["/bin/sh", "-c", hook.command]
            argv = self._wrap(argv, root) if self._wrap is not None else argv
            faultpoint("hook.before")
            stdin_data = msgspec.json.encode(payload)
            ran = await run_program(argv, cwd=root, env=self._env, stdin_data=stdin_data, timeout_s=hook.timeout_s)
            faultpoint("hook.after")
        except (OSError, SandboxError) as error:
            return f"could not be run: {error}"
        return f"took longer than {hook.timeout_s:g} seconds" if ran.ending == "timed_out" else ran


class WatchedHooks:
    """The user's own programs, which run outside of every sandbox. For calls that may change files, the project is
    compared before and after the hook, as for a command that writes through (W-10). Changes of the hook belong to the
    call, are judged after the fact, and are undone with it."""

    def __init__(self, hooks: CommandHooks, context: ToolContext) -> None:
        self._hooks = hooks
        self._context = context

    async def before_call(self, spec: ToolSpec, invocation: Invocation) -> str:
        return await self._hooks.before_call(spec, invocation)

    async def after_call(self, spec: ToolSpec, invocation: Invocation, outcome: Outcome) -> Outcome:
        name = f"{invocation.chat}/{invocation.call}.hooks"
        project = CommandProject(self._context, name, invocation.project, invocation.options)
        if spec.read_only or not project.has_snapshots or not self._hooks.concerned("after", spec):
            return await self._hooks.after_call(spec, invocation, outcome)
        try:
            await project.capture()
        except ToolError as error:
            return _appended(outcome, f"[No hook was run, since what it changes could not be undone: {error}]")
        try:
            outcome = await self._hooks.after_call(spec, invocation, outcome)
            change = await project.compare()
        finally:
            await project.release()
        if not change.files:
            return outcome
        files = tuple(merged({file.path: file for file in outcome.files}, change.files).values())
        source = outcome.source if outcome.files else change.source
        note = "\n".join(("[hooks of the user ran behind this call]", *change.lines))
        return _appended(msgspec.structs.replace(outcome, files=files, source=source, diff_stat=total(files)), note)


class ProjectHooks:
    """The hooks of the project that a call is about. They are code of the repository: without trust in exactly this
    content they do not exist, and with it they still run in a sandbox: the scripts that they call may change."""

    def __init__(self, context: ToolContext, trusted: Callable[[str, bytes], bool]) -> None:
        self._context = context
        self._trusted = trusted
        self._told: set[str] = set()

    async def before_call(self, spec: ToolSpec, invocation: Invocation) -> str:
        hooks = await self._hooks(invocation)
        return hooks if isinstance(hooks, str) else await hooks.before_call(spec, invocation)

    async def after_call(self, spec: ToolSpec, invocation: Invocation, outcome: Outcome) -> Outcome:
        hooks = await self._hooks(invocation)
        return outcome if isinstance(hooks, str) else await hooks.after_call(spec, invocation, outcome)

    async def _hooks(self, invocation: Invocation) -> CommandHooks | str:
        """The trusted hooks; none if there are none or they are not trusted; or the reason why nothing may run."""
        if not invocation.root:
            return CommandHooks((), {})
        workspace = self._context.workspace_of(*invocation.project)
        try:
            data = await asyncio.to_thread(
                lambda: workspace.read_bytes(FILE, _MOST) if workspace.stat(FILE) is not None else None
            )
        except ToolError as error:
            return f"This project's hooks cannot be read, so nothing is run; mend or remove {FILE}: {error}"
        path = f"{workspace.path}/{FILE}"
        if data is None:
            return CommandHooks((), {})
        if not self._trusted(path, data):
            mark = f"{path}:{hashlib.sha256(data).hexdigest()}"
            if mark not in self._told:
                self._told.add(mark)
                log_warning("%s is not trusted and was not used", path)
            return CommandHooks((), {})
        try:
            hooks = _parse_hooks(data)
        except ConfigError as error:
            return f"This project's hooks are trusted but cannot be read, so nothing is run: {error}"
        return CommandHooks(
            hooks, self._context.env, lambda argv, root: self._confined(argv, root, invocation, workspace.world)
        )

    def _confined(self, argv: list[str], root: str, invocation: Invocation, world: WorldMount | None) -> list[str]:
        sandbox_of = self._context.sandbox_of
        sandbox = None if sandbox_of is None else sandbox_of(invocation.options.sandbox)
        if sandbox is None or sandbox.level == "none":
            raise SandboxError("a project's hooks run only in a sandbox, and this machine has no sandbox")
        return sandbox.wrap(
            argv,
            Confinement(root, Unwritable(), hidden_paths=self._context.guarded(root).hidden_paths, world=world),
            root,
        )


@lru_cache(maxsize=64)
def _parse_hooks(data: bytes) -> tuple[Hook, ...]:
    import tomllib

    try:
        return msgspec.convert(tomllib.loads(data.decode()), _HooksFile).hooks
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{FILE}: {error}") from error


def _build_payload(phase: When, invocation: Invocation, **more: object) -> dict[str, Any]:
    return {
        "when": phase,
        "chat": invocation.chat,
        "call": invocation.call,
        "tool": invocation.name,
        "arguments": invocation.arguments,
        "root": invocation.root,
        "mode": invocation.options.mode,
        **more,
    }


def _answer(ran: Completed) -> _Answer | str:
    if ran.code != 0:
        reason = ran.errors.strip().partition("\n")[0][:200]
        return f"failed with exit code {ran.code}" + (f": {reason}" if reason else "")
    if not ran.output.strip():
        return _Answer()
    try:
        return msgspec.json.decode(ran.output, type=_Answer)
    except msgspec.MsgspecError as error:
        return f"printed what is no answer ({error})"


def _refusal(hook: Hook, reason: str, *, is_explicit: bool = False) -> str:
    if is_explicit:
        return f"This call was refused by a hook of the user: {reason or 'no reason was given'}"
    return f"This call was not carried out, because the user's hook `{hook.command}` must allow it and {reason}."


def _appended(outcome: Outcome, text: str) -> Outcome:
    return msgspec.structs.replace(outcome, text=f"{outcome.text}\n{text}" if outcome.text else text)


Before = Callable[[ToolSpec, Invocation], Awaitable[str]]
After = Callable[[ToolSpec, Invocation, Outcome], Awaitable[Outcome]]


class FunctionHooks:
    """Hooks that are Python functions, for the library: either of them, for all tools or for some."""

    def __init__(
        self, *, before_call: Before | None = None, after_call: After | None = None, tools: Sequence[str] = ()
    ) -> None:
        self._before = before_call
        self._after = after_call
        self._tools = frozenset(tools)

    async def before_call(self, spec: ToolSpec, invocation: Invocation) -> str:
        is_concerned = not self._tools or spec.name in self._tools
        return await self._before(spec, invocation) if self._before is not None and is_concerned else ""

    async def after_call(self, spec: ToolSpec, invocation: Invocation, outcome: Outcome) -> Outcome:
        is_concerned = not self._tools or spec.name in self._tools
        return await self._after(spec, invocation, outcome) if self._after is not None and is_concerned else outcome
