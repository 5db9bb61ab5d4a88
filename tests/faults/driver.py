"""One visit to a chat, in a process of its own: says or answers what is due, follows the chat until it is idle or waits
for someone, and writes down every event as a client would see it. Any visit may be killed; the next one goes on.

    python -m tests.faults.driver VISIT
"""

import asyncio
import os
import signal
import sys
import traceback
from pathlib import Path

import msgspec
from msgspec.structs import replace

from treadle import Agent, Chat, DynamicTool, Envelope, OpenAction, tool
from treadle.adapters.models.openai_chat.adapter import OpenAIChat
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.adapters.telemetry.settings import Telemetry
from treadle.errors import Refused
from treadle.library import chat as handle
from treadle.library.command_stream import CommandStream
from treadle.ports.commands import Allowance
from treadle.ports.model import ModelInfo
from treadle.ports.store import LEASE_S, RENEW_S
from treadle.protocol import wire
from treadle.protocol.commands import Restore
from treadle.protocol.events import ActionRequired, RestoreRequested, SessionIdle, Undone, UserMessage
from treadle.testing.faults import install_from_environment

IDLE, WAITING, FAILED = 0, 3, 1
PROMPT = "Do the work."
MARK = "TREADLE_TEST_MARK"


class Visit(msgspec.Struct, frozen=True):
    """The task of a child. Paths are those of the case's own folder."""

    folder: str
    url: str
    lease_s: float = LEASE_S
    renew_s: float = RENEW_S
    action: str = "advance"
    """advance: say or answer what is due, and follow · resume: only follow · again: say something more, and follow ·
    interrupt: record a stop, and follow"""
    seen: str = "seen.jsonl"
    prompt: str = PROMPT
    undo: bool = False
    """If true, the changes are undone when the run is over."""
    apply: str = ""
    """The file to which the block of the answer is applied when the run is over."""
    direct: bool = False
    """Let commands write through, so that what they do can be seen while they run."""
    crowd: bool = False
    """See all chats of the store through at once, instead of one."""
    collector: str = ""
    """Where traces go."""

    def path(self, name: str) -> Path:
        return Path(self.folder) / name


def deploy_tool(counter: Path) -> object:
    @tool(needs_approval=True)
    def deploy(target: str) -> str:
        """Put the work where people can see it.

        Args:
            target: Where to.
        """
        with counter.open("a") as file:
            file.write(f"deploy {target}\n")
        return f"deployed to {target}"

    return deploy


async def visit(task: Visit) -> int:
    store = SqliteStore(task.path("chats.db"), lease_s=task.lease_s)
    model = OpenAIChat(ModelInfo("openai", "fake", window=128_000), base_url=task.url)
    async with Agent(
        store,
        model=model,
        tools=[deploy_tool(task.path("root") / "counter")],
        retry_base_s=0.001,
        renew_s=task.renew_s,
        allowance=Allowance(env=(MARK,)),
        telemetry=Telemetry(task.collector) if task.collector else False,
    ) as agent:
        chats = await agent.chats()
        if task.crowd:
            ids = [listed.summary.chat for listed in chats]
            codes = await asyncio.gather(*(see_through(agent.chat(chat), task) for chat in ids))
            return max(codes)
        if chats:
            chat = agent.chat(chats[0].summary.chat)
        else:
            lookup = DynamicTool("lookup", "Look something up.", {"type": "object"})
            options = {"interactive": True, "auto_approve_commands": True, "dynamic_tools": (lookup,)}
            options["command_view"] = not task.direct
            chat = agent.chat(root=str(task.path("root")), **options)
        return await follow(chat, task)


async def follow(chat: Chat, task: Visit) -> int:
    """Act as a client after a reconnection: take the missed events, send the due message, and watch."""
    with task.path(task.seen).open("ab") as seen_file:

        def show(envelope: Envelope) -> None:
            seen_file.write(wire.to_json(envelope) + b"\n")
            seen_file.flush()

        code = FAILED
        async for envelope in await due(chat, task):
            show(envelope)
            if isinstance(envelope.data, SessionIdle):
                code = IDLE
            if isinstance(envelope.data, ActionRequired):
                code = WAITING
        events = await chat.events()
        more = (task.undo and not undone(events)) or (task.apply and not has_applied_block(events))
        return WAITING if code == IDLE and more else code


async def see_through(chat: Chat, task: Visit) -> int:
    """Follow one chat of many to its end. Others may answer first; then there is nothing to answer any more."""
    own_task = replace(task, seen=f"seen.{chat.id}.{os.getpid()}")
    while True:
        try:
            code = await follow(chat, own_task)
        except Refused:
            continue
        if code == FAILED or (code == IDLE and await chat.status() in ("idle", "error")):
            return code  # not yet, if a queued message began the next run


def _last_seen(path: Path) -> int:
    return max((wire.from_json(line).seq for line in path.read_bytes().splitlines()), default=0)


async def due(chat: Chat, task: Visit) -> CommandStream:
    last_seen = _last_seen(task.path(task.seen))
    if task.action == "interrupt":
        await chat.interrupt()
    if task.action in ("resume", "interrupt"):
        return chat.resume().resume_after(last_seen)
    if task.action == "again":
        return chat.send("Go on.").resume_after(last_seen)
    if task.action == "advance":
        events = await chat.events()
        if not any(isinstance(envelope.data, UserMessage) for envelope in events):
            return chat.send(task.prompt).resume_after(last_seen)
        if open_actions := await chat.actions():
            return answer(chat, open_actions).resume_after(last_seen)
        if task.apply and await chat.status() in ("idle", "error") and not has_applied_block(events):
            return chat.apply(task.apply).resume_after(last_seen)
        if task.undo and await chat.status() in ("idle", "error") and not undone(events):
            restore_count = sum(isinstance(envelope.data, RestoreRequested) for envelope in events)
            return CommandStream(chat, Restore(f"u{restore_count}")).resume_after(last_seen)
    return chat.resume().resume_after(last_seen)


def has_applied_block(events: list[Envelope]) -> bool:
    return any(isinstance(envelope.data, UserMessage) and envelope.data.source == "apply" for envelope in events)


def undone(events: list[Envelope]) -> bool:
    return any(isinstance(envelope.data, Undone) and not envelope.data.error for envelope in events)


def answer(chat: Chat, actions: tuple[OpenAction, ...]) -> CommandStream:
    first = actions[0]
    match first.kind:
        case "permission":
            return chat.approve(first)
        case "user_input":
            return chat.answer(first, "blue")
        case "external_tool":
            return chat.submit({action.tool_call_id: {"found": action.name} for action in actions})


def main() -> int:
    task = msgspec.json.decode(sys.argv[1], type=Visit)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    handle.FOLLOW_S = min(handle.FOLLOW_S, task.renew_s)  # a follower looks as often as leases are renewed
    install_from_environment()
    try:
        return asyncio.run(visit(task))
    except BaseException:
        traceback.print_exc()
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
