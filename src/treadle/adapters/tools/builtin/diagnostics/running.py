"""Runs one tool on one file: in the sandbox if there is one, in a project that it cannot write to, with a time limit.
The answer for the same bytes is cached. Tools of the project, preferred, are code of the repository and run only in a
sandbox (S-09); so do language servers, each started for one question."""

import asyncio
import hashlib
import json
import os
import re
import shutil
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import msgspec

from treadle.adapters.tools.builtin.base import Guarded, ToolContext, run_in_thread
from treadle.adapters.tools.builtin.command.shell import build_command_environment
from treadle.adapters.tools.builtin.diagnostics import linters
from treadle.adapters.tools.builtin.diagnostics.linters import Diagnostic, Target
from treadle.base.file_system import is_below
from treadle.base.jsonrpc import BadMessage, encode_message, read_message
from treadle.base.subprocesses import Completed, kill_group, run_program, start_program
from treadle.errors import SandboxError, ToolError
from treadle.ports.sandbox import HIDING, Confinement, Sandbox, Unwritable
from treadle.ports.toolset import Invocation, Outcome
from treadle.ports.workspace import Workspace, escape_name

TIMEOUT_S = 30.0
LOCAL = ("node_modules/.bin", ".venv/bin", "venv/bin")
_REMEMBERED = 512
_UNWANTED = ("BASH_ENV", "ENV", "NODE_OPTIONS", "PYTHONPATH", "PYTHONSTARTUP", "RUSTC_WRAPPER")  # they run something


class LinterAnswer(msgspec.Struct, frozen=True):
    by: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()
    missing: tuple[str, ...] = ()  # Tools that are not installed
    failed: tuple[str, ...] = ()  # Tools that were there and gave no answer, each with the reason
    withheld: str = ""  # A tool that could have run code of the project, or shown files outside, without a sandbox


class LinterContext(msgspec.Struct, frozen=True):
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
        root, world, guarded = self.workspace.path, self.workspace.world, self.guarded
        confinement = Confinement(
            root, Unwritable(), hidden_paths=guarded.hidden_paths, secrets=self.secrets, home=guarded.home, world=world
        )
        return self.sandbox.wrap(argv, confinement, cwd)


def make_linter_context(context: ToolContext, workspace: Workspace, invocation: Invocation) -> LinterContext:
    """The sandbox that this chat's commands have; without one there is none here either."""
    env = build_command_environment(context.env or os.environ, context.allowance.env) | {
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
    }
    env = {name: value for name, value in env.items() if name not in _UNWANTED}
    sandbox: Sandbox | None = None
    if context.sandbox_of is not None:
        with suppress(SandboxError):
            sandbox = context.sandbox_of(invocation.options.sandbox)
    secrets = context.secrets(invocation) if sandbox is not None and sandbox.level in HIDING else ()
    hidden_paths = tuple(f"{workspace.path}/{path}" for path in secrets)
    return LinterContext(workspace, env, sandbox, context.guarded(workspace.path), hidden_paths)


class Asking:
    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[Diagnostic, ...]] = OrderedDict()

    async def ask(self, group: linters.Group, target: Target, context: LinterContext) -> LinterAnswer:
        missing: list[str] = []
        failed: tuple[str, ...] = ()
        withheld = ""
        for linter in (each for each in group if each.suits(target)):
            if linter.marker:
                folder = await run_in_thread(find_marked_folder, linter.marker, target.path, context.workspace)
                if folder is None:
                    continue
                target = msgspec.structs.replace(target, folder=folder)
            program = await run_in_thread(
                find, linter.command, context.workspace, context.env, confined=context.confined
            )
            if program is None:
                missing.append(linter.name)
            elif linter.executes and not context.confined:
                withheld = linter.name
            else:
                answer = await self._run_cached(linter, program, target, context)
                failed += answer.failed
                if answer.by:
                    return msgspec.structs.replace(answer, failed=failed)
        return LinterAnswer(missing=tuple(missing), failed=failed, withheld=withheld)

    async def _run_cached(
        self, linter: linters.Linter, program: str, target: Target, context: LinterContext
    ) -> LinterAnswer:
        key = await run_in_thread(_make_key, linter, program, target, context.workspace) if not linter.executes else ""
        if key in self._known:
            self._known.move_to_end(key)
            return LinterAnswer(linter.name, self._known[key])
        answer = await _run_linter(linter, program, target, context)
        if key and answer.by:
            self._known[key] = answer.diagnostics
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return answer


async def _run_linter(linter: linters.Linter, program: str, target: Target, context: LinterContext) -> LinterAnswer:
    cwd = f"{target.root}/{target.folder}" if target.folder else target.root
    if not context.confined:
        cwd = "/"  # some programs are looked up by what a folder says: rust-toolchain.toml, .tool-versions
    env = {**context.env, **dict(linter.env)}
    try:
        argv = await run_in_thread(context.wrap, [program, *linter.arguments(target)], cwd)
        cwd = cwd if context.workspace.world is None else "/"  # it may be there in the world alone
        stdin_data = target.data if linter.stdin else b""
        ran = await run_program(argv, cwd=cwd, env=env, stdin_data=stdin_data, timeout_s=TIMEOUT_S)
    except (OSError, SandboxError) as error:
        return LinterAnswer(failed=(f"{linter.name} could not be started: {error}",))
    if ran.ending == "timed_out":
        return LinterAnswer(failed=(f"{linter.name} gave no answer in {TIMEOUT_S:g} seconds",))
    try:
        diagnostics = tuple(linter.parse(target.path, ran.output, ran.errors))
    except linters.OtherLanguage as error:
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


def _describe_failure(linter: linters.Linter, ran: Completed) -> str:
    """The line that says why: the first that calls itself an error, else the last."""
    lines = [line.strip() for line in (ran.errors.strip() or ran.output).splitlines() if line.strip()]
    line = next(filter(_ERROR_LINE.match, lines), lines[-1] if lines else "")
    return f"{linter.name} could not run (exit code {ran.code})" + (f": {line[:200].rstrip('.')}" if line else "")


def _make_key(linter: linters.Linter, program: str, target: Target, workspace: Workspace) -> str:
    """Names everything that its answer depends on; of the program its size and time, cheaper than its version."""
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
                digest = workspace.hash_file("/".join([*folders[:depth], name]))
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


def find_marked_folder(marker: str, path: str, workspace: Workspace) -> str | None:
    """The nearest folder above a file that has a marker, inside the root; None if none has."""
    folders = path.split("/")[:-1]
    for depth in range(len(folders), -1, -1):
        with suppress(ToolError):
            if workspace.stat("/".join([*folders[:depth], marker])) is not None:
                return "/".join(folders[:depth])
    return None


SETTLE_S = 3.0  # a server that found nothing may still find something: many say "nothing" before they look
_SEVERITIES: dict[int, linters.Severity] = {1: "error", 2: "warning", 3: "info", 4: "info"}


_TYPESCRIPT = ("typescript-language-server --stdio",)
SERVERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "py": ("python", ("basedpyright-langserver --stdio", "pyright-langserver --stdio", "pylsp")),
    "go": ("go", ("gopls",)),
    "rs": ("rust", ("rust-analyzer",)),
    **dict.fromkeys(("c", "h"), ("c", ("clangd",))),
    **dict.fromkeys(("cc", "cpp", "hpp"), ("cpp", ("clangd",))),
    "js": ("javascript", _TYPESCRIPT),
    "jsx": ("javascriptreact", _TYPESCRIPT),
    "ts": ("typescript", _TYPESCRIPT),
    "tsx": ("typescriptreact", _TYPESCRIPT),
}  # by the ending of a file's name: its language, and command lines of servers for it


class Broken(Exception):
    """The server does not speak the protocol, or has gone."""


async def ask_server(target: Target, context: LinterContext) -> LinterAnswer:
    missing: list[str] = []
    language, servers = SERVERS[target.path.rpartition(".")[2].lower()]
    for server, *arguments in map(str.split, servers):
        program = await run_in_thread(find, server, context.workspace, context.env, confined=context.confined)
        if program is None:
            missing.append(server)
            continue
        if not context.confined:
            return LinterAnswer(withheld=server)
        try:
            argv = context.wrap([program, *arguments], target.root)
            async with asyncio.timeout(TIMEOUT_S):
                process = await start_program(argv, context.env, target.root)
                assert process.stdin is not None
                assert process.stdout is not None
                try:
                    client = _Client(process.stdout, process.stdin, server, target)
                    return LinterAnswer(server, tuple(await client.diagnose(language)))
                finally:
                    kill_group(process.pid)
                    transport = getattr(process, "_transport", None)
                    if transport is not None:  # pipes that a survivor outside of the group may hold open
                        transport.close()
                    await asyncio.shield(process.wait())
        except TimeoutError:
            return LinterAnswer(failed=(f"{server} gave no answer in {TIMEOUT_S:g} seconds",))
        except (OSError, SandboxError, Broken) as error:
            return LinterAnswer(failed=(f"{server} could not be asked: {error}",))
    return LinterAnswer(missing=tuple(missing))


class _Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: str, target: Target) -> None:
        self._reader, self._writer = reader, writer
        self._server, self._target = server, target
        self._uri = "file://" + quote(target.absolute)
        self._number = 0

    async def diagnose(self, language: str) -> list[Diagnostic]:
        root = "file://" + quote(self._target.root)
        answer = await self._call(
            "initialize",
            {
                "processId": None,
                "rootUri": root,
                "workspaceFolders": [{"uri": root, "name": "project"}],
                "capabilities": {
                    "textDocument": {"publishDiagnostics": {}, "diagnostic": {}, "synchronization": {}},
                    "workspace": {"configuration": True, "workspaceFolders": True},
                },
            },
        )
        self._notify("initialized", {})
        text = self._target.data.decode(errors="replace")
        document = {"uri": self._uri, "languageId": language, "version": 1, "text": text}
        self._notify("textDocument/didOpen", {"textDocument": document})
        provider = (answer.get("capabilities") or {}).get("diagnosticProvider")
        if provider is not None and provider is not False:  # it may be an empty object
            answer = await self._call("textDocument/diagnostic", {"textDocument": {"uri": self._uri}})
            diagnostics = self._read(answer.get("items") or ())
        else:
            diagnostics = await self._await_published()
        with suppress(Broken, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._call("shutdown", None)
                self._notify("exit", None)
        return diagnostics

    async def _await_published(self) -> list[Diagnostic]:
        """The diagnostics that the server publishes by itself: the first non-empty list, or none after a pause."""
        has_published = False
        while True:
            try:
                async with asyncio.timeout(SETTLE_S if has_published else None):
                    message = await self._read_next()
            except TimeoutError:
                return []
            parameters = message.get("params") or {}
            path = unquote(urlsplit(parameters.get("uri", "")).path)
            if message.get("method") == "textDocument/publishDiagnostics" and path == self._target.absolute:
                has_published = True
                if diagnostics := self._read(parameters.get("diagnostics") or ()):
                    return diagnostics

    def _read(self, items: Sequence[Any]) -> list[Diagnostic]:
        diagnostics = []
        for item in items:
            start = (item.get("range") or {}).get("start") or {}
            source = str(item.get("source") or self._server)
            place = (int(start.get("line", -1)) + 1, int(start.get("character", -1)) + 1)
            severity = _SEVERITIES.get(item.get("severity", 1), "error")
            code = str(item["code"]) if isinstance(item.get("code"), str | int) else ""
            message = str(item.get("message", ""))
            diagnostics.append(Diagnostic(self._target.path, *place, severity, message, source, code))
        return diagnostics

    # -- the wire -----------------------------------------------------------------------------------------------------
    async def _call(self, method: str, parameters: dict[str, Any] | None) -> dict[str, Any]:
        self._number += 1
        self._send({"id": self._number, "method": method, "params": parameters})
        while (message := await self._read_next()).get("id") != self._number or "method" in message:
            pass
        if message.get("error"):
            raise Broken(f"{method} was refused: {message['error'].get('message', '')}")
        answer = message.get("result")
        return answer if isinstance(answer, dict) else {}

    def _notify(self, method: str, parameters: dict[str, Any] | None) -> None:
        self._send({"method": method, "params": parameters})

    def _send(self, message: dict[str, Any]) -> None:
        self._writer.write(encode_message({"jsonrpc": "2.0", **message}))

    async def _read_next(self) -> dict[str, Any]:
        """The next message that wants no answer."""
        while True:
            try:
                message = await read_message(self._reader)
            except BadMessage as error:
                raise Broken("it does not speak the protocol") from error
            if not isinstance(message, dict):
                raise Broken("it went away" if message is None else "it does not speak the protocol")
            if "method" not in message or "id" not in message:
                return message
            items = (message.get("params") or {}).get("items") or ()  # a question of the server: it gets nothing
            result: Any = [None] * len(items) if message["method"] == "workspace/configuration" else None
            self._send({"id": message["id"], "result": result})


MAX_BYTES = 2_000_000
_AT = re.compile(r"\(at line (\d+), column (\d+)\)")
_WITH_COMMENTS = re.compile(
    r"(?:^|/)(?:tsconfig[^/]*|jsconfig[^/]*|\.eslintrc|\.?devcontainer)\.json$|(?:^|/)\.vscode/"
)  # JSON that may have comments by custom: not judged


class Examination:
    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._asking = Asking()

    async def examine(self, paths: Sequence[str], invocation: Invocation) -> Outcome:
        quick, strict = bool(invocation.arguments.get("quick")), bool(invocation.arguments.get("strict"))
        workspace = self._context.workspace_of(*invocation.project)
        context = await run_in_thread(make_linter_context, self._context, workspace, invocation)
        all_answers: list[LinterAnswer] = []
        unknown: list[str] = []
        for path in dict.fromkeys(paths):
            answers = await self._diagnose(path, workspace, context, quick, strict)
            if not any(answer.by or answer.failed for answer in answers):
                unknown.append(path)
            all_answers += answers
        return _build_outcome(all_answers, unknown, strict, context.level)

    async def _diagnose(
        self, path: str, workspace: Workspace, context: LinterContext, quick: bool, strict: bool
    ) -> list[LinterAnswer]:
        try:
            relative = await run_in_thread(workspace.to_relative, path)
            data = await run_in_thread(workspace.read_bytes, path, MAX_BYTES)
        except ToolError as error:
            if strict:
                return []  # it is gone by now, or too large to be judged
            raise ToolError(str(error)) from error
        if (parsed := await run_in_thread(diagnose_data, relative, data)) is not None:
            return [LinterAnswer(parsed[0], tuple(parsed[1]))]
        ending = relative.rpartition(".")[2].lower()
        target = Target(workspace.path, relative, data)
        groups = [tuple(each for each in group if each.quick or not quick) for group in linters.GROUPS.get(ending, ())]
        answers = await asyncio.gather(*(self._asking.ask(group, target, context) for group in groups if group))
        quick_names = {linter.name for group in linters.GROUPS.get(ending, ()) for linter in group if linter.quick}
        thorough = any(answer.by and answer.by not in quick_names for answer in answers)
        if not quick and not thorough and ending in SERVERS:
            server = await ask_server(target, context)
            if server.by or server.failed or not any(answer.by for answer in answers):
                answers.append(server)  # a missing server is mentioned only if no other tool answered
        return answers


def _build_outcome(answers: Sequence[LinterAnswer], unknown: Sequence[str], strict: bool, level: str) -> Outcome:
    diagnostics = linters.sort_diagnostics(each for answer in answers for each in answer.diagnostics)
    errors = [each for each in diagnostics if each.severity == "error"]
    reported = errors if strict else diagnostics
    worst = sorted(reported, key=lambda each: linters.ORDER[each.severity])[: linters.MAX_SHOWN]
    lines = [each.text for each in linters.sort_diagnostics(worst)]
    lines += [f"[{len(reported) - len(lines)} more]"] if len(reported) > len(lines) else []
    head = linters.count(reported) if lines else "No errors or warnings."
    failures = list(dict.fromkeys(f"{escape_name(reason)}." for answer in answers for reason in answer.failed))
    looked = list(dict.fromkeys(answer.by for answer in answers if answer.by))
    missing = list(dict.fromkeys(name for answer in answers for name in answer.missing))
    withheld = list(dict.fromkeys(answer.withheld for answer in answers if answer.withheld))
    notes = [f"Asked: {', '.join(looked)}."] if looked else []
    notes += [f"Not installed: {', '.join(missing)}."] if missing else []
    if withheld:
        reason = "it could run the project's code or read files outside"
        notes.append(f"Not asked without a sandbox, because {reason}: {', '.join(withheld)}.")
    notes += failures
    if not looked:
        head = "No tool for this could be asked."
    elif unknown:
        notes.append(f"No tool is known or installed for: {', '.join(map(escape_name, unknown))}.")
    if strict and not lines:
        notes = failures
    text = "\n".join([head, *lines, *notes])
    return Outcome(text, summary=head.rstrip("."), success=not (strict and errors), sandbox=level)


# -- files that are data: parsed here, in the process -----------------------------------------------------------------
def diagnose_data(path: str, data: bytes) -> tuple[str, list[Diagnostic]] | None:
    """The name of the checker and its findings; None if there is no checker for such a file."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return "utf-8", [Diagnostic(path, data[: error.start].count(b"\n") + 1, 0, "error", str(error), "utf-8")]
    match path.rpartition(".")[2].lower():
        case "json" | "toml" as name if name == "toml" or not _WITH_COMMENTS.search(path):
            return name, _diagnose_json_or_toml(path, text, name)
        case "yaml" | "yml":
            return _diagnose_yaml(path, text)
    return None


def _diagnose_json_or_toml(path: str, text: str, name: str) -> list[Diagnostic]:
    import tomllib

    try:
        json.loads(text) if name == "json" else tomllib.loads(text)
    except json.JSONDecodeError as error:
        return [Diagnostic(path, error.lineno, error.colno, "error", error.msg, name)]
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        line, column = (int(at[1]), int(at[2])) if (at := _AT.search(message)) else (0, 0)
        return [Diagnostic(path, line, column, "error", _AT.sub("", message).strip(), name)]
    except RecursionError:
        return [Diagnostic(path, 0, 0, "warning", "nested too deeply to be read", name)]
    return []


def _diagnose_yaml(path: str, text: str) -> tuple[str, list[Diagnostic]] | None:
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return None
    try:
        for _event in yaml.parse(text, Loader=yaml.SafeLoader):
            pass
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
        return "yaml", [Diagnostic(path, line, column, "error", error.problem or str(error), "yaml")]
    except (yaml.YAMLError, RecursionError) as error:
        return "yaml", [Diagnostic(path, 0, 0, "error", str(error), "yaml")]
    return "yaml", []
