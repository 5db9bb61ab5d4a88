"""Approvals: finding what a chat asks by what was typed, and the answers that `approve`, the dialogue and `rules` have
in common (S-08)."""

import re
import time

from msgspec.structs import replace

from treadle.base.inert import inert_line
from treadle.errors import InvalidInput, NotFound, Refused
from treadle.frontends.cli.session import find_chat
from treadle.library.agent import Agent
from treadle.library.chat import Chat
from treadle.protocol.events import OpenAction
from treadle.protocol.permissions import Rule, RuleScope, check_expiry

_SPAN = re.compile(r"([0-9]+)\s*([smhdw])")
_MOST_DIGITS = 12
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


async def asked_of_people(agent: Agent) -> list[tuple[Chat, OpenAction]]:
    """Return the open actions of all chats that a person can answer. Client tools, which wait for a program, are left
    out."""
    listed = await agent.chats(archived=False)
    chats = [agent.chat(each.summary.chat) for each in listed if each.summary.status == "requires_action"]
    return [(chat, action) for chat in chats for action in await chat.actions() if action.of_person]


async def find_approval(agent: Agent, approval_ref: str) -> tuple[Chat, OpenAction]:
    """The approval that a person means: by its chat, by chat and action (c_…:3.1), or by the action alone; without a
    name, the only one."""
    if not approval_ref:
        return await _only_approval(agent)
    chat_part, colon, action_id = approval_ref.rpartition(":")
    if not colon:
        chat_part, action_id = approval_ref, ""
    if re.fullmatch(r"\d+\.\d+", approval_ref):
        return await _by_action(agent, approval_ref)
    chat = agent.chat(await find_chat(agent.deps.store, chat_part))
    actions = [action for action in await chat.actions() if action.kind == "permission"]
    matches = [action for action in actions if not action_id or action.action == action_id]
    if not matches:
        problem = f"does not ask for {action_id}" if action_id else "asks for no approval"
        raise Refused("no_such_action", f"the chat {chat.id} {problem} (any more); see: treadle pending")
    return chat, matches[0]


async def _only_approval(agent: Agent) -> tuple[Chat, OpenAction]:
    waiting = [(chat, action) for chat, action in await asked_of_people(agent) if action.kind == "permission"]
    if not waiting:
        raise NotFound("no chat waits for an approval")
    if len(waiting) > 1:
        lines = "".join(
            f"\n  treadle approve {chat.id}:{action.action}  {inert_line(action.text, 80)}" for chat, action in waiting
        )
        raise InvalidInput(f"{len(waiting)} actions wait for an approval; name one of them:{lines}")
    return waiting[0]


async def _by_action(agent: Agent, action_id: str) -> tuple[Chat, OpenAction]:
    matches = [
        (chat, action)
        for chat, action in await asked_of_people(agent)
        if action.kind == "permission" and action.action == action_id
    ]
    if not matches:
        raise NotFound(f"no chat asks for {action_id!r} (any more); see: treadle pending")
    if len(matches) > 1:
        candidates = ", ".join(f"{chat.id}:{action_id}" for chat, _ in matches[:5])
        raise InvalidInput(f"{len(matches)} chats ask for {action_id} ({candidates}); name the chat, too")
    return matches[0]


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
    return action.offers[number - 1].rule_for(scope, "deny" if deny else "allow")


def expiring(rule: Rule, span: str | None) -> Rule:
    """The rule, for as long as `7d` says; without a span for good."""
    if not span:
        return rule
    match = _SPAN.fullmatch(span.strip())
    if match is None or not match[1].strip("0"):
        raise InvalidInput(f"{span!r} is no span of time; write 30m, 12h, 7d or 2w")
    if len(match[1]) > _MOST_DIGITS:
        raise InvalidInput(
            f"{span[:20]!r} is longer than a rule can hold; leave --expires out for a rule without an end"
        )
    expiring_rule = replace(rule, expires_ms=round(time.time() * 1000) + 1000 * int(match[1]) * _SECONDS[match[2]])
    check_expiry(expiring_rule)
    return expiring_rule
