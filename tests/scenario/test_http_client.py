"""The Python client against a real server: tools, approvals, streams that resume, restarts of either side (A-09)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.http_kit import Server, serving
from treadle import tool
from treadle.adapters.models.scripted import Call, Hang, Say, Turn
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.base.stream_server import close_server, start_stream_server
from treadle.client import ChatInfo, Client, ClientChat, ToolCall
from treadle.client import sync as without_async
from treadle.errors import ApiError
from treadle.protocol.events import AssistantReset, Envelope, MessageDelta, OpenAction, RunEnd

pytestmark = pytest.mark.thorough(one_of=8)

WAIT_S = 60.0
STEPS: list[Any] = [[Call("weather", city="Oslo"), Call("weather", city="Rome")], Say("Rain and sun.")]


@contextlib.asynccontextmanager
async def place(folder: Path, steps: Any = STEPS, *tools: Any, **options: Any) -> AsyncIterator[Server]:
    async with serving(SqliteStore(folder / "treadle.db"), folder, steps, *tools, **options) as server:
        yield server


def client_of(server: Server, address: str = "", **settings: Any) -> Client:
    return Client(address or server.address, server.local.token, **settings)


def weather_of(client: Client) -> list[tuple[str, str]]:
    """A tool, and the calls that its handler got."""
    calls: list[tuple[str, str]] = []

    @client.tool
    async def weather(city: str, call: ToolCall) -> dict[str, str]:
        """Tells the weather."""
        calls.append((call.id, city))
        return {"sky": f"over {city}"}

    return calls


async def test_a_run_with_tools_of_the_client(tmp_path: Path) -> None:
    async with place(tmp_path) as server, client_of(server) as client:
        calls = weather_of(client)
        chat = await client.chats.create("How is it?")
        reply = await client.run(chat)
        assert (reply.text, reply.reason, reply.error) == ("Rain and sun.", "done", "")
        assert sorted(calls) == [("1.0", "Oslo"), ("1.1", "Rome")]
        log = await server.local.log(chat.id)
        completed = [event["data"] for event in log if event["type"] == "tool.execution_complete"]
        assert [completion["success"] for completion in completed] == [True, True]
        assert "over Oslo" in completed[0]["result"]
        again = await client.run(chat)  # there is nothing to do
        assert (again.text, again.reason) == ("Rain and sun.", "done")
        assert len(calls) == 2
        assert not client._handlers._answers  # results, which may be large, are kept until the server has them


async def test_errors_and_wrong_arguments_are_results(tmp_path: Path) -> None:  # A-09, L-05
    """The server checks arguments, too, unless it is told of no schema."""
    steps = [[Call("count", n="many"), Call("fail")], Say("I see.")]
    async with place(tmp_path, steps) as server, client_of(server) as client:
        counted: list[int] = []

        @client.tool
        def count(n: int) -> None:
            """Count."""
            counted.append(n)

        @client.tool
        def fail() -> None:
            """Fail."""
            raise RuntimeError("boom")

        chat = await client.chats.create("Go.", dynamic_tools=[{"name": "count"}, {"name": "fail"}])
        assert (await client.run(chat)).text == "I see."
        assert counted == []
        log = await server.local.log(chat.id)
        completions = [event["data"] for event in log if event["type"] == "tool.execution_complete"]
        assert [completion["success"] for completion in completions] == [False, False]
        assert "do not fit" in completions[0]["error"] + completions[0]["result"]
        assert "boom" in completions[1]["error"] + completions[1]["result"]


async def test_the_client_dies_with_calls_open_and_the_next_one_answers(tmp_path: Path) -> None:
    async with place(tmp_path) as server:
        first = client_of(server)
        tool_start = asyncio.Event()

        @first.tool
        async def weather(city: str) -> str:
            """Tells the weather."""
            tool_start.set()
            await asyncio.Event().wait()
            return ""

        chat = await first.chats.create("How is it?")
        running = asyncio.create_task(first.run(chat))
        await asyncio.wait_for(tool_start.wait(), WAIT_S)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await first.close()
        async with client_of(server) as second:
            calls = weather_of(second)
            assert (await second.run(chat.id)).text == "Rain and sun."
            assert sorted(calls) == [("1.0", "Oslo"), ("1.1", "Rome")]


async def test_two_clients_answer_and_one_is_taken(tmp_path: Path) -> None:
    async with place(tmp_path) as server, client_of(server) as one, client_of(server) as other_client:
        both = [weather_of(one), weather_of(other_client)]
        chat = await one.chats.create("How is it?")
        replies = await asyncio.gather(one.run(chat.id), other_client.run(chat.id))
        assert [reply.text for reply in replies] == ["Rain and sun."] * 2
        assert all(len(calls) <= 2 for calls in both)
        log = await server.local.log(chat.id)
        assert [event["data"]["call"] for event in log if event["type"] == "external_tool.completed"] == ["1.0", "1.1"]


async def test_approvals_and_questions(tmp_path: Path) -> None:
    deployed: list[str] = []

    @tool(needs_approval=True)
    async def deploy(target: str) -> str:
        """Deploy."""
        deployed.append(target)
        return "deployed"

    steps = [[Call("deploy", target="a")], [Call("deploy", target="b")], Say("Done.")]
    async with place(tmp_path, steps, deploy) as server, client_of(server) as client:
        chat = await client.chats.create("Go.", mode="confirm")
        waiting = await client.run(chat)
        assert waiting.reason == "action_required"
        assert [action.kind for action in waiting.actions] == ["permission"]
        await chat.approve(waiting.actions[0])
        actions: list[OpenAction] = []

        async def refuse(action: OpenAction) -> str:
            actions.append(action)
            return "Not on a Friday."

        assert (await client.run(chat, approve=refuse)).text == "Done."
        assert deployed == ["a"]
        assert len(actions) == 1
        log = await server.local.log(chat.id)
        assert [e["data"]["feedback"] for e in log if e["type"] == "permission.completed"][-1] == "Not on a Friday."


async def test_messages_that_are_queued_have_their_own_reply(tmp_path: Path) -> None:  # L-08
    steps = [[Call("weather", city="Oslo")], Say("First."), Say("Second.")]
    async with place(tmp_path, steps) as server, client_of(server) as client:
        go = asyncio.Event()

        @client.tool
        async def weather(city: str) -> str:
            """Tells the weather."""
            await go.wait()
            return city

        chat = await client.chats.create()
        first = asyncio.create_task(client.run(chat, "one"))
        await eventually(chat, lambda info: info.status == "requires_action")
        second = asyncio.create_task(client.run(chat, "two"))
        await eventually(chat, lambda info: info.queue)
        go.set()
        assert ((await first).text, (await second).text) == ("First.", "Second.")


async def eventually(chat: ClientChat, fact: Callable[[ChatInfo], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not fact(await chat.info()):  # noqa: ASYNC110 - a fact of the server
            await asyncio.sleep(0.01)


class Cutter:
    """A way to the server that can be cut, and that cuts itself after so many bytes."""

    def __init__(self, address: str, byte_limit: int = 0) -> None:
        self._port = int(address.rpartition(":")[2])
        self._after = byte_limit
        self._open: set[asyncio.StreamWriter] = set()
        self.cuts = 0

    async def __aenter__(self) -> "Cutter":
        self._server = await start_stream_server(self._pass_on, "127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await close_server(self._server)
        self.cut_connections()

    def cut_connections(self) -> None:
        for writer in list(self._open):
            self.cuts += 1
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there = await asyncio.open_connection("127.0.0.1", self._port)
        self._open |= {writer, there}
        remaining_bytes = [self._after]

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, limited: bool) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(1 << 16):
                    if limited and self._after:
                        data, remaining_bytes[0] = data[: remaining_bytes[0]], remaining_bytes[0] - len(data)
                    target.write(data)
                    await target.drain()
                    if limited and self._after and remaining_bytes[0] <= 0:
                        break
            for one in (writer, there):
                self._open.discard(one)
                one.transport.abort()

        await asyncio.gather(copy(reader, there, False), copy(there_reader, writer, True))


async def test_a_stream_that_breaks_all_the_time_is_the_log_once_and_in_order(tmp_path: Path) -> None:
    """Every connection carries a few events at most; wherever it breaks, nothing comes twice and nothing is missed."""
    async with place(tmp_path) as server, client_of(server) as client:
        weather_of(client)
        chat = await client.chats.create("How is it?")
        await client.run(chat)
        log = await server.local.log(chat.id)
        longest = max(len(str(event)) for event in log)
        async with Cutter(server.address, byte_limit=longest + 1500) as way, client_of(server, way.address) as remote:
            envelopes: list[Envelope] = []
            async with asyncio.timeout(WAIT_S):
                async for envelope in remote.chat(chat.id).events():
                    if not envelope.ephemeral:
                        envelopes.append(envelope)
                    if isinstance(envelope.data, RunEnd):
                        break
        assert [envelope.seq for envelope in envelopes] == [event["seq"] for event in log]


async def test_text_on_the_screen_is_right_after_a_reconnection(tmp_path: Path) -> None:  # D-04
    turn = Turn((Say("word " * 20), Hang()), chunk=5)
    async with (
        place(tmp_path, [turn]) as server,
        Cutter(server.address) as way,
        client_of(server, way.address) as client,
    ):
        chat = await client.chats.create("Speak.")
        text, is_cut = "", False
        async with asyncio.timeout(WAIT_S), contextlib.aclosing(chat.events()) as events:
            async for envelope in events:
                match envelope.data:
                    case AssistantReset():
                        text = ""
                    case MessageDelta(text=more):
                        text += more
                if text == "word " * 20:
                    if is_cut:
                        break
                    is_cut = True
                    way.cut_connections()
        assert way.cuts
        await chat.interrupt()


async def test_a_server_that_is_restarted_in_the_middle(tmp_path: Path) -> None:
    """The same chat, the same client, another server on the same port."""
    began, go = asyncio.Event(), asyncio.Event()
    way = None
    async with contextlib.AsyncExitStack() as stack:
        first = contextlib.AsyncExitStack()
        server = await first.enter_async_context(place(tmp_path))
        way = await stack.enter_async_context(Cutter(server.address))
        client = await stack.enter_async_context(client_of(server, way.address))

        @client.tool
        async def weather(city: str) -> str:
            """Tells the weather."""
            began.set()
            await go.wait()
            return city

        chat = await client.chats.create("How is it?")
        running = asyncio.create_task(client.run(chat))
        await asyncio.wait_for(began.wait(), WAIT_S)
        await first.aclose()
        go.set()
        again = await stack.enter_async_context(place(tmp_path))
        way._port = int(again.address.rpartition(":")[2])
        assert (await asyncio.wait_for(running, WAIT_S)).text == "Rain and sun."


async def test_chats_are_listed_changed_and_found(tmp_path: Path) -> None:
    async with place(tmp_path, [Say("Hi.")]) as server, client_of(server) as client:
        chats = [await client.chats.create(title=f"Chat {number}", labels=["x"]) for number in range(3)]
        assert {line.id async for line in client.chats.list(label="x")} == {chat.id for chat in chats}
        titles = [line.title async for line in client.chats.list(query="chat 2")]
        assert titles == ["Chat 2"]
        changed_chat = await chats[0].change(title="Other", archived=True)
        assert (changed_chat.title, changed_chat.archived) == ("Other", True)
        assert [line.id async for line in client.chats.list(archived=True)] == [chats[0].id]
        assert (await client.chats.get(chats[1].id)).id == chats[1].id
        with pytest.raises(ApiError) as missing:
            await client.chats.get("c_nothere")
        assert (missing.value.status, missing.value.reason) == (404, "not_found")


async def test_errors_are_said_at_once_or_after_patience(tmp_path: Path) -> None:
    async with place(tmp_path, [Say("Hi.")]) as server, Client(server.address, "wrong") as stranger:
        with pytest.raises(ApiError) as unauthorized:
            await stranger.chats.create("Hi.")
        assert unauthorized.value.status == 401
        with pytest.raises(ApiError) as unread:
            await anext(stranger.chat("c_1").events())
        assert unread.value.status == 401
    async with Client(server.address, "", patience_s=0.2) as early:
        with pytest.raises(ApiError) as unreachable:
            await early.chats.create("Hi.")
        assert (unreachable.value.status, unreachable.value.reason) == (0, "unreachable")


async def test_interrupting_ends_the_run_for_the_client(tmp_path: Path) -> None:  # L-07
    async with place(tmp_path) as server, client_of(server) as client:
        began = asyncio.Event()

        @client.tool
        async def weather(city: str) -> str:
            """Tells the weather."""
            began.set()
            await asyncio.Event().wait()
            return city

        chat = await client.chats.create("How is it?")
        running = asyncio.create_task(client.run(chat))
        await asyncio.wait_for(began.wait(), WAIT_S)
        await chat.interrupt()
        assert (await asyncio.wait_for(running, WAIT_S)).reason == "interrupted"


async def test_a_result_that_is_too_large_is_an_error_result(tmp_path: Path) -> None:
    steps = [[Call("weather", city="Oslo")], Say("I see.")]
    async with place(tmp_path, steps) as server, client_of(server) as client:

        @client.tool
        async def weather(city: str) -> str:
            """Tells the weather."""
            return "x" * (64 << 20)

        reply = await client.run(await client.chats.create("How is it?"))
        assert reply.text == "I see."
        log = await server.local.log((await anext(client.chats.list())).id)
        (completion,) = [event["data"] for event in log if event["type"] == "tool.execution_complete"]
        assert not completion["success"]


async def test_without_async(tmp_path: Path) -> None:
    async with place(tmp_path) as server:

        def work() -> tuple[str, list[int], str]:
            with without_async.Client(server.address, server.local.token) as client:

                @client.tool
                def weather(city: str) -> str:
                    """Tells the weather."""
                    return city

                chat = client.chats.create("How is it?")
                text = client.run(chat).text
                seqs = []
                for envelope in chat.events():
                    seqs += [envelope.seq] if envelope.seq else []
                    if isinstance(envelope.data, RunEnd):
                        break
                return text, seqs, client.chats.list()[0].id

        text, seqs, listed = await asyncio.to_thread(work)
        assert text == "Rain and sun."
        assert seqs == list(range(1, len(seqs) + 1))
        assert listed
