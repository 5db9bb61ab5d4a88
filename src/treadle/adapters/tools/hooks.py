"""Hooks that are programs (E-03): the user's own from config.toml, and a project's from `.treadle/hooks.toml` once a
person has trusted its content (S-09). One JSON object goes to the program's input; how it ends is its answer.

before  exit 0: go on · exit 2: refuse, the reason on standard error · or print {"block": "reason"}
after   exit 0, and perhaps {"append": "text"} or {"result": "text instead of the tool's own"}

Anything else (another exit code, a time-out, output that is no such object) is a failure of the hook. A failure before
a call refuses the call, because a broken hook must not let through a call that it should stop. A failure after a call
is reported."""

import asyncio
import hashlib
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from treadle.adapters.tools.builtin.base import ToolContext
from treadle.adapters.tools.builtin.command.project import CommandProject
from treadle.adapters.tools.builtin.command.shell import drop_secrets
from treadle.adapters.tools.builtin.read import format_numbered_text
from treadle.adapters.tools.builtin.text import MAX_FILE, Text, decode
from treadle.base.file_system import reach_faultpoint
from treadle.base.logs import log_warning
from treadle.base.subprocesses import run_program
from treadle.base.types import ChatId
from treadle.diff.changes import merge_changes, sum_stats
from treadle.errors import ConfigError, SandboxError, ToolError
from treadle.ports.sandbox import Confinement, Unwritable, WorldMount
from treadle.ports.toolset import Invocation, Outcome
from treadle.ports.workspace import WorkspaceOf, escape_name
from treadle.protocol.content import Value
from treadle.protocol.tools import EDIT_TOOLS, READ_TOOL, ToolSpec

BLOCK = 2
FILE = ".treadle/hooks.toml"
_MOST = 64 * 1024
_SHOWN = 2_000

When = Literal["before", "after"]
Wrap = Callable[[list[str], str], list[str]]  # (command line, root) → the command line that is run instead


class Hook(Value, frozen=True, forbid_unknown_fields=True):
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
        self._env = drop_secrets(env)
        self._wrap = wrap

    async def before_call(self, spec: ToolSpec, invocation: Invocation) -> str:
        for hook in self.select_hooks("before", spec):
            answer = await self._run_hook(hook, _build_payload("before", invocation))
            if isinstance(answer, str):
                reason = f"the user's hook `{hook.command}` must allow it and it {answer}"
                return f"This call was not carried out, because {reason}."
            if answer.block:
                return f"This call was refused by a hook of the user: {answer.block[:_SHOWN]}"
        return ""

    async def after_call(self, spec: ToolSpec, invocation: Invocation, outcome: Outcome) -> Outcome:
        for hook in self.select_hooks("after", spec):
            result = {"success": outcome.success, "result": outcome.text, "summary": outcome.summary}
            answer = await self._run_hook(hook, _build_payload("after", invocation, **result))
            if isinstance(answer, str):
                outcome = _append_text(outcome, f"[The hook `{hook.command}` {answer}.]")
                continue
            if answer.result is not None:
                outcome = msgspec.structs.replace(outcome, text=answer.result)
            if answer.append:
                outcome = _append_text(outcome, answer.append)
        return outcome

    def select_hooks(self, phase: When, spec: ToolSpec) -> list[Hook]:
        return [hook for hook in self._hooks if hook.when == phase and (not hook.tools or spec.name in hook.tools)]

    async def _run_hook(self, hook: Hook, payload: dict[str, Any]) -> _Answer | str:
        """The program's answer, or in words why there is none."""
        root = str(payload["root"]) or "/"
        try:
            argv = ["/bin/sh", "-c", hook.command]
            argv = self._wrap(argv, root) if self._wrap is not None else argv
            reach_faultpoint("hook.before")
            stdin_data = msgspec.json.encode(payload)
            ran = await run_program(argv, cwd=root, env=self._env, stdin_data=stdin_data, timeout_s=hook.timeout_s)
            reach_faultpoint("hook.after")
        except (OSError, SandboxError) as error:
            return f"could not be run: {error}"
        if ran.ending == "timed_out":
            return f"took longer than {hook.timeout_s:g} seconds"
        if ran.code == BLOCK and hook.when == "before":
            return _Answer(ran.errors.strip()[:_SHOWN] or ran.output.strip()[:_SHOWN] or "no reason was given")
        if ran.code != 0:
            reason = ran.errors.strip().partition("\n")[0][:200]
            return f"failed with exit code {ran.code}" + (f": {reason}" if reason else "")
        try:
            return msgspec.json.decode(ran.output, type=_Answer) if ran.output.strip() else _Answer()
        except msgspec.MsgspecError as error:
            return f"printed what is no answer ({error})"


class WatchedHooks:
    """The user's own programs, outside of every sandbox. For calls that may change files the project is compared
    (W-10): a hook's changes belong to the call, are judged after the fact, and are undone with it."""

    def __init__(self, hooks: CommandHooks, context: ToolContext) -> None:
        self._hooks, self._context = hooks, context

    async def before_call(self, spec: ToolSpec, invocation: Invocation) -> str:
        return await self._hooks.before_call(spec, invocation)

    async def after_call(self, spec: ToolSpec, invocation: Invocation, outcome: Outcome) -> Outcome:
        name = f"{invocation.chat}/{invocation.call}.hooks"
        project = CommandProject(self._context, name, invocation.project, invocation.options)
        if spec.read_only or not project.has_snapshots or not self._hooks.select_hooks("after", spec):
            return await self._hooks.after_call(spec, invocation, outcome)
        try:
            await project.capture()
        except ToolError as error:
            return _append_text(outcome, f"[No hook was run, since what it changes could not be undone: {error}]")
        try:
            outcome = await self._hooks.after_call(spec, invocation, outcome)
            change = await project.compare()
        finally:
            await project.release()
        if not change.files:
            return outcome
        files = tuple(merge_changes({file.path: file for file in outcome.files}, change.files).values())
        source = outcome.source if outcome.files else change.source
        note = "\n".join(("[hooks of the user ran behind this call]", *change.lines))
        return _append_text(
            msgspec.structs.replace(outcome, files=files, source=source, diff_stat=sum_stats(files)), note
        )


class ProjectHooks:
    """Hooks of the repository: only if exactly this content is trusted; in a sandbox, as their scripts may change."""

    def __init__(self, context: ToolContext, trusted: Callable[[str, bytes], bool]) -> None:
        self._context, self._trusted = context, trusted
        self._told: set[str] = set()

    async def before_call(self, spec: ToolSpec, invocation: Invocation) -> str:
        hooks = await self._load_hooks(invocation)
        return hooks if isinstance(hooks, str) else await hooks.before_call(spec, invocation)

    async def after_call(self, spec: ToolSpec, invocation: Invocation, outcome: Outcome) -> Outcome:
        hooks = await self._load_hooks(invocation)
        return outcome if isinstance(hooks, str) else await hooks.after_call(spec, invocation, outcome)

    async def _load_hooks(self, invocation: Invocation) -> CommandHooks | str:
        """The trusted hooks; none if there are none or they are not trusted; or the reason why nothing may run."""
        no_hooks = CommandHooks((), {})
        if not invocation.root:
            return no_hooks
        workspace = self._context.workspace_of(*invocation.project)
        try:
            exists = await asyncio.to_thread(workspace.stat, FILE) is not None
            data = await asyncio.to_thread(workspace.read_bytes, FILE, _MOST) if exists else None
        except ToolError as error:
            return f"This project's hooks cannot be read, so nothing is run; mend or remove {FILE}: {error}"
        path = f"{workspace.path}/{FILE}"
        if data is None:
            return no_hooks
        if not self._trusted(path, data):
            mark = f"{path}:{hashlib.sha256(data).hexdigest()}"
            if mark not in self._told:
                self._told.add(mark)
                log_warning("%s is not trusted and was not used", path)
            return no_hooks
        try:
            hooks = _parse_hooks(data)
        except ConfigError as error:
            return f"This project's hooks are trusted but cannot be read, so nothing is run: {error}"
        confine = partial(self._confine_argv, invocation=invocation, world=workspace.world)
        return CommandHooks(hooks, self._context.env, confine)

    def _confine_argv(self, argv: list[str], root: str, invocation: Invocation, world: WorldMount | None) -> list[str]:
        sandbox_of = self._context.sandbox_of
        sandbox = None if sandbox_of is None else sandbox_of(invocation.options.sandbox)
        if sandbox is None or sandbox.level == "none":
            raise SandboxError("a project's hooks run only in a sandbox, and this machine has no sandbox")
        hidden_paths = self._context.guarded(root).hidden_paths
        return sandbox.wrap(argv, Confinement(root, Unwritable(), hidden_paths=hidden_paths, world=world), root)


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


def _append_text(outcome: Outcome, text: str) -> Outcome:
    return msgspec.structs.replace(outcome, text=f"{outcome.text}\n{text}" if outcome.text else text)


Before = Callable[[ToolSpec, Invocation], Awaitable[str]]
After = Callable[[ToolSpec, Invocation, Outcome], Awaitable[Outcome]]


class FunctionHooks:
    """Hooks that are Python functions, for the library: either of them, for all tools or for some."""

    def __init__(
        self, *, before_call: Before | None = None, after_call: After | None = None, tools: Sequence[str] = ()
    ) -> None:
        self._before, self._after = before_call, after_call
        self._tools = frozenset(tools)

    async def before_call(self, spec: ToolSpec, invocation: Invocation) -> str:
        is_concerned = not self._tools or spec.name in self._tools
        return await self._before(spec, invocation) if self._before is not None and is_concerned else ""

    async def after_call(self, spec: ToolSpec, invocation: Invocation, outcome: Outcome) -> Outcome:
        is_concerned = not self._tools or spec.name in self._tools
        return await self._after(spec, invocation, outcome) if self._after is not None and is_concerned else outcome


ReadText = Callable[[str], Awaitable[str]]  # by absolute path: the editor's text; any exception if it has none

WAIT_S = 5.0  # How long an editor may take; then the disk counts
_IN_PATCH = re.compile(r"^\*\*\* ?(?:Update|Modify|Delete|Remove) File: ?(.+?)\s*$", re.IGNORECASE | re.MULTILINE)
NOTE = "[these are unsaved changes in the user's editor; on disk the file is different]"
UNSAVED = (
    "{path} has unsaved changes in the user's editor, which a change on disk would collide with. Ask the user to save "
    "or discard them, then read the file again."
)


class UnsavedFiles:
    def __init__(self, workspace_of: WorkspaceOf) -> None:
        self._workspace_of = workspace_of
        self._editors: dict[ChatId, ReadText] = {}

    def attach(self, chat: ChatId, read: ReadText) -> None:
        self._editors[chat] = read

    def detach(self, chat: ChatId) -> None:
        self._editors.pop(chat, None)

    async def before_call(self, spec: ToolSpec, invocation: Invocation) -> str:
        if spec.name in EDIT_TOOLS:
            for path in _find_paths(invocation):
                if await self._read_unsaved_text(invocation, path) is not None:
                    return UNSAVED.format(path=escape_name(path))
        return ""

    async def after_call(self, spec: ToolSpec, invocation: Invocation, outcome: Outcome) -> Outcome:
        if spec.name != READ_TOOL or not outcome.success:
            return outcome
        path = str(invocation.arguments.get("path", ""))
        text = await self._read_unsaved_text(invocation, path)
        if text is None:
            return outcome
        start, end = invocation.arguments.get("start_line") or 1, invocation.arguments.get("end_line") or 0
        try:
            shown_text, summary = format_numbered_text(escape_name(path), Text(text), start, end)
        except ToolError:
            return outcome
        return replace(outcome, text=f"{shown_text}\n{NOTE}", summary=f"{summary}, unsaved")

    async def _read_unsaved_text(self, invocation: Invocation, path: str) -> str | None:
        read = self._editors.get(invocation.chat)
        if read is None or not path or invocation.options.world:  # an editor shows the project
            return None
        try:
            workspace = self._workspace_of(*invocation.project)
            data = await asyncio.to_thread(lambda: workspace.read_bytes(workspace.to_relative(path), MAX_FILE))
            on_disk = await asyncio.to_thread(lambda: decode(data, path).text)
            async with asyncio.timeout(WAIT_S):
                text = await read(os.path.join(invocation.root, path))
        except Exception:  # no text, no such file, an editor that is gone: then the disk counts
            return None
        return None if _normalize_text(text) == _normalize_text(on_disk) else text


def _normalize_text(text: str) -> str:
    """Editors have line ends and byte-order marks of their own."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _find_paths(invocation: Invocation) -> list[str]:
    if (path := invocation.arguments.get("path")) is not None:
        return [path] if isinstance(path, str) else []
    texts = [text for text in invocation.arguments.values() if isinstance(text, str) and "***" in text]
    return [patched_path for text in texts for patched_path in _IN_PATCH.findall(text)]
