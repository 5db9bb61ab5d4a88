"""One session of an editor: a chat, followed. Everything that the chat does goes to the editor as updates, what it asks
is put there as a dialogue, and a prompt is answered when its run is over. Holds nothing that is not in the chat's log
but how far the editor has seen it."""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import acp
import msgspec
from acp import schema as a
from acp.helpers import ContentBlock

from treadle.adapters.models.registry import usable_refs
from treadle.base.inert import fence, inert, inert_line
from treadle.errors import ConfigError, InvalidInput, Refused, TreadleError
from treadle.frontends.acp.asking import Asking, Dismissed
from treadle.frontends.acp.choices import ConfigOption, config_options
from treadle.frontends.acp.content import chunk, remark
from treadle.frontends.acp.failures import failed_run
from treadle.frontends.acp.projection import Projection, Update
from treadle.frontends.presentation.slash import available, find_slash
from treadle.library.agent import Agent
from treadle.library.chat import Chat
from treadle.library.following import CommandStream
from treadle.library.message_expansion import expand_message
from treadle.protocol import commands as c
from treadle.protocol import events as e
from treadle.protocol.content import PICTURE_KINDS, Image, decode_picture
from treadle.protocol.options import ChatOptions, ReasoningEffort

if TYPE_CHECKING:
    from treadle.library.skills.reading import CustomAgent

_STOPS: dict[e.EndReason, a.StopReason] = {
    "interrupted": "cancelled",
    "turn_cap": "max_turn_requests",
    "budget": "max_turn_requests",
}
_CUT_ANSWERS: dict[str, a.StopReason] = {"length": "max_tokens", "content_filter": "refusal", "refusal": "refusal"}
"""By the reason for which the model stopped: how a run with an incomplete answer ended."""
MOST_ATTACHED = 1_000_000
"""Characters of all attached files together."""
_STALE = ("no_such_action", "hash_mismatch")
"""Codes of a refused answer that came too late: the action was answered elsewhere, or its content has changed."""


class EditorCapabilities(msgspec.Struct, frozen=True):
    """The capabilities of the editor."""

    terminals: bool = False
    reads: bool = False


class Turn:
    """A prompt that is being worked on."""

    cancelled = False


class Session:
    def __init__(
        self, agent: Agent, chat: Chat, client: acp.Client, options: ChatOptions, capabilities: EditorCapabilities
    ) -> None:
        self.chat = chat
        self.options = options
        self._agent = agent
        self._client = client
        self._seq = 0
        """The last event that the editor has seen."""
        self._projection = Projection(options.root, chat.files.texts, terminals=capabilities.terminals)
        self._asking = Asking(chat, client, options.root)
        self._one_at_a_time = asyncio.Lock()
        self._turns: list[Turn] = []
        self._background: asyncio.Task[None] | None = None
        self._finish_reason = ""
        """Of the last answer."""
        self._models: list[str] = []
        self._commands: list[tuple[str, str, str]] = []

    # -- session options and start ------------------------------------------------------------------------------------

    async def choices(self) -> list[ConfigOption]:
        self._models = self._models or await asyncio.to_thread(usable_refs, self._agent.deps.models)
        models = list(dict.fromkeys([self.options.model, *self._models]))
        efforts: Sequence[ReasoningEffort] = ()
        with suppress(ConfigError):
            efforts = self._agent.deps.models.get(self.options.model).info.offered_efforts
        return config_options(self.options, models, await self.agents(), efforts)

    async def agents(self) -> "dict[str, CustomAgent]":
        return await asyncio.to_thread(self._agent.custom_agents, self.options.project)

    async def tell(self, *, replayed: bool = False) -> None:
        """Tell the editor everything that is recorded and that it has not seen."""
        for envelope in await self.chat.events(self._seq):
            await self._show(await self.chat.load_full_event(envelope), replayed=replayed)

    async def skip(self) -> None:
        """The editor knows what is recorded."""
        self._seq = (await self.chat.state()).head

    def begin(self, *remarks: str, follows: bool = False) -> None:
        """Send the available slash commands and `remarks` to the editor, once it knows the session. With `follows`,
        continue a run whose worker died or that another process drives, and ask its open questions again."""
        self._background = asyncio.create_task(self._begin(remarks, follows))

    async def _begin(self, remarks: Sequence[str], follows: bool) -> None:
        try:
            await self._tell_commands()
            await self._send(*map(remark, remarks))
            if follows and await self.chat.status() not in ("idle", "error"):
                await self._follow(self.chat.resume(), Turn())
        except (ConnectionError, acp.RequestError):
            return  # the editor has left, or does not take what it is told
        except TreadleError as error:
            text = f"this session is not followed any more: {inert_line(str(error))}; send a message to go on"
            await self._send(remark(text))

    # -- prompts ------------------------------------------------------------------------------------------------------

    async def prompt(self, blocks: Sequence[ContentBlock], traceparent: str = "") -> a.PromptResponse:
        """Answered when the run is over, or when the chat waits for words."""
        typed, attached, images = await read_prompt(blocks, self.options.root, self._agent.deps.store.put_blob)
        turn = Turn()
        self._turns.append(turn)
        try:
            async with self._one_at_a_time:
                await self.leave()
                if turn.cancelled:
                    return a.PromptResponse(stop_reason="cancelled")
                if (slash_match := find_slash(typed)) is not None:
                    slash, words = slash_match
                    text = await slash.run(self._agent, self.chat, words)
                    await self.tell()  # the new events of the log come before the text
                    if text:
                        await self._send(chunk(text))
                    return a.PromptResponse(stop_reason="end_turn")
                idle_event = await self._follow(await self._submit_prompt(typed, attached, images, traceparent), turn)
                await self._tell_commands()
                return self._response(idle_event, turn)
        finally:
            self._turns.remove(turn)

    async def _submit_prompt(
        self, typed: str, attached: Sequence[str], images: Sequence[Image], traceparent: str
    ) -> CommandStream:
        """The message to the chat; the answer, if the chat waits for one in words."""
        questions = [each for each in await self.chat.actions() if each.kind == "user_input"] if self._seq else []
        message, more = await expand_message(self._agent, self.options, typed) if not questions else (typed, ())
        text = "\n\n".join([message, *attached]).strip()
        if questions:
            return self.chat.answer(questions[0], text)
        self._projection.said.append(text)
        return self.chat.send(text, images=[*images, *more], traceparent=traceparent)

    def _response(self, idle: e.SessionIdle | None, turn: Turn) -> a.PromptResponse:
        if turn.cancelled:
            return a.PromptResponse(stop_reason="cancelled")
        if idle is not None and idle.reason == "error":
            raise failed_run(self._failure, idle.why)
        if idle is not None and idle.reason == "incomplete":
            return a.PromptResponse(stop_reason=_CUT_ANSWERS.get(self._finish_reason, "end_turn"))
        return a.PromptResponse(stop_reason=_STOPS.get(idle.reason, "end_turn") if idle is not None else "end_turn")

    # -- following ----------------------------------------------------------------------------------------------------

    async def _follow(self, following: CommandStream, turn: Turn) -> e.SessionIdle | None:
        """Show everything and ask what the chat asks, until the run is over; None: it waits for words."""
        self._failure: e.SessionError | None = None
        while True:
            idle_event: e.SessionIdle | None = None
            try:
                async with aclosing(_stream(following.resume_after(self._seq))) as events:
                    async for envelope in events:
                        await self._show(await self.chat.load_full_event(envelope))
                        if turn.cancelled and isinstance(envelope.data, e.UserMessage | e.TurnStart):
                            await self._stop()  # it was cancelled before there was anything to stop
                        if isinstance(envelope.data, e.SessionIdle):
                            idle_event = envelope.data
            except Refused as refusal:
                if refusal.reason not in _STALE:
                    raise
                following = self.chat.resume()
                continue
            open_actions = await self.chat.actions()
            if not open_actions:
                return idle_event
            if (goes_on := await self._ask(open_actions, turn)) is None:
                return None
            following = goes_on

    async def _ask(self, open_actions: Sequence[e.OpenAction], turn: Turn) -> CommandStream | None:
        actions = [action for action in open_actions if action.of_person]
        if not actions:
            names = ", ".join(inert(action.name) for action in open_actions)
            await self._send(remark(f"waits for a client to run {names}, which cannot be done from here"))
            return None
        if actions[0].kind == "user_input":
            await self._send(chunk(f"\n\n{inert(actions[0].text)}\n"))
        try:
            return await self._asking.ask(actions[0])
        except Dismissed:
            turn.cancelled = True
            await self._stop()
            return self.chat.resume()

    async def _show(self, envelope: e.Envelope, *, replayed: bool = False) -> None:
        match envelope.data:
            case e.OptionsChanged():
                self.options = (await self.chat.state()).options
                if not replayed:
                    mode = a.CurrentModeUpdate(session_update="current_mode_update", current_mode_id=self.options.mode)
                    choices = await self.choices()
                    await self._send(
                        mode, a.ConfigOptionUpdate(session_update="config_option_update", config_options=choices)
                    )
            case e.AssistantMessage(finish_reason=finish_reason):
                self._finish_reason = finish_reason
            case e.SessionError() as error:
                self._failure = error
            case e.ModelNotice(kind="consent"):
                self._agent.consent.disclose(self.options.model)  # it is told here
                self._agent.remember_model(self.options.model)
            case _:
                pass
        await self._send(*await self._projection.show(envelope))
        self._seq = envelope.seq or self._seq

    async def _send(self, *updates: Update) -> None:
        for update in updates:
            await self._client.session_update(self.chat.id, update)

    async def _tell_commands(self) -> None:
        """Send the available slash commands if they have changed. MCP servers list their prompts only once they have
        started."""
        available_commands = await available(self._agent, self.options)
        if available_commands == self._commands:
            return
        self._commands = available_commands
        commands = [
            a.AvailableCommand(
                name=name,
                description=does,
                input=a.AvailableCommandInput(a.UnstructuredCommandInput(hint=hint)) if hint else None,
            )
            for name, does, hint in available_commands
        ]
        update = a.AvailableCommandsUpdate(session_update="available_commands_update", available_commands=commands)
        await self._send(update)

    # -- changing and ending ------------------------------------------------------------------------------------------

    async def change(self, **changes: object) -> None:
        """Change options of the chat; the editor that asked is told in the answer, others by the log."""
        await self.chat.command(c.ChangeOptions(changes))
        self.options = (await self.chat.state()).options
        if "model" in changes:
            self._agent.remember_model(self.options.model)
            if disclosure := self._agent.consent.disclose(self.options.model):
                await self._send(remark(disclosure))

    async def cancel(self) -> None:
        for turn in self._turns:
            turn.cancelled = True
        await self._stop()

    async def _stop(self) -> None:
        with suppress(Refused):  # there is nothing to stop (any more)
            if self._seq or self._turns:
                await self.chat.interrupt()

    async def leave(self) -> None:
        """Follow the chat no longer. Stops nothing (law 11)."""
        task, self._background = self._background, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)  # its failure was told when it happened


async def _stream(following: CommandStream) -> AsyncGenerator[e.Envelope, None]:
    """The events of a command, as something that is closed when it is left."""
    async for envelope in following:
        yield envelope


async def read_prompt(
    blocks: Sequence[ContentBlock], root: str, put: Callable[[bytes], Awaitable[str]]
) -> tuple[str, list[str], list[Image]]:
    """Return the typed text, the attached whole files, and the pictures, which `put` stores. InvalidInput if a block
    cannot be accepted."""
    parts: list[str] = []
    attached: list[str] = []
    images: list[Image] = []
    for block in blocks:
        match block:
            case a.TextContentBlock(text=text):
                parts.append(text)
            case a.ResourceContentBlock(uri=uri):
                parts.append(f"@{_name(uri, root)}")
            case a.EmbeddedResourceContentBlock(resource=a.TextResourceContents(uri=uri, text=text)):
                parts.append(f"@{_name(uri, root)}")
                attached.append(f"{_name(uri, root)}, as attached:\n{fence(text)}")
            case a.EmbeddedResourceContentBlock(resource=a.BlobResourceContents(uri=uri, mime_type=kind, blob=data)):
                if kind not in PICTURE_KINDS:
                    raise InvalidInput(f"{_name(uri, root)} is neither text nor a picture; name its path instead")
                images.append(Image(kind, await put(decode_picture(data, kind))))
            case a.ImageContentBlock(data=data, mime_type=kind):
                images.append(Image(kind, await put(decode_picture(data, kind))))
            case a.AudioContentBlock():
                raise InvalidInput("sound cannot be sent to a model here; write what it says")
    if sum(map(len, attached)) > MOST_ATTACHED:
        raise InvalidInput(f"the attached files have more than {MOST_ATTACHED:,} characters; name their paths instead")
    return "".join(parts).strip(), attached, images


def _name(uri: str, root: str) -> str:
    """Return the name of a resource for the model: a path relative to the project, or the URI itself."""
    split = urlsplit(uri)
    if split.scheme not in ("", "file"):
        return uri
    path = unquote(split.path)
    inside = os.path.relpath(path, root) if root and os.path.isabs(path) else path
    lines = f":{split.fragment.removeprefix('L')}" if split.fragment else ""
    return (path if inside.startswith("..") else inside) + lines
