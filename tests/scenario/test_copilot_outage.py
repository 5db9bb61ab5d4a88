"""Sessions of Copilot programs while the store is away: they hear, ask and answer as before when it is back (E-03,
fault 14)."""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.copilot_kit import ErrorAnswer, Program
from treadle import Agent, ScriptedModel
from treadle.adapters.models.registry import ModelRegistry
from treadle.adapters.models.scripted import Call, Say, Step
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.base.jsonrpc import Connection
from treadle.errors import StoreError
from treadle.frontends.copilot.requests import ProgramHooks
from treadle.frontends.copilot.server import Runtime
from treadle.library import feeds
from treadle.ports.store import Commit
from treadle.protocol.options import ChatOptions

SESSION = {"sessionId": "s1", "requestPermission": True}


class AwayStore(SqliteStore):
    """Fails in these operations, and where events of these types are appended: so many times each."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.failures: Counter[str] = Counter()

    def _look(self, *names: str) -> None:
        for name in names:
            if self.failures[name] > 0:
                self.failures[name] -= 1
                raise StoreError("the store is away")

    async def read(self, *args: Any, **kwargs: Any) -> Any:
        self._look("read")
        return await super().read(*args, **kwargs)

    async def append(self, commit: Commit) -> None:
        self._look(*(record.type for record in commit.records))
        await super().append(commit)

    async def delete(self, *args: Any, **kwargs: Any) -> Any:
        self._look("delete")
        return await super().delete(*args, **kwargs)


@asynccontextmanager
async def serving(folder: Path, *steps: Step) -> AsyncIterator[tuple[AwayStore, Runtime, Program]]:
    """A runtime in this process, and a program that is connected to it."""
    store, hooks = AwayStore(folder / "t.db"), ProgramHooks()
    options = ChatOptions(model="scripted:test", mode="confirm", summarize=False, verify=False)
    agent = Agent(store, model=ScriptedModel(list(steps)), options=options, home=folder / "home", hooks=hooks)
    runtime = Runtime(agent, ModelRegistry({}), options, hooks, lambda _folder: str(folder))
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    serving = asyncio.create_task(runtime.converse(Connection(reader, writer, runtime.handle)))
    program = Program(*await asyncio.open_connection(sock=theirs), None)
    try:
        yield store, runtime, program
    finally:
        store.failures.clear()
        await program.close()
        await serving
        await runtime.close()
        await agent.close()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "PAUSE_S", 0.01)


async def test_a_session_whose_first_resumption_was_cancelled_hears_its_events(tmp_path: Path) -> None:
    async with serving(tmp_path, Say("Hi.")) as (store, runtime, program):
        chat = await runtime.agent.chat(model="scripted:test").open()
        session = {"sessionId": chat.id}
        await program.call("sessions.fork", session)  # the runtime knows the session now
        store.failures["read"] = 1_000_000
        resuming = asyncio.create_task(program.call("session.resume", session))
        while store.failures["read"] == 1_000_000:  # noqa: ASYNC110 - a failed read comes with no event
            await asyncio.sleep(0.01)
        program.write({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": program.number}})
        with pytest.raises(ErrorAnswer, match="cancelled"):
            await resuming
        store.failures.clear()
        await program.call("session.resume", session)
        reply = await program.call("session.sendAndWait", {**session, "prompt": "Go."})
        assert reply["response"]["data"]["content"] == "Hi."


async def test_an_approval_that_could_not_be_recorded_is_asked_again(tmp_path: Path) -> None:  # S-08
    write = Call("write_file", path="a.txt", content="1")
    async with serving(tmp_path, write, Say("Done.")) as (store, _, program):
        await program.call("session.create", SESSION)
        await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
        request = (await program.wait_for_event("permission.requested"))["data"]["requestId"]
        decision = {"sessionId": "s1", "requestId": request, "result": {"kind": "approve-once"}}
        store.failures["permission.completed"] = 1
        with pytest.raises(ErrorAnswer):
            await program.call("session.permissions.handlePendingPermissionRequest", decision)
        seen = len(program.events)
        await program.call("session.resume", SESSION)
        again = await program.wait_for_event("permission.requested", seen)
        assert again["data"]["requestId"] == request
        await program.call("session.permissions.handlePendingPermissionRequest", decision)
        await program.wait_for_event("session.idle")
        assert (tmp_path / "a.txt").read_text() == "1"


async def test_all_is_approved_as_soon_as_that_can_be_recorded(tmp_path: Path) -> None:
    write = Call("write_file", path="a.txt", content="1")
    async with serving(tmp_path, write, Say("Done.")) as (store, _, program):
        await program.call("session.create", SESSION)
        await program.call("session.permissions.setApproveAll", {"sessionId": "s1", "enabled": True})
        store.failures["permission.completed"] = 2
        await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
        await program.wait_for_event("session.idle")
        assert (tmp_path / "a.txt").read_text() == "1"


async def test_a_session_that_could_not_be_deleted_tells_every_event_once(tmp_path: Path) -> None:
    async with serving(tmp_path, Say("Hi.")) as (store, _, program):
        await program.call("session.create", SESSION)
        store.failures["delete"] = 1
        with pytest.raises(ErrorAnswer):
            await program.call("session.delete", {"sessionId": "s1"})
        await program.call("session.resume", SESSION)
        await program.call("session.sendAndWait", {"sessionId": "s1", "prompt": "Go."})
        assert program.types.count("assistant.message") == 1
        assert (await program.call("session.delete", {"sessionId": "s1"})) == {"success": True}
