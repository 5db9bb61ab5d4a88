"""Something happens at every point of a run: the worker is told to go, a person stops the run, steers it, queues a
message, renames the chat (fault 1: cancel at each await; L-07, L-08, law 2). A finished step is recorded and never done
again; a step that was only decided is decided anew."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.faults.chance import some
from treadle import Agent, Chat, ScriptedModel
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.base import file_system
from treadle.errors import Refused
from treadle.protocol.commands import Rename
from treadle.protocol.content import UserEntry
from treadle.protocol.events import RunEnd
from treadle.testing.checker import check, check_effects, check_seen
from treadle.testing.faults import faults

pytestmark = pytest.mark.thorough(one_of=12)

SCRIPT = [
    [Say("Look."), Call("read_file", path="notes.txt"), Call("list_directory", path=".")],
    [Call("write_file", path="new.txt", content="fresh\n"), Call("run_command", command="echo ran >> counter")],
    "All done.",
    "More done.",
    "Even more done.",
]
SHARDS = 2


class Strike:
    """A hook that tells the event loop when the nth point is passed, whichever thread passes it."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._loop = asyncio.get_running_loop()
        self.struck = asyncio.Event()

    def __call__(self, _name: str) -> None:
        self._left -= 1
        if self._left == 0:
            self._loop.call_soon_threadsafe(self.struck.set)


def an_agent(folder: Path) -> Agent:
    return Agent(SqliteStore(folder / "chats.db"), model=ScriptedModel(SCRIPT))


async def count_points(folder: Path) -> int:
    """How many points an undisturbed run passes once its message is written."""
    async with an_agent(prepare_folder(folder)) as agent:
        chat = await agent.chat(root=str(folder / "root"), summarize=False, auto_approve_commands=True)
        with faults() as fault_log:
            assert (await chat.ask("Go.")).text == "All done."
            await asyncio.sleep(0)
        return len(fault_log.passed)


def prepare_folder(folder: Path) -> Path:
    (folder / "root").mkdir(parents=True)
    (folder / "root" / "notes.txt").write_text("one\n")
    return folder


async def follow_until_idle(agent: Agent, chat: Chat) -> None:
    """Follow until the chat is at rest."""
    async with asyncio.timeout(60):
        while (await agent.deps.store.get(chat.id)).summary.runnable:
            async for _ in chat.resume():
                pass


async def struck_at(number: int, folder: Path, deed: Callable[[Agent, Chat], Awaitable[None]]) -> list[str]:
    """Start a run, do the deed at the nth point, and see the chat to its end. Return the checker's problems."""
    prepare_folder(folder)
    agent, second_agent = an_agent(folder), an_agent(folder)
    try:
        chat = await agent.chat(root=str(folder / "root"), summarize=False, auto_approve_commands=True)
        strike = Strike(number)
        file_system.install_fault_hook(strike)
        await chat.send("Go.")
        await strike.struck.wait()
        # By turns from the worker's own process, and from one that only shares the file with it.
        await deed(agent, chat if number % 4 < 2 else second_agent.chat(chat.id))
        file_system.install_fault_hook(None)
        if agent.deps.store._closed:
            agent = an_agent(folder)
            chat = agent.chat(chat.id)
        await follow_until_idle(agent, chat)
        problems = await check(agent.deps.store, chat.id)
        ran = (folder / "root" / "counter").exists()
        log = await chat.events()
        problems += check_effects(folder / "root" / "counter")
        problems += check_seen([event async for event in chat.resume().resume_after(0)], log)
        first = next(event.data for event in log if isinstance(event.data, RunEnd))
        if first.reason == "done" and not ran:
            unknown = [event.data for event in log if getattr(event.data, "synthetic", "") == "unknown"]
            problems += [] if unknown else ["the run is done, and its command never ran"]
        return problems
    finally:
        file_system.install_fault_hook(None)
        await second_agent.close()
        await agent.close()


async def go_away(agent: Agent, _chat: Chat) -> None:
    """As at SIGTERM: everything is cancelled where it stands, and the leases are given back."""
    await agent.close()


async def stop(_agent: Agent, chat: Chat) -> None:
    with contextlib.suppress(Refused):  # it may have ended at this very moment
        await chat.interrupt()


async def steer(_agent: Agent, chat: Chat) -> None:
    await chat.send("And this.", delivery="steering")


async def queue(_agent: Agent, chat: Chat) -> None:
    await chat.send("And then this.")


async def rename(_agent: Agent, chat: Chat) -> None:
    for number in range(5):
        await chat.command(Rename(f"Title {number}"))


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("deed", [go_away, stop, steer, queue, rename])
async def test_at_every_point(deed: Callable[[Agent, Chat], Awaitable[None]], shard: int, tmp_path: Path) -> None:
    points = await count_points(tmp_path / "counted")
    assert points > 30
    for number in some(range(1 + shard, points - 4, SHARDS), 6, f"{deed.__name__} {shard}"):
        problems = await struck_at(number, tmp_path / str(number), deed)
        assert problems == [], f"{deed.__name__} at point {number}"


async def test_a_steering_message_reaches_the_model_and_a_queued_one_has_a_run_of_its_own(tmp_path: Path) -> None:
    """L-08, in the middle of a run: after the first answer was recorded."""
    for deed, runs in ((steer, 1), (queue, 2)):
        folder = tmp_path / deed.__name__
        assert await struck_at(12, folder, deed) == []
        async with an_agent(folder) as agent:
            (listed,) = await agent.chats()
            state = await agent.chat(listed.summary.chat).state()
            user_texts = [entry.text for entry in state.history if isinstance(entry, UserEntry)]
            assert user_texts[0] == "Go."
            assert len(user_texts) == 2
            log = await agent.chat(listed.summary.chat).events()
            assert len([event for event in log if isinstance(event.data, RunEnd)]) == runs
