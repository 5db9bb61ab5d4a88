"""A small client of language servers over stdio: initialize, open one file, take what the server says about it, shut
down. One server for one question: nothing stays behind. It is code that runs code of the project (build scripts,
plug-ins), and so only ever runs in a sandbox."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import msgspec

from treadle.adapters.tools.builtin.base import in_thread
from treadle.adapters.tools.builtin.diagnostics.linters import Diagnostic, Severity, Target
from treadle.adapters.tools.builtin.diagnostics.running import TIMEOUT_S, LinterAnswer, LinterContext, find
from treadle.base.jsonrpc.framing import BadMessage, frame, read_message
from treadle.base.subprocesses import kill_group, start_program
from treadle.errors import SandboxError

SETTLE_S = 3.0
"""How long a server that found nothing may still find something: many say "nothing" before they have looked."""
_SEVERITIES: dict[int, Severity] = {1: "error", 2: "warning", 3: "info", 4: "info"}


class LanguageServer(msgspec.Struct, frozen=True):
    command: str
    arguments: tuple[str, ...]
    language: str


def _servers(language: str, *commands: str) -> tuple[LanguageServer, ...]:
    split = [command.split() for command in commands]
    return tuple(LanguageServer(words[0], tuple(words[1:]), language) for words in split)


_TYPESCRIPT = "typescript-language-server --stdio"
SERVERS: dict[str, tuple[LanguageServer, ...]] = {
    "py": _servers("python", "basedpyright-langserver --stdio", "pyright-langserver --stdio", "pylsp"),
    "go": _servers("go", "gopls"),
    "rs": _servers("rust", "rust-analyzer"),
    "c": _servers("c", "clangd"),
    "h": _servers("c", "clangd"),
    "cc": _servers("cpp", "clangd"),
    "cpp": _servers("cpp", "clangd"),
    "hpp": _servers("cpp", "clangd"),
    "js": _servers("javascript", _TYPESCRIPT),
    "jsx": _servers("javascriptreact", _TYPESCRIPT),
    "ts": _servers("typescript", _TYPESCRIPT),
    "tsx": _servers("typescriptreact", _TYPESCRIPT),
}


class Broken(Exception):
    """The server does not speak the protocol, or has gone."""


async def ask_server(target: Target, around: LinterContext) -> LinterAnswer:
    missing: list[str] = []
    for server in SERVERS[target.path.rpartition(".")[2].lower()]:
        program = await in_thread(find, server.command, around.workspace, around.env, confined=around.confined)
        if program is None:
            missing.append(server.command)
            continue
        if not around.confined:
            return LinterAnswer(withheld=server.command)
        try:
            argv = around.wrap([program, *server.arguments], target.root)
            async with asyncio.timeout(TIMEOUT_S):
                process = await start_program(argv, around.env, target.root)
                assert process.stdin is not None
                assert process.stdout is not None
                try:
                    client = _Client(process.stdout, process.stdin, server, target)
                    return LinterAnswer(server.command, tuple(await client.diagnose()))
                finally:
                    kill_group(process.pid)
                    transport = getattr(process, "_transport", None)
                    if transport is not None:  # pipes that a survivor outside of the group may hold open
                        transport.close()
                    await asyncio.shield(process.wait())
        except TimeoutError:
            return LinterAnswer(failed=(f"{server.command} gave no answer in {TIMEOUT_S:g} seconds",))
        except (OSError, SandboxError, Broken) as error:
            return LinterAnswer(failed=(f"{server.command} could not be asked: {error}",))
    return LinterAnswer(missing=tuple(missing))


class _Client:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: LanguageServer, target: Target
    ) -> None:
        self._reader, self._writer = reader, writer
        self._server, self._target = server, target
        self._uri = "file://" + quote(target.absolute)
        self._number = 0

    async def diagnose(self) -> list[Diagnostic]:
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
        document = {"uri": self._uri, "languageId": self._server.language, "version": 1, "text": text}
        self._notify("textDocument/didOpen", {"textDocument": document})
        provider = (answer.get("capabilities") or {}).get("diagnosticProvider")
        pulls = provider is not None and provider is not False  # it may be an empty object
        if pulls:
            answer = await self._call("textDocument/diagnostic", {"textDocument": {"uri": self._uri}})
            diagnostics = self._read(answer.get("items") or ())
        else:
            diagnostics = await self._await_published()
        with contextlib.suppress(Broken, TimeoutError):
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
                    message = await self._next()
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
            source = str(item.get("source") or self._server.command)
            place = (int(start.get("line", -1)) + 1, int(start.get("character", -1)) + 1)
            severity = _SEVERITIES.get(item.get("severity", 1), "error")
            code = str(item["code"]) if isinstance(item.get("code"), str | int) else ""
            message = str(item.get("message", ""))
            diagnostics.append(Diagnostic(self._target.path, *place, severity, message, source, code))
        return diagnostics

    # -- the wire -----------------------------------------------------------------------------------------------------

    async def _call(self, method: str, parameters: dict[str, Any] | None) -> dict[str, Any]:
        self._number += 1
        number = self._number
        self._send({"id": number, "method": method, "params": parameters})
        while (message := await self._next()).get("id") != number or "method" in message:
            pass
        if message.get("error"):
            raise Broken(f"{method} was refused: {message['error'].get('message', '')}")
        answer = message.get("result")
        return answer if isinstance(answer, dict) else {}

    def _notify(self, method: str, parameters: dict[str, Any] | None) -> None:
        self._send({"method": method, "params": parameters})

    def _send(self, message: dict[str, Any]) -> None:
        self._writer.write(frame({"jsonrpc": "2.0", **message}))

    async def _next(self) -> dict[str, Any]:
        """The next message that wants no answer."""
        while True:
            try:
                message = await read_message(self._reader)
            except BadMessage as error:
                raise Broken("it does not speak the protocol") from error
            if message is None:
                raise Broken("it went away")
            if not isinstance(message, dict):
                raise Broken("it does not speak the protocol")
            if "method" not in message or "id" not in message:
                return message
            items = (message.get("params") or {}).get("items") or ()  # a question of the server: it gets nothing
            result: Any = [None] * len(items) if message["method"] == "workspace/configuration" else None
            self._send({"id": message["id"], "result": result})
