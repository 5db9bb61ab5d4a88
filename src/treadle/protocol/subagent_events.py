"""Events about the chats that a call began: sub-agents of a model, attempts of a race (L-22, L-23). The plan in the
call's intent lists those chats; each of them names the call in its `session.created`."""

from collections.abc import Mapping
from typing import Any

import msgspec

from treadle.base.types import CallKey, ChatId
from treadle.protocol.content import Usage, Value
from treadle.protocol.envelope import EndReason, Event


class SubagentCompleted(Event, frozen=True):
    """A chat that a call began is at rest, and what it spent is spent by this one as well (L-11)."""

    TYPE = "subagent.completed"
    VERSION = 2
    call: CallKey
    chat: ChatId
    number: int = 1
    """Which of the call's chats it is, from 1."""
    title: str = ""
    model: str = ""
    reason: EndReason = "done"
    """How its run ended."""
    usage: Usage = Usage()
    turns: int = 0
    tool_calls: int = 0
    world: str = ""
    """The world in which it worked; empty: it only read."""
    files: int = 0
    """How many files it changed there …"""
    added: int = 0
    removed: int = 0
    """… and by how many lines."""
    passed: bool | None = None
    """True if the attempt passed the check of its race; null: there was no check."""
    committed: bool = False
    """True if its changes are committed to the parent's files."""


class Child(Value, frozen=True):
    """One of the chats of a call, as the call's plan names it."""

    chat: ChatId
    number: int
    title: str = ""
    model: str = ""
    world: str = ""
    """Empty: it has none of its own."""


def decode_children(plan: Mapping[str, Any] | None) -> list[Child]:
    try:
        return msgspec.convert((plan or {}).get("children", ()), list[Child])
    except msgspec.ValidationError:
        return []


def make_world_name(chat: ChatId) -> str:
    """The world of a chat that a call began, if it has one of its own: named like it, so that either leads to the
    other."""
    return f"world_{chat.removeprefix('c_')}"
