"""A home that knows more than its database: commands that were run, and of which the log knows nothing, because a
backup was put back. Told by `treadle fsck`, and set aside by a repair; what they did to projects stays."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

from treadle.engine.effects import events_of
from treadle.ports.store import Store
from treadle.protocol.events import AssistantMessage, CheckStarted, ExecutionStart, TrialStart
from treadle.sandbox.supervisor.commands import SupervisedCommands
from treadle.stores.integrity import Problem
from treadle.types import CallKey, ChatId

_SHOWN = 5
_TELLING = {kind.TYPE for kind in (AssistantMessage, CheckStarted, ExecutionStart, TrialStart)}


async def look_ahead(store: Store, home: Path, *, repair: bool) -> list[Problem]:
    """What lies in the home of calls that the logs of the database do not have. Chats at work are left alone."""
    commands = SupervisedCommands(home / "commands")
    problems: list[Problem] = []
    for listed in await store.list():
        chat = listed.summary.chat
        on_disk = await asyncio.to_thread(commands.ever, chat)
        if on_disk and not listed.leased and (lost := await _lost(store, chat, on_disk)):
            aside = [await asyncio.to_thread(commands.set_aside, chat, key) for key in lost] if repair else [False]
            problems.append(Problem("ahead", _words(lost), chat, repaired=all(aside)))
    return problems


async def _lost(store: Store, chat: ChatId, on_disk: Iterable[CallKey]) -> list[CallKey]:
    requested: set[str] = set()
    names: dict[str, str] = {}
    async for _, event in events_of(store, chat, _TELLING):
        match event:
            case AssistantMessage(tool_requests=requests):
                requested |= {request.call for request in requests}
            case (
                ExecutionStart(call=call, plan=plan)
                | TrialStart(call=call, plan=plan)
                | CheckStarted(check=call, plan=plan)
            ):
                requested.add(call)
                names[call] = (plan or {}).get("own") or call
    return [key for key in on_disk if _is_lost(key, requested, names)]


def _is_lost(key: CallKey, requested: set[str], names: dict[str, str]) -> bool:
    """Of a call that the log has and that has not begun, nothing can be told: it may have been tried, or stopped."""
    name = key.partition("~")[0]
    call = name.partition("-")[0]
    return call not in requested or names.get(call, name) != name


def _words(lost: list[CallKey]) -> str:
    more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
    return (
        f"the database is older than the home: commands were run that the log does not have ({', '.join(lost[:_SHOWN])}"
        f"{more}), as after a backup was restored; their changes to the project stay"
    )
