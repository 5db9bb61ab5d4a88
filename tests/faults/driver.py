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
from treadle.library.following import Following
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
    """What a child is to do. Paths are those of the case's own folder."""

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
    """Whether what was changed is undone when the run is over."""
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


async def visit(wanted: Visit) -> int:
    store = SqliteStore(wanted.path("chats.db"), lease_s=wanted.lease_s)
    model = OpenAIChat(ModelInfo("openai", "fake", window=128_000), base_url=wanted.url)
    async with Agent(
        store,
        model=model,
        tools=[deploy_tool(wanted.path("root") / "counter")],
        retry_base_s=0.001,
        renew_s=wanted.renew_s,
        allowance=Allowance(env=(MARK,)),
        telemetry=Telemetry(wanted.collector) if wanted.collector else False,
    ) as agent:
        known = await agent.chats()
        if wanted.crowd:
            ids = [listed.summary.chat for listed in known]
            codes = await asyncio.gather(*(see_through(agent.chat(chat), wanted) for chat in ids))
            return max(codes)
        if known:
            chat = agent.chat(known[0].summary.chat)
        else:
            lookup = DynamicTool("lookup", "Look something up.", {"type": "object"})
            options = {"interactive": True, "auto_approve_commands": True, "dynamic_tools": (lookup,)}
            options["command_view"] = not wanted.direct
            chat = agent.chat(root=str(wanted.path("root")), **options)
        return await follow(chat, wanted)


async def follow(chat: Chat, wanted: Visit) -> int:
    """What a client does after a reconnection: take what it missed, say what is due, and watch."""
    with wanted.path(wanted.seen).open("ab") as seen:

        def show(envelope: Envelope) -> None:
            seen.write(wire.to_json(envelope) + b"\n")
            seen.flush()

        code = FAILED
        async for envelope in await due(chat, wanted):
            show(envelope)
            if isinstance(envelope.data, SessionIdle):
                code = IDLE
            if isinstance(envelope.data, ActionRequired):
                code = WAITING
        events = await chat.events()
        more = (wanted.undo and not undone(events)) or (wanted.apply and not applied(events))
        return WAITING if code == IDLE and more else code


async def see_through(chat: Chat, wanted: Visit) -> int:
    """Follow one chat of many to its end. Others may answer first; then there is nothing to answer any more."""
    own = replace(wanted, seen=f"seen.{chat.id}.{os.getpid()}")
    while True:
        try:
            code = await follow(chat, own)
        except Refused:
            continue
        if code == FAILED or (code == IDLE and await chat.status() in ("idle", "error")):
            return code  # not yet, if a queued message began the next run


def _last_seen(path: Path) -> int:
    return max((wire.from_json(line).seq for line in path.read_bytes().splitlines()), default=0)


async def due(chat: Chat, wanted: Visit) -> Following:
    last_seen = _last_seen(wanted.path(wanted.seen))
    if wanted.action == "interrupt":
        await chat.interrupt()
    if wanted.action in ("resume", "interrupt"):
        return chat.resume().resume_after(last_seen)
    if wanted.action == "again":
        return chat.send("Go on.").resume_after(last_seen)
    if wanted.action == "advance":
        events = await chat.events()
        if not any(isinstance(envelope.data, UserMessage) for envelope in events):
            return chat.send(wanted.prompt).resume_after(last_seen)
        if open_actions := await chat.actions():
            return answer(chat, open_actions).resume_after(last_seen)
        if wanted.apply and await chat.status() in ("idle", "error") and not applied(events):
            return chat.apply(wanted.apply).resume_after(last_seen)
        if wanted.undo and await chat.status() in ("idle", "error") and not undone(events):
            asked = sum(isinstance(envelope.data, RestoreRequested) for envelope in events)
            return Following(chat, Restore(f"u{asked}")).resume_after(last_seen)
    return chat.resume().resume_after(last_seen)


def applied(events: list[Envelope]) -> bool:
    return any(isinstance(envelope.data, UserMessage) and envelope.data.source == "apply" for envelope in events)


def undone(events: list[Envelope]) -> bool:
    return any(isinstance(envelope.data, Undone) and not envelope.data.error for envelope in events)


def answer(chat: Chat, actions: tuple[OpenAction, ...]) -> Following:
    first = actions[0]
    match first.kind:
        case "permission":
            return chat.approve(first)
        case "user_input":
            return chat.answer(first, "blue")
        case "external_tool":
            return chat.submit({action.tool_call_id: {"found": action.name} for action in actions})


def main() -> int:
    wanted = msgspec.json.decode(sys.argv[1], type=Visit)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    handle.FOLLOW_S = min(handle.FOLLOW_S, wanted.renew_s)  # a follower looks as often as leases are renewed
    install_from_environment()
    try:
        return asyncio.run(visit(wanted))
    except BaseException:
        traceback.print_exc()
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
