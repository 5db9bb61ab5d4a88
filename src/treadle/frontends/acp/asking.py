"""Passes the open actions of a chat to the editor: approvals with the scopes of rules (S-07, S-08), and questions as
buttons. If an action is answered elsewhere meanwhile, the editor follows the chat from there."""

import asyncio
from functools import partial

import acp
from acp import schema as a
from acp.helpers import ToolCallContentVariant as Content

from treadle.base.inert import inert, inert_line
from treadle.frontends.acp.content import diffs_in, fenced, kind_of, text_content
from treadle.library.chat import Chat
from treadle.library.following import CommandStream
from treadle.library.watching import read_patiently
from treadle.protocol.events import OpenAction
from treadle.protocol.permissions import Offer, RuleScope

ONCE, REJECT, REJECT_ALWAYS, IN_WORDS = "once", "reject", "reject-chat", "in-words"
_SCOPES: dict[str, tuple[RuleScope, str]] = {
    "chat": ("chat", "Always in this session"),
    "project": ("project", "Always in this project"),
}
_WATCH_S = 1.0


class Asking:
    """Puts the actions of one chat to its editor."""

    def __init__(self, chat: Chat, client: acp.Client, root: str) -> None:
        self._chat = chat
        self._client = client
        self._root = root

    async def ask(self, action: OpenAction) -> CommandStream | None:
        """How the chat goes on; None if it waits for what the person types next."""
        asking = asyncio.ensure_future(self._permit(action) if action.kind == "permission" else self._question(action))
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
        call = a.ToolCallUpdate(
            tool_call_id=action.call,
            kind=kind_of(action.name),
            status="pending",
            content=render_approval(action, self._root),
            raw_input=action.arguments or None,
        )
        option_id = await self._request(call, permission_options(action))
        if option_id == ONCE:
            return self._chat.approve(action)
        offer = _standing_offer(action)
        if option_id in _SCOPES and offer is not None:
            return self._chat.approve(action, rule=offer.rule_for(_SCOPES[option_id][0]))
        if option_id == REJECT_ALWAYS and offer is not None:
            return self._chat.deny(action, rule=offer.rule_for("chat", "deny"))
        if option_id == REJECT:
            return self._chat.deny(action)
        raise Dismissed

    async def _question(self, action: OpenAction) -> CommandStream | None:
        if not action.options:
            return None
        options = [
            a.PermissionOption(option_id=f"answer-{number}", name=inert_line(option, 120), kind="allow_once")
            for number, option in enumerate(action.options)
        ]
        if action.name == "ask_user" or action.call:
            options.append(a.PermissionOption(option_id=IN_WORDS, name="Something else …", kind="reject_once"))
        call = a.ToolCallUpdate(
            tool_call_id=f"question-{action.action}", title=inert(action.text), kind="think", status="pending"
        )
        option_id = await self._request(call, options)
        answers = {f"answer-{number}": option for number, option in enumerate(action.options)}
        return self._chat.answer(action, answers[option_id]) if option_id in answers else None

    async def _request(self, call: a.ToolCallUpdate, options: list[a.PermissionOption]) -> str:
        """The id of the option that the person chose; empty if none."""
        outcome = (await self._client.request_permission(self._chat.id, call, options)).outcome
        return outcome.option_id if isinstance(outcome, a.AllowedOutcome) else ""


class Dismissed(Exception):
    """The person closed the dialogue without an answer: the protocol says so when the whole prompt is cancelled."""


def permission_options(action: OpenAction) -> list[a.PermissionOption]:
    """Once, and, where a rule is offered, for longer: the names say what it would cover."""
    options = [a.PermissionOption(option_id=ONCE, name="Allow once", kind="allow_once")]
    offer = _standing_offer(action)
    if offer is not None:
        covers = inert_line(offer.covers, 120)
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


def _standing_offer(action: OpenAction) -> Offer | None:
    """The first offer of a rule for the whole session."""
    return next((offer for offer in action.offers if "chat" in offer.open_scopes), None)


def render_approval(action: OpenAction, root: str) -> list[Content]:
    """Why it is asked, and exactly what: the answer is bound to that."""
    reason = action.reason if action.severity in ("", "none") else f"{action.reason} (severity: {action.severity})"
    reach = f"\n\nIt may reach: {inert_line(', '.join(action.network), 300)}" if action.network else ""
    diffs = diffs_in(action.text, root)
    return [*([text_content(reason + reach)] if reason or reach else []), *(diffs or [fenced(action.text)])]
