"""The runtime: connected programs and their sessions. Answers what it is asked as a whole, makes and ends sessions."""

import asyncio
import hmac
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from treadle import __version__
from treadle.adapters.models.base import check_effort
from treadle.adapters.models.client_models import BareNames, ClientModels
from treadle.adapters.models.registry import ModelRegistry
from treadle.adapters.policy.standard import StandardPolicy
from treadle.base.inert import make_inert_line, print_note
from treadle.base.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, Connection, RpcError
from treadle.errors import ChatExists, NotFound, Refused
from treadle.frontends.copilot.methods import Method, Params, require_text
from treadle.frontends.copilot.requests import ProgramHooks
from treadle.frontends.copilot.session import Session, bring, list_builtin_names, read_extras
from treadle.frontends.copilot_words.config import (
    ASKS,
    WITHOUT_EFFECT,
    Config,
    make_options,
    needs_transform,
    read_config,
)
from treadle.frontends.copilot_words.events import format_model, format_session, format_tool, make_event_id
from treadle.frontends.copilot_words.names import RUNTIME, SESSION
from treadle.library.agent import Agent
from treadle.library.chat import Chat
from treadle.library.prompt import MAX_BYTES as INSTRUCTION_BYTES
from treadle.library.prompt import read_folders
from treadle.ports.store import ChatFilter, Listed
from treadle.protocol.commands import Rename
from treadle.protocol.options import EFFORTS, ChatOptions, ReasoningEffort
from treadle.protocol.wire import format_time

PROTOCOL = 3
DELETED = "copilot-sdk-deleted"  # The label of chats that programs deleted when chats could only be archived.
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Runtime:
    """`root_of` gives the project for a folder that a program names; `token` is what programs on TCP must show."""

    def __init__(
        self,
        agent: Agent,
        models: ModelRegistry,
        options: ChatOptions,
        hooks: ProgramHooks,
        root_of: Callable[[str], str],
        token: str = "",
    ) -> None:
        self.agent, self._options, self._root_of, self._token = agent, options, root_of, token
        self._names = BareNames(models, options.model)
        self._brought = ClientModels(models)
        self.connections: set[Connection] = set()
        self.sessions: dict[str, Session] = {}
        self._opening = asyncio.Lock()
        self.end_requested = asyncio.Event()  # Set when a program wants the runtime to end.
        self._hooks = hooks
        hooks.of = lambda chat: self.sessions[chat].hooks if chat in self.sessions else None
        if isinstance(agent.deps.policy, StandardPolicy):
            agent.deps.policy.every_command = lambda options: ASKS in options.labels

    async def converse(self, connection: Connection) -> None:
        self.connections.add(connection)
        connection.admitted = not self._token
        try:
            await connection.serve()
        finally:
            self.connections.discard(connection)
            await _finish_all(session.detach(connection) for session in self.sessions.values())

    async def close(self) -> None:
        for connection in list(self.connections):
            connection.close()
        await _finish_all(session.close() for session in self.sessions.values())

    async def handle(self, connection: Connection, method: str, params: dict[str, Any]) -> Any:
        if not connection.admitted and method != "connect":
            raise RpcError(-32001, "AUTHENTICATION_FAILED: connect with the runtime's token first.")
        if method in RUNTIME:
            return await getattr(self, RUNTIME[method])(connection, params)
        if method not in SESSION:
            raise RpcError(METHOD_NOT_FOUND, f"Unhandled method {method}: Treadle's runtime does not have it.")
        session = self.sessions.get(str(params.get("sessionId")))
        if SESSION[method] == "detach" and (session is None or connection not in session.programs):
            return {"success": True}  # it has left already
        call = Method(self._require_session(connection, params), connection, method, params)
        return await getattr(call, SESSION[method])()

    def tell_all(self, kind: str, session: str) -> None:
        for connection in self.connections:
            if connection.admitted:
                connection.notify("session.lifecycle", {"type": kind, "sessionId": session})

    async def connect(self, connection: Connection, params: Params) -> Any:
        if self._token and not hmac.compare_digest(str(params.get("token") or "").encode(), self._token.encode()):
            raise RpcError(-32001, "AUTHENTICATION_FAILED: the connection token is missing or wrong.")
        connection.admitted = True
        return {"ok": True, "protocolVersion": PROTOCOL, "version": __version__}

    async def ping(self, _connection: Connection, params: Params) -> Any:
        message, now = str(params.get("message") or ""), format_time(self.agent.deps.clock.now_ms())
        return {"message": f"pong: {message}", "timestamp": now, "protocolVersion": PROTOCOL}

    async def status(self, _connection: Connection, _params: Params) -> Any:
        return {"version": __version__, "protocolVersion": PROTOCOL}

    async def auth_status(self, _connection: Connection, _params: Params) -> Any:
        """Report that the runtime is authenticated if its model can be used. There is no login."""
        if reason := await asyncio.to_thread(self._names.explain_unusable_default):
            return {"isAuthenticated": False, "statusMessage": reason}
        text = f"Treadle uses {self._options.model} with its own key; no GitHub account is involved."
        return {"isAuthenticated": True, "statusMessage": text, "authType": "api-key"}

    async def models(self, _connection: Connection, _params: Params) -> Any:
        usable_models = await asyncio.to_thread(self._names.list_usable)
        return {"models": [format_model(name, info) for name, info in usable_models.items()]}

    async def tools(self, _connection: Connection, _params: Params) -> Any:
        specs = self.agent.deps.tools.list_specs(msgspec.structs.replace(self._options, interactive=True))
        return {"tools": [format_tool(spec) for spec in specs]}

    async def foreground(self, _connection: Connection, params: Params) -> Any:
        """There is no screen on which a session could be in front."""
        if "sessionId" not in params:
            return {"sessionId": None}
        return {"success": False, "error": "not running in TUI+server mode: there is no screen here"}

    async def shutdown(self, _connection: Connection, _params: Params) -> Any:
        self.end_requested.set()
        return {}

    async def create(self, connection: Connection, params: Params) -> Any:
        config = self._parse_config(params)
        session = config.session_id = config.session_id or os.urandom(16).hex()
        if not _ID.fullmatch(session):
            raise RpcError(INVALID_PARAMS, "A sessionId has 1 to 128 letters, digits, dots, hyphens and underscores.")
        if session in self.sessions:  # whose servers are not to be touched
            raise RpcError(INVALID_PARAMS, f"There is a session {session} already; resume it.")
        root, model = self._root_of(config.working_directory or ""), self._choose_model(session, config, connection)
        base = msgspec.structs.replace(self._options, root=root, model=model)
        servers = bring(self.agent, session, [config], ())
        extras = await asyncio.to_thread(read_extras, self.agent, config, base.project, servers)
        builtin = list_builtin_names(self.agent, base, extras.skills)
        if config.effort:
            check_effort(self.agent.deps.models, base.model, config.effort)
        options = make_options(base, config, config.tools or (), builtin, extras)
        if config.instruction_directories:
            options = await asyncio.to_thread(self._add_instructions, options, config.instruction_directories)
        chat = self.agent.begin(session, options)
        try:
            await chat.open()
        except ChatExists as error:
            raise RpcError(INVALID_PARAMS, f"There is a session {session} already; resume it.") from error
        created_session = self.sessions[session] = self._make_session(chat, (await chat.state()).options)
        await created_session.attach(connection, config, "new")
        if needs_transform(config.system_message) or config.servers:
            await created_session.configure(config)
        if config.name:
            await chat.command(Rename(config.name, by="program"))
        self._warn(created_session, connection, params)
        self.tell_all("session.created", session)
        return _describe_session(created_session)

    def _add_instructions(self, options: ChatOptions, folders: Iterable[str]) -> ChatOptions:
        """Those of the project count most: they come last, and keep their room."""
        own_instructions = self.agent.prepare(options).options.instructions
        paths = [os.path.join(options.root, os.path.expanduser(folder)) for folder in folders]
        folder_instructions = read_folders(paths, INSTRUCTION_BYTES - len(own_instructions.encode()))
        instructions = "\n\n".join(filter(None, (folder_instructions, own_instructions)))
        return msgspec.structs.replace(options, instructions=instructions)

    def _parse_config(self, params: Params) -> Config:
        config = read_config(params)
        if config.servers:
            self.agent.mcp.keeping.meta = self._hooks.fetch_meta
        return config

    async def resume(self, connection: Connection, params: Params) -> Any:
        config = self._parse_config(params)
        async with self._opening:
            session = await self._open_session(config.session_id)
        changes: dict[str, Any] = {}
        if config.provider is not None or config.model:
            ref = self._choose_model(config.session_id, config, connection)
            changes = {"model": ref} if ref != session.options.model else {}
        if config.working_directory and (root := self._root_of(config.working_directory)) != session.options.root:
            changes["root"] = root
        if not session.programs and config.continue_pending_work is False:
            await session.abort()
        await session.attach(connection, config, "resume")
        await session.change(changes)
        await session.configure(config)
        await session.chat.resume()
        await session.ask_again(connection)
        self._warn(session, connection, params)
        return _describe_session(session)

    async def _open_session(self, id: str) -> Session:
        if id in self.sessions:
            return self.sessions[id]
        chat = self.agent.chat(id)
        try:
            state = await chat.state()
        except NotFound as error:
            raise RpcError(INVALID_PARAMS, f"Session not found: {id}") from error
        if DELETED in state.options.labels:
            raise RpcError(INVALID_PARAMS, f"Session not found: {id}")
        self.sessions[id] = self._make_session(chat, state.options)
        return self.sessions[id]

    def _make_session(self, chat: Chat, options: ChatOptions) -> Session:
        tell_update = lambda: self.tell_all("session.updated", chat.id)  # noqa: E731
        return Session(self.agent, chat, options, self._names.shorten_ref, tell_update)

    def _choose_model(self, session: str, config: Config, connection: Connection) -> str:
        async def fetch_token(provider: str) -> str:
            params = {"sessionId": session, "providerName": provider}
            answer = await connection.request("providerToken.getToken", params)
            return str(answer.get("token", "")) if isinstance(answer, Mapping) else ""

        if config.provider is not None:
            return self._brought.bring(session, config.provider, config.model or self._names.default_name, fetch_token)
        ref = self._brought.bring_named(session, config.providers or (), config.models or (), config.model, fetch_token)
        return ref or self._names.resolve_ref(config.model)

    def _warn(self, session: Session, connection: Connection, params: Params) -> None:
        warnings = [("tools", warning) for warning in session.chat.warnings]
        if self._brought.is_missing(session.options.model):
            text = "The model of this session was brought by a program, and its key is kept nowhere"
            warnings.insert(0, ("provider", f"{text}; resume with provider."))
        if fields := [field for field in WITHOUT_EFFECT if params.get(field)]:
            text = f"Treadle takes these settings of a session without effect: {', '.join(fields)}."
            warnings.insert(0, ("unsupported", text))
        for kind, text in warnings:
            session.announce("session.warning", {"warningType": kind, "message": text}, connection)

    async def switch_model(self, connection: Connection, params: Params) -> Any:
        session = self._require_session(connection, params)
        config = session.programs[connection]
        config.model = require_text(params, "modelId")
        changes: dict[str, Any] = {"model": self._choose_model(session.chat.id, config, connection)}
        if effort := params.get("reasoningEffort"):
            config.reasoning_effort = changes["reasoning_effort"] = _parse_effort(effort)
        await session.change(changes)
        return {"modelId": params["modelId"]}

    async def set_effort(self, connection: Connection, params: Params) -> Any:
        session = self._require_session(connection, params)
        effort = session.programs[connection].reasoning_effort = _parse_effort(require_text(params, "reasoningEffort"))
        await session.change({"reasoning_effort": effort})
        return {"reasoningEffort": effort}

    async def current_model(self, connection: Connection, params: Params) -> Any:
        options = self._require_session(connection, params).options
        effort = {"reasoningEffort": options.reasoning_effort} if options.reasoning_effort else {}
        return {"modelId": self._names.shorten_ref(options.model), **effort}

    def _require_session(self, connection: Connection, params: Params) -> Session:
        session = self.sessions.get(require_text(params, "sessionId"))
        if session is None or connection not in session.programs:
            raise RpcError(INVALID_PARAMS, f"Session not found: {params['sessionId']}; create or resume it first.")
        return session

    async def _list_chats(self) -> list[Listed]:
        chats = await self.agent.deps.store.list(ChatFilter(archived=False))
        return [listed for listed in chats if DELETED not in listed.summary.labels]

    async def list(self, _connection: Connection, params: Params) -> Any:
        filters = params.get("filter")
        folder = filters.get("cwd") if isinstance(filters, Mapping) else None
        listed_chats = [each for each in await self._list_chats() if not folder or each.summary.root == folder]
        return {"sessions": [format_session(listed) for listed in listed_chats]}

    async def metadata(self, _connection: Connection, params: Params) -> Any:
        id = require_text(params, "sessionId")
        listed_chat = next((listed for listed in await self._list_chats() if listed.summary.chat == id), None)
        return {"session": format_session(listed_chat) if listed_chat is not None else None}

    async def last(self, _connection: Connection, _params: Params) -> Any:
        listed_chats = await self._list_chats()
        return {"sessionId": listed_chats[0].summary.chat if listed_chats else None}

    async def fork(self, _connection: Connection, params: Params) -> Any:
        """A copy of a session, whole or up to what came before an event."""
        chat = (await self._open_session(require_text(params, "sessionId"))).chat
        upto, events = params.get("toEventId"), await chat.events()
        seqs_before = (each.seq - 1 for each in events if make_event_id(chat.id, each.seq, 0) == upto)
        seq = next(seqs_before, 0) if upto else events[-1].seq
        if not seq:
            raise RpcError(INVALID_PARAMS, f"Event {upto} not found in session {chat.id}.")
        copy = await chat.fork(seq)
        if params.get("name"):
            await copy.command(Rename(require_text(params, "name"), by="program"))
        return {"sessionId": copy.id}

    async def delete(self, _connection: Connection, params: Params) -> Any:
        id = require_text(params, "sessionId")
        chat: Chat = self.sessions[id].chat if id in self.sessions else self.agent.chat(id)
        deleted = True
        try:
            if DELETED in (await chat.state()).options.labels:
                raise NotFound(id)
            with suppress(Refused):  # a session that is deleted in the middle of a run ends it first
                await chat.interrupt("program")
                async for _ in chat.resume():
                    pass
            await self.agent.delete_chat(id)
        except NotFound:
            deleted = False
        if (session := self.sessions.pop(id, None)) is not None:
            await session.close()
        if not deleted:
            return {"success": False, "error": f"Session file not found: {id}"}
        self.tell_all("session.deleted", id)
        return {"success": True}


async def _finish_all(works: Iterable[Awaitable[None]]) -> None:
    """Do the same to all sessions at once; one failure does not stop the rest."""
    for failure in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(failure, Exception):
            print_note(f"treadle: {make_inert_line(f'{type(failure).__name__}: {failure}')}")


def _parse_effort(value: Any) -> ReasoningEffort:
    if value not in EFFORTS:
        raise RpcError(INVALID_PARAMS, f"reasoningEffort is one of {', '.join(EFFORTS)}, not {value!r}.")
    effort: ReasoningEffort = value
    return effort


def _describe_session(session: Session) -> dict[str, Any]:
    return {"sessionId": session.chat.id, "workspacePath": None, "capabilities": session.dialogues.capabilities}
