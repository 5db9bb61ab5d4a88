"""One session: a chat, and the attached programs, which all receive all events in the order of the log; the MCP servers
and skills that they bring. The session continues without programs; a program that returns is attached again."""

import asyncio
import base64
import binascii
import mimetypes
import os
import stat
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from treadle.adapters.tools.registry import SERVER_MARK
from treadle.base.inert import fence_block, make_inert_line, print_note
from treadle.base.jsonrpc import INVALID_PARAMS, Connection, PeerDisconnected, RpcError
from treadle.base.types import make_id
from treadle.chat.state import can_start_queue, compute_status
from treadle.errors import Refused
from treadle.frontends.copilot.requests import GATE, Requests, SessionHooks
from treadle.frontends.copilot_words import config as cfg
from treadle.frontends.copilot_words.config import Config
from treadle.frontends.copilot_words.events import SdkEvent, Telling, make_event_id
from treadle.library.agent import Agent
from treadle.library.chat import Chat
from treadle.library.feeds import read_patiently, watch
from treadle.library.mcp_hub.search import CALL, FIND
from treadle.library.skills.places import read_folder_documents
from treadle.library.skills.reading import parse_skills, split_front_matter
from treadle.ports.store import Store
from treadle.protocol import events as e
from treadle.protocol.commands import ChangeOptions, Send
from treadle.protocol.content import MAX_IMAGE_BYTES, Image
from treadle.protocol.options import ChatOptions, Project, Skill
from treadle.protocol.wire import format_time


def list_builtin_names(agent: Agent, options: ChatOptions, session_skills: tuple[Skill, ...]) -> list[str]:
    """The tools that Treadle has for such a chat itself."""
    base = msgspec.structs.replace(options, tools=None, dynamic_tools=(), interactive=True, skills=session_skills)
    specs = agent.deps.tools.list_specs(base)
    return [spec.name for spec in specs if not spec.server and spec.name not in (FIND, CALL)]


def bring(agent: Agent, session: str, configs: Iterable[Config], stopped: Iterable[str]) -> dict[str, cfg.McpServer]:
    """Declare the servers of all programs for this session; InvalidInput if one cannot be."""
    programs, disabled, servers = list(configs), {*stopped}, dict[str, cfg.McpServer]()
    for config in programs:
        servers = config.servers | servers
        disabled |= {*(config.disabled_mcp_servers or ())}
    if servers:
        declared = {name: server.build_declaration(disabled=name in disabled) for name, server in servers.items()}
        agent.mcp.bring(session, declared, alone=not any(each.enable_config_discovery for each in programs))
    return servers


def find_skills(agent: Agent, config: Config, project: Project) -> dict[str, tuple[Skill, str]]:
    """All skills of a session, also disabled ones, with their sources: folders that the program names; if it asks, the
    usual."""
    folders = [Path(each).expanduser() for each in config.skill_directories or ()]
    named_skills = parse_skills([each for folder in folders for each in read_folder_documents("skills", folder)])
    sourced_skills = [("custom", skill) for skill in named_skills]
    if config.enable_config_discovery:
        for skill in parse_skills(agent.documents.read_all("skills", project)):
            sourced_skills.append(("personal-agents" if Path(skill.path).is_absolute() else "project", skill))
    return {skill.name: (skill, source) for source, skill in reversed(sourced_skills)}


def read_extras(agent: Agent, config: Config, project: Project, servers: Iterable[str]) -> cfg.Extras:
    """Reads files. An agent has the skills that it names, whole and from the beginning, and no others."""
    enabled_skills = find_skills(agent, config, project)
    for name in config.disabled_skills or ():
        enabled_skills.pop(name, None)
    if (custom := config.custom_agent) is None:
        return cfg.Extras(tuple(servers), tuple(skill for skill, _ in enabled_skills.values()))
    parts = [custom.prompt or ""]
    for name in custom.skills or ():
        if name in enabled_skills:
            text = Path(project[0], enabled_skills[name][0].path).read_text(errors="replace")
            parts.append(f"<skill name={name!r}>\n{split_front_matter(text)[1]}\n</skill>")
    return cfg.Extras(tuple(servers), (), "\n\n".join(parts).strip())


_PIECES = ("assistant.message_delta", "assistant.reasoning_delta", "assistant.tool_call_delta")
"""Told only to programs that want to see an answer while it comes."""

MOST_HELD = 8
"""Most times in a row that a hook may make a stopping session continue. The cost of continuing has no other limit."""


class Session:
    def __init__(
        self,
        agent: Agent,
        chat: Chat,
        options: ChatOptions,
        shown_model: Callable[[str], str],
        updated: Callable[[], None],
    ) -> None:
        self.agent, self.chat = agent, chat
        self.options = options  # As recorded, when the session was last looked at here.
        self._shown_model, self._updated = shown_model, updated
        self._telling = Telling(chat.id, shown_model)
        self.programs: dict[Connection, Config] = {}
        self.servers: dict[str, cfg.McpServer] = {}
        self.stopped: set[str] = set()  # Servers that a program stopped.
        find_hook_programs = lambda: self._filter_programs(lambda config: bool(config.hooks))  # noqa: E731
        self.hooks = SessionHooks(chat.id, options.root, find_hook_programs)
        self.hooks.wanted = cfg.HOOKS in options.labels
        answering = lambda: self._filter_programs(lambda config: bool(config.request_user_input))  # noqa: E731
        trace = agent.deps.observer.make_traceparent
        self.dialogues = Dialogues(self.programs, self.announce)
        self.requests = Requests(
            chat, self.hooks, self.announce, lambda: self.tools, answering, self.run_in_background, trace
        )
        self._between: list[tuple[int, SdkEvent]] = []
        """Events that are in no log, with the seq that they stand behind."""
        self._listeners: list[asyncio.Queue[SdkEvent]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._reading = False
        self._seen = 0  # The seq of the last event that was read.
        self._held = 0  # How often a hook has made the session continue since the last message.
        self._source: str | None = None  # How the session began here, until its first message.

    def _filter_programs(self, predicate: Callable[[Config], bool]) -> list[Connection]:
        return [connection for connection, config in self.programs.items() if predicate(config)]

    @property
    def tools(self) -> Sequence[cfg.Tool]:
        """The tools of all programs; the one that came first wins a name."""
        tools_by_name: dict[str, cfg.Tool] = {}
        for config in self.programs.values():
            tools_by_name = {tool.name: tool for tool in config.tools or ()} | tools_by_name
        return tuple(tools_by_name.values())

    @property
    def shown_model(self) -> str:
        return self._shown_model(self.options.model)

    def run_in_background(self, work: Coroutine[Any, Any, object]) -> None:
        def finish_task(task: "asyncio.Task[Any]") -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                print_note(f"treadle: {make_inert_line(f'{type(error).__name__}: {error}')}")

        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(finish_task)

    async def attach(self, connection: Connection, config: Config, source: str) -> None:
        alone = not self.programs
        self.programs[connection] = config
        self.hooks.wanted = self.hooks.wanted or bool(config.hooks)
        self.dialogues.tell_changes()
        if not self._reading:
            head = 0 if source == "new" else (await read_patiently(self.chat.state)).head
            if not self._reading:  # no other program came meanwhile
                self._reading, self._source, self._seen = True, source, head
                self.run_in_background(self._read_on(head))
        if source != "new" and not config.disable_resume:
            state, active = await self.chat.state(), not alone
            data = {"resumeTime": format_time(self.agent.deps.clock.now_ms()), "eventCount": state.head}
            data |= {"selectedModel": self._shown_model(state.options.model), "context": {"cwd": state.options.root}}
            data |= {"sessionWasActive": active, "alreadyInUse": active}
            data["continuePendingWork"] = config.continue_pending_work is not False
            await self._announce_lasting("session.resume", data)

    async def detach(self, connection: Connection) -> None:
        """Detach a program. Its tools are removed as long as other programs stay. The last program leaves all options
        as they are, for a program that returns; its MCP servers end when the chat is idle."""
        if self.programs.pop(connection, None) is None:
            return
        self.dialogues.tell_changes()
        if self.programs:
            await self.configure(next(reversed(self.programs.values())))
        elif compute_status(await self.chat.state()) in ("idle", "error"):
            await self._end_servers()

    async def configure(self, config: Config) -> None:
        if not (servers := bring(self.agent, self.chat.id, self.programs.values(), self.stopped)):
            await self._end_servers()
        self.servers = servers
        extras = await asyncio.to_thread(read_extras, self.agent, config, self.options.project, self.servers)
        ask = self._filter_programs(lambda each: each is config)
        prompt = (
            await self._transform_prompt(config, ask[0]) if ask and cfg.needs_transform(config.system_message) else None
        )
        builtin = list_builtin_names(self.agent, self.options, extras.skills)
        new_options = cfg.make_options(self.options, config, self.tools, builtin, extras, prompt)
        fields = msgspec.structs.asdict(new_options)
        await self.change({name: value for name, value in fields.items() if value != getattr(self.options, name)})
        if any(SERVER_MARK in each for each in self.options.tools or ()):
            self.run_in_background(self.agent.mcp.hub.start(self.options))

    async def change(self, changes: dict[str, Any]) -> None:
        if changes:
            recorded = {name: msgspec.to_builtins(value) for name, value in changes.items()}
            self.options = (await self.chat.command(ChangeOptions(recorded, by="program"))).options

    async def _transform_prompt(self, config: Config, connection: Connection) -> str:
        async def ask(sections: dict[str, str]) -> Any:
            section_contents = {name: {"content": text} for name, text in sections.items()}
            params = {"sessionId": self.chat.id, "sections": section_contents}
            answer = await connection.request("systemMessage.transform", params)
            return answer.get("sections", {}) if isinstance(answer, dict) else {}

        assert config.system_message is not None
        return await cfg.transform_prompt(config.system_message, ask)

    async def _end_servers(self) -> None:
        if self.servers:
            await self.agent.mcp.take_away(self.chat.id)

    async def close(self) -> None:
        """Stop all announcements. The chat goes on."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._end_servers()

    async def _read_on(self, after_seq: int) -> None:
        async for envelope in watch(self.agent.deps, self.chat.id, after_seq):
            try:
                await self._take(envelope)
            except Exception as error:  # the following events are reported nevertheless
                text = make_inert_line(f"{type(error).__name__}: {error}")
                print_note(f"treadle: session {self.chat.id}, event {envelope.seq}: {text}")
                self.announce("session.warning", {"warningType": "runtime", "message": text})

    async def _take(self, envelope: e.Envelope) -> None:
        self._seen = max(self._seen, envelope.seq)
        if isinstance(envelope.data, e.SessionIdle):
            if envelope.data.reason == "superseded" or await self._has_next_run():
                return  # the session is idle when its queue is
            if envelope.data.reason == "done" and (await self._continue_by_hook() or await self._has_next_run()):
                return  # a hook wants more, or a message came while the hook was asked
        for event in self._telling.tell(envelope):
            self.tell(event)
        match envelope.data:
            case e.UserMessage() | e.TurnEnd():
                self._updated()
            case e.ActionRequired():
                await read_patiently(self.requests.attend)
            case e.OptionsChanged():
                self.options = (await read_patiently(self.chat.state)).options
                self._updated()
            case e.SessionError(message=message):
                hook_input = {"error": message, "errorContext": "model_call", "recoverable": False}
                self.run_in_background(self.hooks.invoke("errorOccurred", **hook_input))
            case e.SessionIdle() if not self.programs:
                await self._end_servers()

    async def _has_next_run(self) -> bool:
        """True if another run follows the run that ended. It may be over by now: then only the log has its message."""
        state = await read_patiently(self.chat.state)
        if state.run is not None or can_start_queue(state):
            return True
        if state.head <= self._seen:
            return False
        later_events = await read_patiently(lambda: self.chat.events(self._seen))
        return any(isinstance(each.data, e.UserMessage) for each in later_events)

    async def _continue_by_hook(self) -> bool:
        """True if a hook made the session continue at the end of a run; limited by MOST_HELD."""
        if (more := await self.hooks.fetch_stop_message(again=self._held > 0)) and self._held >= MOST_HELD:
            warning = f"The hook agentStop has wanted more {self._held} times in a row; the session stops all the same."
            self.announce("session.warning", {"warningType": "policy_blocked", "message": warning})
            more = ""
        self._held = self._held + 1 if more else 0
        if more:
            await self.chat.carry_out(Send(more, queue_id=make_id("q")), lambda _state: None)
        return bool(more)

    def tell(self, event: SdkEvent, only: Connection | None = None) -> None:
        for listener in self._listeners:
            listener.put_nowait(event)
        for connection, config in self.programs.items():
            if only in (None, connection) and (config.streaming or event["type"] not in _PIECES):
                connection.notify("session.event", {"sessionId": self.chat.id, "event": event})

    def announce(self, kind: str, data: dict[str, Any], only: Connection | None = None) -> SdkEvent:
        event = self._telling.make_live_event(kind, data, self.agent.deps.clock.now_ms())
        self.tell(event, only)
        return event

    async def _announce_lasting(self, kind: str, data: dict[str, Any]) -> SdkEvent:
        """An event that is in no log, and is read again as long as the runtime lives."""
        event = self.announce(kind, data)
        del event["ephemeral"]
        self._between.append(((await self.chat.state()).head, event))
        return event

    async def ask_again(self, connection: Connection) -> None:
        self.requests.again |= {action.action for action in await self.chat.actions()}
        self.requests.again |= {f"{GATE}{action}" for action in self.requests.again}
        for kind, data in list(self.requests.open.values()):
            self.announce(kind, data, connection)
        await self.requests.attend()

    async def log(self, message: str, level: str, ephemeral: bool, url: str | None) -> str:
        """Tell all programs something that a program wants to be told."""
        kind = level if level in ("warning", "error") else "info"
        data = {f"{kind}Type": "notification", "message": message, **({"url": url} if url else {})}
        event = f"session.{kind}"
        return str((self.announce(event, data) if ephemeral else await self._announce_lasting(event, data))["id"])

    async def read_history(self) -> list[SdkEvent]:
        """The whole history, as programs would have been told it; without what is only live."""
        telling, events = Telling(self.chat.id, self._shown_model), []
        between = list(self._between)
        for envelope in await self.chat.events():
            events += [event for event in telling.tell(envelope) if not event.get("ephemeral")]
            while between and between[0][0] <= envelope.seq:
                events.append(between.pop(0)[1])
        return events

    async def send(self, prompt: str, mode: str, attachments: Sequence[Any], traceparent: str) -> str:
        """Say something; the id of the message. RpcError if a hook refuses it."""
        if self._source is not None:
            source, self._source = self._source, None
            if context := await self.hooks.fetch_start_context(source, prompt):
                prompt = f"{prompt}\n\n{context}"
        prompt, refused = await self.hooks.check_prompt(prompt)
        if refused:
            self.announce("session.warning", {"warningType": "policy_blocked", "message": refused})
            self.announce("session.idle", {})
            raise RpcError(INVALID_PARAMS, refused)
        below, images = await read_attachments(attachments, self.options.root, self.agent.deps.store)
        self._held = 0
        delivery: e.Delivery = "steering" if mode == "immediate" else "queued"
        self.announce("pending_messages.modified", {})
        heads: list[int] = []
        command = Send(prompt + below, delivery, tuple(images), make_id("q"), traceparent)
        state = await self.chat.carry_out(command, lambda met: heads.append(met.head))
        if any(item.id == command.queue_id for item in state.queue):
            return command.queue_id
        message_seqs = (each.seq for each in await self.chat.events(heads[-1]) if isinstance(each.data, e.UserMessage))
        return make_event_id(self.chat.id, next(message_seqs), 0)

    async def wait_for(self, sending: Awaitable[str]) -> dict[str, Any]:
        """Send, and wait until the session is idle behind this message: the last answer, or RpcError."""
        events: asyncio.Queue[SdkEvent] = asyncio.Queue()
        self._listeners.append(events)
        try:
            message, has_begun, answer = await sending, False, None
            while True:
                event = await events.get()
                kind, data = event["type"], event["data"]
                has_begun = has_begun or (kind == "user.message" and data["messageId"] == message)
                if has_begun and kind == "assistant.message":
                    answer = event
                elif has_begun and kind == "session.error":
                    raise RpcError(-32000, f"Session error: {data['message']}", {"completionEventId": event["id"]})
                elif has_begun and kind == "session.idle":
                    outcome = {"messageId": message, "aborted": bool(data.get("aborted")), "response": answer}
                    return {**outcome, "completionEventId": event["id"]}
        finally:
            self._listeners.remove(events)

    async def abort(self) -> bool:
        with suppress(Refused):
            await self.chat.interrupt("program")
            return True
        return False

    async def let_program_leave(self, connection: Connection) -> None:
        """A program leaves of its own will."""
        if connection in self.programs and self.programs[connection].hooks:
            with suppress(PeerDisconnected):
                await self.hooks.invoke("sessionEnd", reason="user_exit")
        await self.detach(connection)


async def read_attachments(attachments: Sequence[Any], root: str, store: Store) -> tuple[str, list[Image]]:
    lines: list[str] = []
    images: list[Image] = []
    for item in attachments:
        if not isinstance(item, Mapping):
            raise RpcError(INVALID_PARAMS, "An attachment is no object.")
        if (picture := await asyncio.to_thread(_read_picture, item, root)) is not None:
            images.append(Image(picture[0], await store.put_blob(picture[1])))
        else:
            lines.append(_format_attachment(item, root))
    return ("\n\nAttached:\n" + "\n".join(lines) if lines else ""), images


def _read_picture(item: Mapping[str, Any], root: str) -> tuple[str, bytes] | None:
    kind, path = item.get("type"), str(item.get("path") or item.get("filePath") or "")
    if kind == "blob":
        media = str(item.get("mimeType", ""))
        try:
            data = base64.b64decode(str(item.get("data", "")), validate=True)
        except binascii.Error as error:
            raise RpcError(INVALID_PARAMS, f"An attachment is no base64: {error}.") from error
    elif kind == "file" and (mimetypes.guess_type(path)[0] or "").startswith("image/"):
        media = mimetypes.guess_type(path)[0] or ""
        try:
            with open(os.open(Path(root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise RpcError(INVALID_PARAMS, f"The attachment {path} is no ordinary file.")
                data = file.read(MAX_IMAGE_BYTES + 1)
        except (OSError, ValueError) as error:
            raise RpcError(INVALID_PARAMS, f"The attachment {path!r} cannot be read: {error}.") from error
    else:
        return None
    if not media.startswith("image/"):
        return None
    if len(data) > MAX_IMAGE_BYTES:
        raise RpcError(INVALID_PARAMS, f"A picture has more than {MAX_IMAGE_BYTES} bytes.")
    return media, data


def _format_attachment(item: Mapping[str, Any], root: str) -> str:
    path = str(item.get("path") or item.get("filePath") or "")
    name = str(item.get("displayName") or path or item.get("title") or "attachment")
    match item.get("type"):
        case "file" | "directory" as kind:
            inside = Path(path).is_relative_to(root) if Path(path).is_absolute() else False
            return f"- {kind} {Path(path).relative_to(root) if inside else path}"
        case "selection":
            return f"- selection of {name}:\n{fence_block(str(item.get('text', '')))}"
        case "blob":
            data = base64.b64decode(str(item.get("data", "")))
            return f"- {name}:\n{fence_block(data.decode(errors='replace'))}"
        case _:
            return f"- {item.get('type')} {name} {item.get('url') or ''}".rstrip()


class Announce(Protocol):
    def __call__(self, kind: str, data: dict[str, Any], only: Connection | None = None) -> object: ...


class Dialogues:
    """`programs`: those that are attached to the session, the longest first."""

    def __init__(self, programs: Mapping[Connection, Config], announce: Announce) -> None:
        self._programs, self._announce = programs, announce
        self._open: dict[str, tuple[asyncio.Future[Any], Sequence[Connection]]] = {}
        self._told: tuple[bool, dict[str, str]] = (False, {})

    @property
    def capabilities(self) -> dict[str, Any]:
        return {"ui": {"elicitation": bool(self._list_answering())}}

    @property
    def commands(self) -> dict[str, str]:
        """Descriptions of the commands, by name; for a duplicate name that of the program which came first."""
        all_commands = [each for config in self._programs.values() for each in config.commands or ()]
        return {each.name: each.description or "" for each in reversed(all_commands)}

    def tell_changes(self) -> None:
        """Announce changed capabilities and commands. A request whose programs have all left ends without an answer."""
        elicits, commands = bool(self._list_answering()), self.commands
        previous, self._told = self._told, (elicits, commands)
        if elicits != previous[0]:
            self._announce("capabilities.changed", self.capabilities)
        if commands != previous[1]:
            listed = [{"name": name, "description": about} for name, about in commands.items()]
            self._announce("commands.changed", {"commands": listed})
        for future, connections in list(self._open.values()):
            if not any(each in self._programs for each in connections) and not future.done():
                future.set_result(None)

    async def elicit(self, message: str, schema: Any) -> Any:
        """Ask a person through a program that can show a dialogue; `cancel` if there is no such program."""
        connections = self._list_answering()
        data = {"message": message, "requestedSchema": schema, "mode": "form"}
        answer = await self._ask("elicitation.requested", data, connections) if connections else None
        return answer if isinstance(answer, Mapping) and "action" in answer else {"action": "cancel"}

    async def execute(self, name: str, words: str) -> str:
        """Have a program carry its command out; why it could not, or nothing."""
        programs = self._programs.items()
        connections = [each for each, config in programs if any(c.name == name for c in config.commands or ())]
        if not connections:
            return f"There is no command {name}."
        data = {"commandName": name, "command": f"/{name} {words}".strip(), "args": words}
        answer = await self._ask("command.execute", data, connections[:1])
        return str(answer.get("error") or "") if isinstance(answer, Mapping) else "The program left."

    def answer(self, request: str, result: Any) -> bool:
        """Answer an open request. True if it was open."""
        future = self._open[request][0] if request in self._open else None
        if future is None or future.done():
            return False
        future.set_result(result)
        return True

    async def _ask(self, kind: str, data: dict[str, Any], connections: Sequence[Connection]) -> Any:
        request = make_id("ask")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._open[request] = future, connections
        try:
            for each in connections:
                self._announce(kind, {"requestId": request, **data}, each)
            return await future
        finally:
            del self._open[request]

    def _list_answering(self) -> list[Connection]:
        return [each for each, config in self._programs.items() if config.request_elicitation]
