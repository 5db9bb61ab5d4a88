"""`treadle pending` and `treadle approve`: what chats ask of a person, and the answers, from any process (S-08)."""

import asyncio
import re
import sys
import time

import msgspec
from msgspec.structs import replace

from treadle.cli.drive import drive
from treadle.cli.notices import waiting
from treadle.cli.output import JsonLines
from treadle.cli.screen import Screen
from treadle.cli.session import configured, find_chat, open_agent
from treadle.cli.terminal import Terminal
from treadle.config import Config
from treadle.errors import InvalidInput, NotFound, Refused
from treadle.handle import Chat, Following
from treadle.protocol import wire
from treadle.protocol.events import OpenAction, PermissionRequested
from treadle.protocol.permissions import Rule, RuleScope
from treadle.runtime import Agent
from treadle.types import ChatId

_SPAN = re.compile(r"(\d+)\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


class Reply(msgspec.Struct, frozen=True):
    """What the flags of `approve` say."""

    deny: bool = False
    feedback: str = ""
    edit: str | None = None
    remember: RuleScope | None = None
    rule: int = 1
    """Which of the offered rules to remember."""
    expires: str | None = None
    leave: bool = False
    """Only write the answer down."""


def pending(as_json: bool) -> int:
    return asyncio.run(_pending(configured(), as_json))


async def _pending(config: Config, as_json: bool) -> int:
    terminal = Terminal()
    async with open_agent(config) as agent:
        found = [(chat, action) for chat in await _waiting_chats(agent) for action in await _asked(agent, chat)]
    for chat, action in found:
        if as_json:
            told = {"chat": chat, "id": f"{chat}:{action.action}", **wire.whole(action)}
            sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
            continue
        terminal.line(terminal.paint(f"{chat}:{action.action}", "bold"))
        for line in waiting(action):
            terminal.line(f"  {line}")
    if not found and not as_json:
        terminal.note("no chat waits for a person", "dim")
    return 0


async def _waiting_chats(agent: Agent) -> list[ChatId]:
    listed = await agent.chats(archived=False)
    return [each.summary.chat for each in listed if each.summary.status == "requires_action"]


async def _asked(agent: Agent, chat: ChatId) -> list[OpenAction]:
    """What a person can answer: client tools wait for a program."""
    return [action for action in await agent.chat(chat).actions() if action.of_person]


def approve(named: str, reply: Reply, as_json: bool) -> int:
    return asyncio.run(_approve(configured(), named, reply, as_json))


async def _approve(config: Config, named: str, reply: Reply, as_json: bool) -> int:
    async with open_agent(config, works=True) as agent:
        chat, action = await _find(agent, named)
        asked = await _seq_of(chat, action)
        following = await _decision(chat, action, reply)
        terminal = Terminal()
        if not as_json:
            terminal.note(f"{'refusing' if reply.deny else 'allowing'} in chat {chat.id}:", "yellow")
            for line in waiting(action):
                terminal.note(f"  {line}")
        if reply.leave:
            await chat.carry_out(following.command, work=False)
            return 0
        if as_json:
            return await drive(chat, following, JsonLines(), asked - 1)
        state = await chat.state()
        screen = Screen(terminal)
        screen.begin(chat.id, state.options.model, state.options.root, resumed=True)
        screen.knows(state)
        return await drive(chat, following, screen, state.head)


async def _find(agent: Agent, named: str) -> tuple[Chat, OpenAction]:
    """The approval that a person means: by its chat, by chat and action (c_…:3.1), or by the action alone."""
    chat_part, colon, wanted = named.rpartition(":")
    if not colon:
        chat_part, wanted = named, ""
    if re.fullmatch(r"\d+\.\d+", named):
        return await _by_action(agent, named)
    chat = agent.chat(await find_chat(agent.deps.store, chat_part))
    actions = [action for action in await chat.actions() if action.kind == "permission"]
    chosen = [action for action in actions if not wanted or action.action == wanted]
    if not chosen and wanted:
        raise Refused(
            "no_such_action", f"the chat {chat.id} does not ask for {wanted} (any more); see: treadle pending"
        )
    if not chosen:
        raise Refused("no_such_action", f"the chat {chat.id} asks for no approval (any more); see: treadle pending")
    return chat, chosen[0]


async def _by_action(agent: Agent, wanted: str) -> tuple[Chat, OpenAction]:
    found = [
        (agent.chat(chat), action)
        for chat in await _waiting_chats(agent)
        for action in await _asked(agent, chat)
        if action.kind == "permission" and action.action == wanted
    ]
    if not found:
        raise NotFound(f"no chat asks for {wanted!r} (any more); see: treadle pending")
    if len(found) > 1:
        shown = ", ".join(f"{chat.id}:{wanted}" for chat, _ in found[:5])
        raise InvalidInput(f"{len(found)} chats ask for {wanted} ({shown}); name the chat, too")
    return found[0]


async def _seq_of(chat: Chat, action: OpenAction) -> int:
    events = await chat.events()
    return next(
        (
            envelope.seq
            for envelope in reversed(events)
            if isinstance(envelope.data, PermissionRequested) and envelope.data.action == action.action
        ),
        len(events) + 1,
    )


async def _decision(chat: Chat, action: OpenAction, reply: Reply) -> Following:
    rule = chosen_rule(action, reply.remember, reply.rule, deny=reply.deny) if reply.remember else None
    if rule is not None and reply.expires:
        rule = replace(rule, expires_ms=round(time.time() * 1000) + 1000 * seconds(reply.expires))
    arguments = None
    if reply.edit is not None:
        arguments = await edited(chat, action, reply.edit)
    if reply.deny:
        return chat.deny(action, reply.feedback, rule=rule)
    return chat.approve(action, arguments=arguments, rule=rule)


async def edited(chat: Chat, action: OpenAction, text: str) -> dict[str, object]:
    """The call's arguments with another command in them."""
    arguments = await chat.arguments(action)
    if "command" not in arguments:
        raise InvalidInput(f"{action.name} has no command to edit; refuse it with --deny --feedback instead")
    return {**arguments, "command": text}


def chosen_rule(action: OpenAction, scope: RuleScope, number: int, *, deny: bool) -> Rule:
    """One of the offered rules, for this scope."""
    if not action.offers:
        raise InvalidInput(
            "no rule is offered for this: it is too dangerous to be allowed beforehand, or more than one command would "
            "have to be covered. Answer it once, without --remember; see also: treadle rules add"
        )
    if not 1 <= number <= len(action.offers):
        raise InvalidInput(f"there is no rule {number}; choose one of 1 to {len(action.offers)}")
    rule = action.offers[number - 1].rule
    return replace(rule, scope=scope, effect="deny" if deny else "allow")


def seconds(text: str) -> int:
    """How long `7d` is."""
    match = _SPAN.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise InvalidInput(f"{text!r} is no span of time; write 30m, 12h, 7d or 2w")
    return int(match[1]) * _SECONDS[match[2]]
