"""One session: a chat, and the programs that are attached to it. What happens is told to all of them, in the order of
the log, whoever made it happen. The session goes on without any of them; a program that comes again gets its place."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from treadle.chat.state import starts_queued
from treadle.copilot_sdk.attachments import read_attachments
from treadle.copilot_sdk.config import Config, Tool, options_of
from treadle.copilot_sdk.events import SdkEvent, Telling, event_id
from treadle.copilot_sdk.hooks import SessionHooks
from treadle.copilot_sdk.requests import GATE, Requests
from treadle.copilot_sdk.system_message import transformed_prompt, transforms
from treadle.engine.hub import Subscription
from treadle.errors import Refused
from treadle.handle import Chat
from treadle.jsonrpc.connection import INVALID_PARAMS, Connection, Gone, RpcError
from treadle.protocol import events as e
from treadle.protocol.commands import ChangeOptions, Send
from treadle.protocol.options import ChatOptions
from treadle.runtime import Agent
from treadle.types import new_id

LOOK_S = 30.0
_PIECES = ("assistant.message_delta", "assistant.reasoning_delta", "assistant.tool_call_delta")
"""Told only to programs that want to see an answer while it comes."""


class Session:
    def __init__(
        self,
        agent: Agent,
        chat: Chat,
        options: ChatOptions,
        shown_model: Callable[[str], str],
        updated: Callable[[], None],
    ) -> None:
        self.agent = agent
        self.chat = chat
        self.options = options
        """As recorded, when the session was last looked at here."""
        self._shown_model = shown_model
        self._updated = updated
        self._telling = Telling(chat.id, shown_model)
        self.programs: dict[Connection, Config] = {}
        self.hooks = SessionHooks(chat.id, options.root, lambda: self._with(lambda config: bool(config.hooks)))
        asking = (
            self._announce,
            lambda: self.tools,
            lambda: self._with(lambda config: bool(config.request_user_input)),
        )
        self.requests = Requests(chat, self.hooks, *asking)
        self._between: list[tuple[int, SdkEvent]] = []
        """Events that are in no log, with the seq that they stand behind."""
        self._listeners: list[asyncio.Queue[SdkEvent]] = []
        self._reader: Subscription | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._source: str | None = None
        """How the session began here, until its first message."""

    def _with(self, wanted: Callable[[Config], bool]) -> list[Connection]:
        return [connection for connection, config in self.programs.items() if wanted(config)]

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools of all programs; the one that came first wins a name."""
        found: dict[str, Tool] = {}
        for config in self.programs.values():
            found = {tool.name: tool for tool in config.tools or ()} | found
        return tuple(found.values())

    @property
    def builtin(self) -> list[str]:
        base = msgspec.structs.replace(self.options, tools=None, dynamic_tools=(), interactive=True)
        return [spec.name for spec in self.agent.deps.tools.specs(base)]

    # -- programs -----------------------------------------------------------------------------------------------------

    async def attach(self, connection: Connection, config: Config, source: str) -> None:
        alone = not self.programs
        self.programs[connection] = config
        self.hooks.wanted = self.hooks.wanted or bool(config.hooks)
        self._source = source if not self._tasks else self._source
        if not self._tasks:
            after = 0 if source == "new" else (await self.chat.state()).head
            self._reader = self.agent.deps.log.hub.subscribe(self.chat.id, after)
            self._tasks = [asyncio.create_task(self._read_on()), asyncio.create_task(self._look())]
        if source != "new" and not config.disable_resume:
            await self._tell_resumed(active=not alone, pending=config.continue_pending_work is not False)

    async def detach(self, connection: Connection) -> None:
        """The tools of a program leave with it as long as others stay. The last one leaves everything as it is, for
        whoever comes again."""
        if self.programs.pop(connection, None) is not None and self.programs:
            await self.configure(next(reversed(self.programs.values())))

    async def configure(self, config: Config) -> None:
        """Make the chat's options what the programs say."""
        ask = self._with(lambda each: each is config)
        prompt = await self._prompt(config, ask[0]) if ask and transforms(config.system_message) else None
        made = options_of(self.options, config, self.tools, self.builtin, prompt)
        await self.change(
            {
                name: value
                for name, value in msgspec.structs.asdict(made).items()
                if value != getattr(self.options, name)
            }
        )

    async def change(self, changes: dict[str, Any]) -> None:
        if changes:
            recorded = {name: msgspec.to_builtins(value) for name, value in changes.items()}
            self.options = (await self.chat.command(ChangeOptions(recorded, by="program"))).options

    async def _prompt(self, config: Config, connection: Connection) -> str:
        async def ask(sections: dict[str, str]) -> Any:
            given = {name: {"content": text} for name, text in sections.items()}
            params = {"sessionId": self.chat.id, "sections": given}
            answer = await connection.request("systemMessage.transform", params)
            return answer.get("sections", {}) if isinstance(answer, dict) else {}

        assert config.system_message is not None
        return await transformed_prompt(config.system_message, ask)

    async def close(self) -> None:
        """Tell nobody anything more. The chat goes on."""
        self.requests.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._reader is not None:
            self._reader.close()

    # -- what happens -------------------------------------------------------------------------------------------------

    async def _read_on(self) -> None:
        assert self._reader is not None
        while True:
            envelope = await self._reader.get()
            if envelope is None:
                await self.agent.deps.log.catch_up(self._reader)
            else:
                await self._take(envelope)

    async def _look(self) -> None:
        """What other processes write does not come by itself."""
        store, reader = self.agent.deps.store, self._reader
        assert reader is not None
        while True:
            if await store.wait(self.chat.id, reader.reached, LOOK_S) > reader.reached:
                reader.nudge()
                await asyncio.sleep(0.05)

    async def _take(self, envelope: e.Envelope) -> None:
        match envelope.data:
            case e.SessionIdle(reason="superseded"):
                return
            case e.SessionIdle():
                state = self.agent.deps.log.peek(self.chat.id)
                if state is not None and (state.run is not None or starts_queued(state)):
                    return  # the session is idle when its queue is
        for event in self._telling.tell(envelope):
            self.tell(event)
        match envelope.data:
            case e.UserMessage() | e.TurnEnd():
                self._updated()
            case e.ActionRequired():
                await self.requests.attend()
            case e.OptionsChanged():
                self.options = (await self.chat.state()).options
            case e.SessionError(message=message):
                given = {"error": message, "errorContext": "model_call", "recoverable": False}
                self._tasks.append(asyncio.create_task(self._told_hooks("errorOccurred", given)))

    async def _told_hooks(self, kind: str, given: dict[str, Any]) -> None:
        await self.hooks.invoke(kind, **given)

    def tell(self, event: SdkEvent, only: Connection | None = None) -> None:
        for heard in self._listeners:
            heard.put_nowait(event)
        for connection, config in self.programs.items():
            if only in (None, connection) and (config.streaming or event["type"] not in _PIECES):
                connection.notify("session.event", {"sessionId": self.chat.id, "event": event})

    def announce(self, kind: str, data: dict[str, Any], only: Connection | None = None) -> SdkEvent:
        event = self._telling.live(kind, data, self.agent.deps.clock.now_ms())
        self.tell(event, only)
        return event

    def _announce(self, kind: str, data: dict[str, Any]) -> None:
        self.announce(kind, data)

    async def _tell_resumed(self, *, active: bool, pending: bool) -> None:
        state = await self.chat.state()
        now = self.agent.deps.clock.now_ms()
        data = {"resumeTime": self._telling.live("", {}, now)["timestamp"], "eventCount": state.head}
        data |= {"selectedModel": self._shown_model(state.options.model), "context": {"cwd": state.options.root}}
        data |= {"sessionWasActive": active, "alreadyInUse": active, "continuePendingWork": pending}
        event = self.announce("session.resume", data)
        del event["ephemeral"]
        self._between.append((state.head, event))

    async def ask_again(self, connection: Connection) -> None:
        """What is open, for a program that came later."""
        self.requests.again |= {action.action for action in await self.chat.actions()}
        self.requests.again |= {f"{GATE}{action}" for action in self.requests.again}
        for kind, data in list(self.requests.open.values()):
            self.announce(kind, data, connection)
        await self.requests.attend()

    async def log(self, message: str, level: str, ephemeral: bool, url: str | None) -> str:
        """Tell all programs something that a program wants to be told."""
        kind = level if level in ("warning", "error") else "info"
        named = {"info": "infoType", "warning": "warningType", "error": "errorType"}[kind]
        event = self.announce(
            f"session.{kind}", {named: "notification", "message": message, **({"url": url} if url else {})}
        )
        if not ephemeral:
            del event["ephemeral"]
            self._between.append(((await self.chat.state()).head, event))
        return str(event["id"])

    async def events(self) -> list[SdkEvent]:
        """The whole history, as programs would have been told it; without what is only live."""
        telling, told = Telling(self.chat.id, self._shown_model), []
        between = list(self._between)
        for envelope in await self.chat.events():
            told += [event for event in telling.tell(envelope) if not event.get("ephemeral")]
            while between and between[0][0] <= envelope.seq:
                told.append(between.pop(0)[1])
        return told

    # -- commands -----------------------------------------------------------------------------------------------------

    async def send(self, prompt: str, mode: str, attachments: Sequence[Any]) -> str:
        """Say something; the id of the message. RpcError if a hook refuses it."""
        if self._source is not None:
            source, self._source = self._source, None
            if context := await self.hooks.started(source, prompt):
                prompt = f"{prompt}\n\n{context}"
        prompt, refused = await self.hooks.submitted(prompt)
        if refused:
            self.announce("session.warning", {"warningType": "policy_blocked", "message": refused})
            self.announce("session.idle", {})
            raise RpcError(INVALID_PARAMS, refused)
        below, images = await read_attachments(attachments, self.options.root, self.agent.deps.store)
        delivery: e.Delivery = "steering" if mode == "immediate" else "queued"
        self.announce("pending_messages.modified", {})
        heads: list[int] = []
        sent = Send(prompt + below, delivery, tuple(images), new_id("q"))
        state = await self.chat.carry_out(sent, lambda met: heads.append(met.head))
        if any(item.id == sent.queue_id for item in state.queue):
            return sent.queue_id
        said = (each.seq for each in await self.chat.events(heads[-1]) if isinstance(each.data, e.UserMessage))
        return event_id(self.chat.id, next(said), 0)

    async def wait_for(self, sending: Awaitable[str]) -> dict[str, Any]:
        """Send, and wait until the session is idle behind this message: the last answer, or RpcError."""
        heard: asyncio.Queue[SdkEvent] = asyncio.Queue()
        self._listeners.append(heard)
        try:
            message, begun, answer = await sending, False, None
            while True:
                event = await heard.get()
                kind, data = event["type"], event["data"]
                begun = begun or (kind == "user.message" and data["messageId"] == message)
                if begun and kind == "assistant.message":
                    answer = event
                elif begun and kind == "session.error":
                    raise RpcError(-32000, f"Session error: {data['message']}", {"completionEventId": event["id"]})
                elif begun and kind == "session.idle":
                    done = {"messageId": message, "aborted": bool(data.get("aborted")), "response": answer}
                    return {**done, "completionEventId": event["id"]}
        finally:
            self._listeners.remove(heard)

    async def abort(self) -> bool:
        try:
            await self.chat.interrupt("program")
        except Refused:
            return False
        return True

    async def end(self, connection: Connection) -> None:
        """A program leaves of its own will."""
        if self.programs.get(connection) is not None and self.programs[connection].hooks:
            with suppress(Gone):
                await self.hooks.invoke("sessionEnd", reason="user_exit")
        await self.detach(connection)
