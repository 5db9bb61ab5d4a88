"""Detection of a database that is older than its home: after a backup was restored, the home holds commands that the
logs do not know. `treadle fsck` reports them, and a repair sets them aside; their changes to projects stay."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

from treadle.adapters.sandbox.supervisor.commands import SupervisedCommands
from treadle.adapters.stores.integrity import Problem
from treadle.base.types import CallKey, ChatId
from treadle.engine.effects import events_of
from treadle.ports.store import Store
from treadle.protocol.events import AssistantMessage, CheckStarted, ExecutionStart, TrialStart

_SHOWN = 5
_TELLING = {kind.TYPE for kind in (AssistantMessage, CheckStarted, ExecutionStart, TrialStart)}


async def look_ahead(store: Store, home: Path, *, repair: bool) -> list[Problem]:
    """Report the commands in the home whose calls are missing from the logs. Chats at work are skipped."""
    commands = SupervisedCommands(home / "commands")
    problems: list[Problem] = []
    for listed in await store.list():
        chat = listed.summary.chat
        on_disk = await asyncio.to_thread(commands.ever, chat)
        if on_disk and not listed.leased and (unrecorded_calls := await _find_lost_calls(store, chat, on_disk)):
            aside = (
                [await asyncio.to_thread(commands.set_aside, chat, key) for key in unrecorded_calls]
                if repair
                else [False]
            )
            problems.append(Problem("ahead", _words(unrecorded_calls), chat, repaired=all(aside)))
    return problems


async def _find_lost_calls(store: Store, chat: ChatId, on_disk: Iterable[CallKey]) -> list[CallKey]:
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


def _words(unrecorded_calls: list[CallKey]) -> str:
    more = f" and {len(unrecorded_calls) - _SHOWN} more" if len(unrecorded_calls) > _SHOWN else ""
    return (
        "the database is older than the home: commands were run that the log does not have "
        f"({', '.join(unrecorded_calls[:_SHOWN])}"
        f"{more}), as after a backup was restored; their changes to the project stay"
    )
