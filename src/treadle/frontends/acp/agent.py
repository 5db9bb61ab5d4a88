"""The methods of the Agent Client Protocol. A `Session` carries out the commands of one session."""

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import acp
import msgspec
from acp import RequestError
from acp import schema as a
from acp.helpers import ContentBlock

from treadle import __version__
from treadle.adapters.tools.hooks import UnsavedFiles
from treadle.base.inert import make_inert, make_inert_line
from treadle.base.types import ChatId
from treadle.errors import InvalidInput
from treadle.frontends.acp.content import INVALID_PARAMS, INVALID_REQUEST, NOT_FOUND, report_failures
from treadle.frontends.acp.session import (
    MODEL,
    EditorCapabilities,
    Session,
    make_changes,
    make_mode_state,
    require_model,
)
from treadle.library.agent import Agent
from treadle.library.chat import Chat
from treadle.ports.store import ChatFilter, Cursor
from treadle.protocol.options import ChatOptions
from treadle.protocol.trace_context import extract_traceparent

PAGE = 50
KEYS = "environment"
KEYS_TEXT = (
    "Treadle takes keys from the environment or the keyring of the system. Put the provider's key, such as "
    "OPENAI_API_KEY, into the `env` of the agent in the editor's settings, and name a model with TREADLE_MODEL."
)

NO_PACKAGE = "they need the package mcp (pip install 'treadle[mcp]')"


class EditorAgent:
    """`make_options`: returns the options of a new chat in a root. `root_of`: returns the project of a folder;
    InvalidInput if the folder cannot be a project. `unsaved`: the hook of the agent that reads unsaved files."""

    def __init__(
        self,
        agent: Agent,
        options_of: Callable[[str], ChatOptions],
        root_of: Callable[[str], Path],
        unsaved: UnsavedFiles,
    ) -> None:
        self._agent, self._options_of, self._root_of, self._unsaved = agent, options_of, root_of, unsaved
        self._sessions: dict[str, Session] = {}
        self._can = EditorCapabilities()
        self._client: acp.Client

    def on_connect(self, conn: acp.Client) -> None:
        self._client = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: a.ClientCapabilities | None = None,
        client_info: a.Implementation | None = None,
        **_: Any,
    ) -> a.InitializeResponse:
        capabilities = client_capabilities or a.ClientCapabilities()
        self._can = EditorCapabilities(
            terminals=bool((capabilities.field_meta or {}).get("terminal_output")),
            reads=bool(capabilities.fs is not None and capabilities.fs.read_text_file),
        )
        return a.InitializeResponse(
            protocol_version=min(protocol_version, acp.PROTOCOL_VERSION) or acp.PROTOCOL_VERSION,
            agent_info=a.Implementation(name="treadle", title="Treadle", version=__version__),
            auth_methods=[a.AuthMethodAgent(id=KEYS, name="Keys of the environment", description=KEYS_TEXT)],
            agent_capabilities=a.AgentCapabilities(
                load_session=True,
                prompt_capabilities=a.PromptCapabilities(image=True, embedded_context=True),
                mcp_capabilities=a.McpCapabilities(http=is_mcp_installed(), sse=is_mcp_installed()),
                session_capabilities=a.SessionCapabilities(
                    list=a.SessionListCapabilities(),
                    resume=a.SessionResumeCapabilities(),
                    close=a.SessionCloseCapabilities(),
                    fork=a.SessionForkCapabilities(),
                ),
            ),
        )

    @report_failures
    async def authenticate(self, method_id: str, **_: Any) -> a.AuthenticateResponse:
        """Looks whether the model that is set can be used; a key is never asked for or kept."""
        if method_id != KEYS:
            raise InvalidInput(f"there is no way to authenticate called {method_id!r}; there is: {KEYS}")
        await require_model(self._agent, self._options_of("").model)
        return a.AuthenticateResponse()

    @report_failures
    async def new_session(self, cwd: str, **params: Any) -> a.NewSessionResponse:
        options = self._make_options(cwd, params)
        options = msgspec.structs.replace(options, model=await require_model(self._agent, options.model))
        session = self._open(self._agent.chat(options=options), options)
        return a.NewSessionResponse(session_id=session.chat.id, **await self._begin_session(session, params))

    @report_failures
    async def load_session(self, cwd: str, session_id: str, **params: Any) -> a.LoadSessionResponse:
        session = await self._reopen_session(session_id, cwd, params)
        await session.tell(replayed=True)
        return a.LoadSessionResponse(**await self._begin_session(session, params, follows=True))

    @report_failures
    async def resume_session(self, cwd: str, session_id: str, **params: Any) -> a.ResumeSessionResponse:
        session = await self._reopen_session(session_id, cwd, params)
        await session.skip()
        return a.ResumeSessionResponse(**await self._begin_session(session, params, follows=True))

    @report_failures
    async def fork_session(self, cwd: str, session_id: str, **params: Any) -> a.ForkSessionResponse:
        copy = (await self._agent.chat(session_id).fork()).id
        session = await self._reopen_session(copy, cwd, params)
        await session.skip()
        return a.ForkSessionResponse(session_id=copy, **await self._begin_session(session, params))

    @report_failures
    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> a.ListSessionsResponse:
        """The chats of a project, newest first, wherever they were begun."""
        root, position = _resolve_path(cwd or ""), _parse_cursor(cursor or "")
        sessions: list[a.SessionInfo] = []
        last = ""
        while len(sessions) <= PAGE:
            listed = await self._agent.deps.store.list(ChatFilter(archived=False), limit=PAGE, cursor=position)
            for chat in (each.summary for each in listed):
                position = chat.updated_ms, chat.chat
                if not chat.root or (root and _resolve_path(chat.root) != root):
                    continue
                if len(sessions) == PAGE:  # there is one more
                    return a.ListSessionsResponse(sessions=sessions, next_cursor=last)
                updated_at = datetime.fromtimestamp(chat.updated_ms / 1000, UTC).isoformat()
                title = make_inert_line(chat.title, 200) or None
                sessions.append(a.SessionInfo(session_id=chat.chat, cwd=chat.root, title=title, updated_at=updated_at))
                last = f"{chat.updated_ms}.{chat.chat}"
            if len(listed) < PAGE:
                break
        return a.ListSessionsResponse(sessions=sessions)

    @report_failures
    async def close_session(self, session_id: str, **_: Any) -> a.CloseSessionResponse:
        if (session := self._sessions.pop(session_id, None)) is not None:
            self._unsaved.detach(session.chat.id)
            await session.cancel()
            await session.leave()
        return a.CloseSessionResponse()

    @report_failures
    async def prompt(self, session_id: str, prompt: list[ContentBlock], **params: Any) -> a.PromptResponse:
        return await self._require_session(session_id).answer_prompt(prompt, extract_traceparent(params))

    async def cancel(self, session_id: str, **_: Any) -> None:
        if (session := self._sessions.get(session_id)) is not None:
            await session.cancel()

    @report_failures
    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> a.SetSessionModeResponse:
        await self._require_session(session_id).change(**make_changes("mode", mode_id))
        return a.SetSessionModeResponse()

    @report_failures
    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> a.SetSessionConfigOptionResponse:
        session = self._require_session(session_id)
        if config_id == MODEL:
            await require_model(self._agent, str(value))
        await session.change(**make_changes(config_id, value, await session.list_agents()))
        return a.SetSessionConfigOptionResponse(config_options=await session.list_choices())

    async def close(self) -> None:
        """Leave all sessions: the editor has gone. An interrupted run continues when its session is loaded again."""
        sessions, self._sessions = [*self._sessions.values()], {}
        await asyncio.gather(*(session.leave() for session in sessions))

    def _make_options(self, cwd: str, params: Mapping[str, Any]) -> ChatOptions:
        if not os.path.isabs(cwd) or "\0" in cwd:
            raise InvalidInput(f"the folder of a session must be an absolute path, not {cwd!r}")
        if params.get("additional_directories"):
            raise InvalidInput("a session works in one folder; open one for each of the others")
        return msgspec.structs.replace(self._options_of(str(self._root_of(cwd))), interactive=True)

    async def _begin_session(
        self, session: Session, params: Mapping[str, Any], *, follows: bool = False
    ) -> dict[str, Any]:
        """Start the session with the MCP servers of the editor. Return its modes and configuration options."""
        session.begin(*declare(self._agent, session.options.root, params.get("mcp_servers")), follows=follows)
        return {"modes": make_mode_state(session.options), "config_options": await session.list_choices()}

    async def _reopen_session(self, session_id: str, cwd: str, params: Mapping[str, Any]) -> Session:
        """Open a session for an existing chat. The chat becomes interactive, because the editor can ask a person."""
        options = self._make_options(cwd, params)
        chat = self._agent.chat(session_id)
        state = await chat.state()
        if _resolve_path(state.options.root) != _resolve_path(options.root):
            text = f"the session {session_id} works in {make_inert(state.options.root)}, not in {make_inert(cwd)}"
            raise RequestError(INVALID_PARAMS, text)
        if (old_session := self._sessions.pop(session_id, None)) is not None:
            await old_session.leave()
        session = self._open(chat, state.options)
        if not state.options.interactive:
            await session.change(interactive=True)
        return session

    def _open(self, chat: Chat, options: ChatOptions) -> Session:
        session = self._sessions[chat.id] = Session(self._agent, chat, self._client, options, self._can)
        if self._can.reads:

            async def read(path: str) -> str:
                return (await self._client.read_text_file(chat.id, path)).content

            self._unsaved.attach(chat.id, read)
        return session

    def _require_session(self, session_id: str) -> Session:
        if session_id not in self._sessions:
            raise RequestError(NOT_FOUND, f"there is no session {make_inert(session_id)!r} here; load it first")
        return self._sessions[session_id]


def _parse_cursor(cursor: str) -> Cursor | None:
    """Where the page before ended: a chat that does not change meanwhile is on exactly one page."""
    if not cursor:
        return None
    updated_ms, _, chat = cursor.partition(".")
    if not (chat and updated_ms.isascii() and updated_ms.isdigit() and len(updated_ms) < 17):
        raise InvalidInput("this cursor does not come from this agent")
    return int(updated_ms), ChatId(chat)


def _resolve_path(path: str) -> str:
    return os.path.realpath(path) if path and "\0" not in path else path


def is_mcp_installed() -> bool:
    return find_spec("mcp") is not None


def declare(agent: Agent, root: str, servers: list[Any] | None) -> list[str]:
    """Register the MCP servers of the editor. Return a remark for the person about each that is not used."""
    problems: list[str] = []
    for server in servers or ():
        try:
            if not is_mcp_installed():
                raise InvalidInput(NO_PACKAGE)
            name = re.sub(r"[^a-zA-Z0-9]+", "-", server.name).strip("-")[:32]
            agent.mcp.add(name, _build_declaration(server), root)
        except InvalidInput as error:
            name = make_inert_line(server.name, 60)
            problems.append(f"the MCP server {name} of the editor is not used: {make_inert(str(error))}")
    return problems


def _build_declaration(server: object) -> Mapping[str, Any]:
    match server:
        case a.McpServerStdio(command=command, args=args, env=env):
            return {"command": command, "args": args, "env": {each.name: each.value for each in env}}
        case a.HttpMcpServer(url=url, headers=headers):
            return {"url": url, "headers": {each.name: each.value for each in headers}, "type": "http"}
        case a.SseMcpServer(url=url, headers=headers):
            return {"url": url, "headers": {each.name: each.value for each in headers}, "type": "sse"}
        case _:
            raise InvalidInput("only programs, streamable HTTP and SSE are spoken here")


PARSE_ERROR = -32700
LONGEST_LINE = 64 * 1024 * 1024


class CheckedLines:
    """Implements the library's `Transport`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._sending = asyncio.Lock()

    async def send(self, message: dict[str, Any]) -> None:
        async with self._sending:
            self._writer.write(msgspec.json.encode(message) + b"\n")
            await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None at the end, and behind a line that is too long to be one."""
        while True:
            try:
                line = await self._reader.readline()
            except ValueError:
                await self._refuse(PARSE_ERROR, f"a line has more than {LONGEST_LINE} bytes")
                return None
            if not line:
                return None
            if not line.strip():
                continue
            try:
                message = msgspec.json.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                await self._refuse(PARSE_ERROR, f"a line is no JSON: {error}")
                continue
            if (problem := _find_problem(message)) == "":
                return dict(message)
            await self._refuse(INVALID_REQUEST, problem)

    async def close(self) -> None:
        self._writer.close()

    async def _refuse(self, code: int, text: str) -> None:
        await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}})


def _find_problem(message: Any) -> str:
    """Why this is no message; empty if it is one."""
    if not isinstance(message, dict):
        return "a message is no object; batches are not supported"
    number, method, error = message.get("id"), message.get("method"), message.get("error")
    if isinstance(number, bool) or not isinstance(number, str | int | float | None):
        return "the id of a message is neither text nor a number"
    if "method" in message and not isinstance(method, str):
        return "the method of a request is no text"
    if not isinstance(error, dict | None) or (error and not isinstance(error.get("code", 0), int)):
        return "the error of an answer is no object with a code"
    return ""
