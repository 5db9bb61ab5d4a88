"""One session of an editor: a chat, followed. Its events go to the editor as updates; approvals with the scopes of
rules (S-07, S-08) and questions as a dialogue; a prompt is answered when its run is over. The log is the only memory,
but for how far the editor has seen it."""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import acp
import msgspec
from acp import schema as a
from acp.helpers import ContentBlock
from acp.helpers import ToolCallContentVariant as Content

from treadle.adapters.models.registry import list_usable_refs
from treadle.base.inert import fence_block, make_inert, make_inert_line
from treadle.errors import ConfigError, InvalidInput, Refused, TreadleError
from treadle.frontends.acp.content import (
    fence_text,
    find_diffs,
    get_tool_kind,
    make_chunk,
    make_remark,
    make_run_error,
    make_text_content,
)
from treadle.frontends.acp.projection import Projection, Update
from treadle.frontends.presentation.notices import is_late_answer
from treadle.frontends.presentation.slash import NO_AGENT, find_slash, list_available, make_agent_changes
from treadle.frontends.presentation.styled import MODE_WORDS
from treadle.library.agent import Agent
from treadle.library.chat import Chat
from treadle.library.command_stream import CommandStream
from treadle.library.feeds import read_patiently
from treadle.library.message_expansion import expand_message
from treadle.protocol import commands as c
from treadle.protocol import events as e
from treadle.protocol.content import PICTURE_KINDS, Image, decode_picture
from treadle.protocol.events import OpenAction
from treadle.protocol.options import EFFORTS, MODES, ChatOptions, ReasoningEffort
from treadle.protocol.permissions import Offer, RuleScope

if TYPE_CHECKING:
    from treadle.library.skills.reading import CustomAgent


ConfigOption = a.SessionConfigOptionSelect | a.SessionConfigOptionBoolean
MODE, MODEL, AGENT, EFFORT = "mode", "model", "agent", "reasoning_effort"
_CATEGORIES = {MODE: "mode", MODEL: "model", EFFORT: "thought_level"}
DEFAULT_EFFORT = "default"  # The choice that leaves the effort to the server of the model.


async def require_model(agent: Agent, ref: str) -> str:
    """The model of a new session: `ref`, or one that can be used here. ConfigError if there is none."""
    model = ref or (await agent.require_model("treadle acp --model")).model
    agent.deps.models.get(model)
    return model


def make_mode_state(options: ChatOptions) -> a.SessionModeState:
    available = [a.SessionMode(id=mode, name=MODE_WORDS[mode][0], description=MODE_WORDS[mode][1]) for mode in MODES]
    return a.SessionModeState(current_mode_id=options.mode, available_modes=available)


def build_config_options(
    options: ChatOptions,
    models: Sequence[str],
    agents: "Mapping[str, CustomAgent]",
    efforts: Sequence[ReasoningEffort] = (),
) -> list[ConfigOption]:
    """Custom agents and reasoning efforts are there to be chosen only where there are any."""
    choices = [
        _select(MODE, "Mode", options.mode, [(mode, *MODE_WORDS[mode]) for mode in MODES]),
        _select(MODEL, "Model", options.model, [(ref, ref, "") for ref in models]),
    ]
    if efforts or options.reasoning_effort:
        levels = [
            (DEFAULT_EFFORT, "Default", "As much as the model's server decides."),
            *((each, each.capitalize(), "") for each in EFFORTS if each in (*efforts, options.reasoning_effort)),
        ]
        choices.append(_select(EFFORT, "Reasoning effort", options.reasoning_effort or DEFAULT_EFFORT, levels))
    if agents:
        now = options.agent if options.agent in agents else NO_AGENT
        ways = [(each.name, each.name, each.description) for each in agents.values()]
        choices.append(_select(AGENT, "Works as", now, [(NO_AGENT, "Treadle itself", ""), *ways]))
    return choices


def _select(id: str, name: str, now: str, choices: Sequence[tuple[str, str, str]]) -> ConfigOption:
    """Each choice with its name and what is said about it."""
    rows = [a.SessionConfigSelectOption(value=v, name=n, description=about or None) for v, n, about in choices]
    kind: Any = _CATEGORIES.get(id)
    return a.SessionConfigOptionSelect(type="select", id=id, name=name, category=kind, current_value=now, options=rows)


def make_changes(
    config_id: str, value: str | bool, agents: "Mapping[str, CustomAgent] | None" = None
) -> dict[str, Any]:
    """The options of the chat that a choice changes. InvalidInput if there is no such choice."""
    if config_id == MODE and value in MODES:
        return {"mode": value}
    if config_id == MODEL and isinstance(value, str) and value:
        return {"model": value}
    if config_id == EFFORT and (value == DEFAULT_EFFORT or value in EFFORTS):
        return {"reasoning_effort": "" if value == DEFAULT_EFFORT else value}
    if config_id == AGENT and isinstance(value, str) and agents:
        return make_agent_changes(agents, value)
    raise InvalidInput(f"there is no choice {config_id!r} with the value {value!r}")


ONCE, REJECT, REJECT_ALWAYS, IN_WORDS = "once", "reject", "reject-chat", "in-words"
_SCOPES: dict[str, tuple[RuleScope, str]] = {
    "chat": ("chat", "Always in this session"),
    "project": ("project", "Always in this project"),
}
_WATCH_S = 1.0


class Asking:
    def __init__(self, chat: Chat, client: acp.Client, root: str) -> None:
        self._chat, self._client, self._root = chat, client, root

    async def ask(self, action: OpenAction) -> CommandStream | None:
        """How the chat goes on; None if it waits for what the person types next."""
        dialogue = self._permit(action) if action.kind == "permission" else self._ask_question(action)
        asking = asyncio.ensure_future(dialogue)
        closing = asyncio.ensure_future(self._wait_until_closed(action))
        try:
            await asyncio.wait((asking, closing), return_when=asyncio.FIRST_COMPLETED)
            return await asking if asking.done() else self._chat.resume()
        finally:
            asking.cancel()
            closing.cancel()
            await asyncio.wait((asking, closing))

    async def _wait_until_closed(self, action: OpenAction) -> None:
        """Wait until the action is answered elsewhere or the run is stopped."""
        seq = 0
        while any(open_.action == action.action for open_ in await read_patiently(self._chat.actions)):
            seq = max(seq, (await read_patiently(self._chat.state)).head)
            seq = await read_patiently(partial(self._chat.wait, seq, _WATCH_S))

    async def _permit(self, action: OpenAction) -> CommandStream:
        content = render_approval(action, self._root)
        kind = get_tool_kind(action.name)
        call = a.ToolCallUpdate(tool_call_id=action.call, kind=kind, status="pending", content=content)
        call.raw_input = action.arguments or None
        if (option_id := await self._request_permission(call, list_permission_options(action))) == ONCE:
            return self._chat.approve(action)
        offer = _find_standing_offer(action)
        if option_id in _SCOPES and offer is not None:
            return self._chat.approve(action, rule=offer.rule_for(_SCOPES[option_id][0]))
        if option_id == REJECT_ALWAYS and offer is not None:
            return self._chat.deny(action, rule=offer.rule_for("chat", "deny"))
        if option_id == REJECT:
            return self._chat.deny(action)
        raise Dismissed

    async def _ask_question(self, action: OpenAction) -> CommandStream | None:
        if not action.options:
            return None
        answers = {f"answer-{number}": option for number, option in enumerate(action.options)}
        names = {key: make_inert_line(text, 120) for key, text in answers.items()}
        options = [a.PermissionOption(option_id=key, name=name, kind="allow_once") for key, name in names.items()]
        if action.name == "ask_user" or action.call:
            options.append(a.PermissionOption(option_id=IN_WORDS, name="Something else …", kind="reject_once"))
        call_id, title = f"question-{action.action}", make_inert(action.text)
        call = a.ToolCallUpdate(tool_call_id=call_id, title=title, kind="think", status="pending")
        option_id = await self._request_permission(call, options)
        return self._chat.answer(action, answers[option_id]) if option_id in answers else None

    async def _request_permission(self, call: a.ToolCallUpdate, options: list[a.PermissionOption]) -> str:
        """The id of the option that the person chose; empty if none."""
        outcome = (await self._client.request_permission(self._chat.id, call, options)).outcome
        return outcome.option_id if isinstance(outcome, a.AllowedOutcome) else ""


class Dismissed(Exception):
    """The person closed the dialogue without an answer: the protocol says so when the whole prompt is cancelled."""


def list_permission_options(action: OpenAction) -> list[a.PermissionOption]:
    """Once, and, where a rule is offered, for longer: the names say what it would cover."""
    options = [a.PermissionOption(option_id=ONCE, name="Allow once", kind="allow_once")]
    if (offer := _find_standing_offer(action)) is not None:
        covers = make_inert_line(offer.covers, 120)
        options += [
            a.PermissionOption(option_id=key, name=f"{words}: {covers}", kind="allow_always")
            for key, (scope, words) in _SCOPES.items()
            if scope in offer.open_scopes
        ]
    options.append(a.PermissionOption(option_id=REJECT, name="Reject", kind="reject_once"))
    if offer is not None:
        name = f"Always reject in this session: {covers}"
        options.append(a.PermissionOption(option_id=REJECT_ALWAYS, name=name, kind="reject_always"))
    return options


def _find_standing_offer(action: OpenAction) -> Offer | None:
    return next((offer for offer in action.offers if "chat" in offer.open_scopes), None)


def render_approval(action: OpenAction, root: str) -> list[Content]:
    """Why it is asked, and exactly what: the answer is bound to that."""
    reason = action.reason if action.severity in ("", "none") else f"{action.reason} (severity: {action.severity})"
    reach = f"\n\nIt may reach: {make_inert_line(', '.join(action.network), 300)}" if action.network else ""
    diffs = find_diffs(action.text, root)
    return [*([make_text_content(reason + reach)] if reason or reach else []), *(diffs or [fence_text(action.text)])]


_STOPS: dict[e.EndReason, a.StopReason] = {
    "interrupted": "cancelled",
    "turn_cap": "max_turn_requests",
    "budget": "max_turn_requests",
}
_CUT_ANSWERS: dict[str, a.StopReason] = {"length": "max_tokens", "content_filter": "refusal", "refusal": "refusal"}
"""By the reason for which the model stopped: how a run with an incomplete answer ended."""
MOST_ATTACHED = 1_000_000  # Characters of all attached files together.


class EditorCapabilities(msgspec.Struct, frozen=True):
    terminals: bool = False
    reads: bool = False


class Turn:
    cancelled = False


class Session:
    def __init__(
        self, agent: Agent, chat: Chat, client: acp.Client, options: ChatOptions, capabilities: EditorCapabilities
    ) -> None:
        self.chat, self.options, self._agent, self._client = chat, options, agent, client
        self._seq = 0  # The last event that the editor has seen.
        self._projection = Projection(options.root, chat.files.texts, terminals=capabilities.terminals)
        self._asking = Asking(chat, client, options.root)
        self._one_at_a_time = asyncio.Lock()
        self._turns: list[Turn] = []
        self._background: asyncio.Task[None] | None = None
        self._finish_reason = ""  # Of the last answer.
        self._models: list[str] = []
        self._commands: list[tuple[str, str, str]] = []

    async def list_choices(self) -> list[ConfigOption]:
        self._models = self._models or await asyncio.to_thread(list_usable_refs, self._agent.deps.models)
        models = list(dict.fromkeys([self.options.model, *self._models]))
        efforts: Sequence[ReasoningEffort] = ()
        with suppress(ConfigError):
            efforts = self._agent.deps.models.get(self.options.model).info.offered_efforts
        return build_config_options(self.options, models, await self.list_agents(), efforts)

    async def list_agents(self) -> "dict[str, CustomAgent]":
        return await asyncio.to_thread(self._agent.custom_agents, self.options.project)

    async def tell(self, *, replayed: bool = False) -> None:
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
            await self._send(*map(make_remark, remarks))
            if follows and await self.chat.status() not in ("idle", "error"):
                await self._follow(self.chat.resume(), Turn())
        except (ConnectionError, acp.RequestError):
            return  # the editor has left, or does not take what it is told
        except TreadleError as error:
            text = f"this session is not followed any more: {make_inert_line(str(error))}; send a message to go on"
            await self._send(make_remark(text))

    async def answer_prompt(self, blocks: Sequence[ContentBlock], traceparent: str = "") -> a.PromptResponse:
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
                        await self._send(make_chunk(text))
                    return a.PromptResponse(stop_reason="end_turn")
                idle_event = await self._follow(await self._submit_prompt(typed, attached, images, traceparent), turn)
                await self._tell_commands()
                return self._make_response(idle_event, turn)
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

    def _make_response(self, idle: e.SessionIdle | None, turn: Turn) -> a.PromptResponse:
        if turn.cancelled:
            return a.PromptResponse(stop_reason="cancelled")
        if idle is not None and idle.reason == "error":
            raise make_run_error(self._failure, idle.why)
        if idle is not None and idle.reason == "incomplete":
            return a.PromptResponse(stop_reason=_CUT_ANSWERS.get(self._finish_reason, "end_turn"))
        return a.PromptResponse(stop_reason=_STOPS.get(idle.reason, "end_turn") if idle is not None else "end_turn")

    async def _follow(self, following: CommandStream, turn: Turn) -> e.SessionIdle | None:
        """Show everything and ask what the chat asks, until the run is over; None: it waits for words."""
        self._failure: e.SessionError | None = None
        while True:
            idle_event: e.SessionIdle | None = None
            try:
                async with aclosing(_stream_events(following.resume_after(self._seq))) as events:
                    async for envelope in events:
                        await self._show(await self.chat.load_full_event(envelope))
                        if turn.cancelled and isinstance(envelope.data, e.UserMessage | e.TurnStart):
                            await self._stop_run()  # it was cancelled before there was anything to stop
                        if isinstance(envelope.data, e.SessionIdle):
                            idle_event = envelope.data
            except Refused as refusal:
                if not is_late_answer(refusal):
                    raise
                following = self.chat.resume()
                continue
            if not (open_actions := await self.chat.actions()):
                return idle_event
            if (goes_on := await self._ask(open_actions, turn)) is None:
                return None
            following = goes_on

    async def _ask(self, open_actions: Sequence[e.OpenAction], turn: Turn) -> CommandStream | None:
        actions = [action for action in open_actions if action.of_person]
        if not actions:
            names = ", ".join(make_inert(action.name) for action in open_actions)
            await self._send(make_remark(f"waits for a client to run {names}, which cannot be done from here"))
            return None
        if actions[0].kind == "user_input":
            await self._send(make_chunk(f"\n\n{make_inert(actions[0].text)}\n"))
        try:
            return await self._asking.ask(actions[0])
        except Dismissed:
            turn.cancelled = True
            await self._stop_run()
            return self.chat.resume()

    async def _show(self, envelope: e.Envelope, *, replayed: bool = False) -> None:
        match envelope.data:
            case e.OptionsChanged():
                self.options = (await self.chat.state()).options
                if not replayed:
                    mode = a.CurrentModeUpdate(session_update="current_mode_update", current_mode_id=self.options.mode)
                    choices = await self.list_choices()
                    update = a.ConfigOptionUpdate(session_update="config_option_update", config_options=choices)
                    await self._send(mode, update)
            case e.AssistantMessage(finish_reason=finish_reason):
                self._finish_reason = finish_reason
            case e.SessionError() as error:
                self._failure = error
            case e.ModelNotice(kind="consent"):
                self._agent.consent.disclose(self.options.model)  # it is told here
                self._agent.remember_model(self.options.model)
        await self._send(*await self._projection.show(envelope))
        self._seq = envelope.seq or self._seq

    async def _send(self, *updates: Update) -> None:
        for update in updates:
            await self._client.session_update(self.chat.id, update)

    async def _tell_commands(self) -> None:
        """Send the slash commands if they have changed: MCP servers list their prompts only once they have started."""
        if (available_commands := await list_available(self._agent, self.options)) == self._commands:
            return
        self._commands, commands = available_commands, list[a.AvailableCommand]()
        for name, does, hint in available_commands:
            words = a.AvailableCommandInput(a.UnstructuredCommandInput(hint=hint)) if hint else None
            commands.append(a.AvailableCommand(name=name, description=does, input=words))
        update = a.AvailableCommandsUpdate(session_update="available_commands_update", available_commands=commands)
        await self._send(update)

    async def change(self, **changes: object) -> None:
        """Change options of the chat; the editor that asked is told in the answer, others by the log."""
        await self.chat.command(c.ChangeOptions(changes))
        self.options = (await self.chat.state()).options
        if "model" in changes:
            self._agent.remember_model(self.options.model)
            if disclosure := self._agent.consent.disclose(self.options.model):
                await self._send(make_remark(disclosure))

    async def cancel(self) -> None:
        for turn in self._turns:
            turn.cancelled = True
        await self._stop_run()

    async def _stop_run(self) -> None:
        with suppress(Refused):  # there is nothing to stop (any more)
            if self._seq or self._turns:
                await self.chat.interrupt()

    async def leave(self) -> None:
        """Follow the chat no longer. Stops nothing (law 11)."""
        task, self._background = self._background, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)  # its failure was told when it happened


async def _stream_events(following: CommandStream) -> AsyncGenerator[e.Envelope, None]:
    """The events of a command, as something that is closed when it is left."""
    async for envelope in following:
        yield envelope


async def read_prompt(
    blocks: Sequence[ContentBlock], root: str, put: Callable[[bytes], Awaitable[str]]
) -> tuple[str, list[str], list[Image]]:
    """The typed text, attached files, and the pictures, which `put` stores. InvalidInput: a block is not accepted."""
    parts: list[str] = []
    attached: list[str] = []
    images: list[Image] = []
    for block in blocks:
        match block:
            case a.TextContentBlock(text=text):
                parts.append(text)
            case a.ResourceContentBlock(uri=uri):
                parts.append(f"@{_format_resource_name(uri, root)}")
            case a.EmbeddedResourceContentBlock(resource=a.TextResourceContents(uri=uri, text=text)):
                parts.append(f"@{_format_resource_name(uri, root)}")
                attached.append(f"{_format_resource_name(uri, root)}, as attached:\n{fence_block(text)}")
            case a.EmbeddedResourceContentBlock(resource=a.BlobResourceContents(uri=uri, mime_type=kind, blob=data)):
                if kind not in PICTURE_KINDS:
                    name = _format_resource_name(uri, root)
                    raise InvalidInput(f"{name} is neither text nor a picture; name its path instead")
                images.append(Image(kind, await put(decode_picture(data, kind))))
            case a.ImageContentBlock(data=data, mime_type=kind):
                images.append(Image(kind, await put(decode_picture(data, kind))))
            case a.AudioContentBlock():
                raise InvalidInput("sound cannot be sent to a model here; write what it says")
    if sum(map(len, attached)) > MOST_ATTACHED:
        raise InvalidInput(f"the attached files have more than {MOST_ATTACHED:,} characters; name their paths instead")
    return "".join(parts).strip(), attached, images


def _format_resource_name(uri: str, root: str) -> str:
    """Return the name of a resource for the model: a path relative to the project, or the URI itself."""
    split = urlsplit(uri)
    if split.scheme not in ("", "file"):
        return uri
    path = unquote(split.path)
    inside = os.path.relpath(path, root) if root and os.path.isabs(path) else path
    lines = f":{split.fragment.removeprefix('L')}" if split.fragment else ""
    return (path if inside.startswith("..") else inside) + lines
