"""Streams over HTTP (A-07, D-04, fault 16): every place to come back to, many readers, slow readers, sockets, and chats
that another process runs."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.scenario.http_kit import WEATHER, Client, Server, eventually, select_recorded_events, serving, sse
from treadle import Agent, ScriptedModel, tool
from treadle.adapters.models.scripted import Call, Fail, Hang, Say, Turn
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.frontends.server import connections
from treadle.frontends.server.service import Limits
from treadle.ports.store import Store
from treadle.protocol.options import ChatOptions

pytestmark = pytest.mark.thorough(one_of=8)


@tool(read_only=True)
async def look(n: int = 0) -> str:
    """Look at something."""
    return f"seen {n}"


BUFFER = 65_536
STEPS = [[Call("look", n=1), Call("look", n=2)], Call("look", n=3), Say("All seen.")]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(SqliteStore(tmp_path / "treadle.db"), tmp_path, STEPS, look) as running_server:
        yield running_server


@pytest.fixture
async def on_each(open_shared: Callable[[], Store], tmp_path: Path) -> AsyncIterator[Server]:
    """The same on every database that processes can share."""
    async with serving(open_shared(), tmp_path, STEPS, look) as running_server:
        yield running_server


@pytest.mark.thorough(one_of=8)
async def test_coming_back_at_every_place(on_each: Server) -> None:  # A-07, fault 16
    chat = await on_each.local.create("Look.")
    live = await on_each.local.until(chat, "session.idle")
    log = await on_each.local.log(chat)
    assert select_recorded_events(live) == log
    for seq in range(len(log) + 1):
        missed_events = [event async for event in on_each.local.events(chat, after_seq=seq, follow=False)]
        assert select_recorded_events(missed_events) == log[seq:]


@pytest.mark.thorough(one_of=8)
async def test_a_hundred_readers_see_the_log(on_each: Server) -> None:  # fault 16
    chat = await on_each.local.create()
    tasks = [asyncio.create_task(on_each.local.until(chat, "session.idle")) for _ in range(100)]
    await eventually(lambda: on_each.service.metrics.streams.total() == 100)
    refused = await on_each.local("GET", f"/api/chats/{chat}/events")
    assert (refused.status, refused.code) == (429, "too_many_streams")
    assert (await on_each.local("POST", f"/api/chats/{chat}/messages", {"content": "Look."})).status == 200
    streams = await asyncio.gather(*tasks)
    log = await on_each.local.log(chat)
    assert all(select_recorded_events(each) == log for each in streams)
    await eventually(lambda: on_each.service.metrics.streams.total() == 0)


async def test_a_bogus_place_is_said_to_be_one(server: Server) -> None:  # fault 16
    chat = await server.local.create()
    for bogus in ("x", "-1", "1.5", "999", "99999999999999999999", "c_1:3", "½"):
        for header in (True, False) if bogus.isascii() else (False,):
            path = f"/api/chats/{chat}/events" + ("" if header else f"?after={bogus}")
            reply = await server.local("GET", path, headers={"last-event-id": bogus} if header else {})
            assert (reply.status, reply.code) == (400, "bad_request"), bogus


async def test_a_head_request_is_answered_and_over(server: Server) -> None:
    chat = await server.local.create()
    reply = await server.local("HEAD", f"/api/chats/{chat}/events")
    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


async def test_the_header_counts_more_than_the_address(server: Server) -> None:
    chat = await server.local.create("Look.")
    await server.local.until(chat, "session.idle")
    events = [event async for event in server.local.events(chat, after_seq=3, follow=False, query="&after=1")]
    assert select_recorded_events(events)[0]["seq"] == 4


async def test_the_text_so_far_comes_behind_the_missed_events(tmp_path: Path) -> None:  # D-04
    text = "word " * 40
    steps = [Turn((Say(text), Hang()), chunk=5)]
    async with serving(SqliteStore(tmp_path / "t.db"), tmp_path, steps) as server:
        chat = await server.local.create("Speak.")

        async def read_until_whole_text(last_seq: int | None) -> tuple[list[dict[str, Any]], str]:
            """Everything until the whole text was heard."""
            events: list[dict[str, Any]] = []
            partial_text = ""
            async for event in server.local.events(chat, after_seq=last_seq):
                events.append(event)
                if event["type"] == "assistant.reset":
                    partial_text = ""
                if event["type"] == "assistant.message_delta":
                    partial_text += event["data"]["text"]
                    if partial_text == text:
                        return events, partial_text
                assert len(partial_text) <= len(text)
            raise AssertionError("the stream ended")

        first, _ = await read_until_whole_text(None)
        log = await server.local.log(chat)
        for seq in range(len(log) + 1):
            again, _ = await read_until_whole_text(seq)
            assert select_recorded_events(again) == log[seq:]
            live = [index for index, event in enumerate(again) if event.get("ephemeral")]
            assert min(live) == len(log) - seq, "the text comes behind what was missed"
        assert select_recorded_events(first) == log
        await server.local("POST", f"/api/chats/{chat}/interrupt")
        await server.local.until(chat, "session.idle")


class Firehose:
    """Reads nothing until it is told to."""

    def __init__(self, server: Server, chat: str) -> None:
        self._server = server
        self._chat = chat

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self._server.address.removeprefix("http://").split(":")
        raw = socket.create_connection((host, int(port)))
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        reader, writer = await asyncio.open_connection(sock=raw, limit=2**22)
        token = self._server.local.token
        writer.write(
            f"GET /api/chats/{self._chat}/events HTTP/1.1\r\nHost: {host}:{port}\r\n"
            f"Authorization: Bearer {token}\r\n\r\n".encode()
        )
        await writer.drain()
        return reader, writer


async def test_a_slow_reader_holds_up_nobody_and_misses_no_event(tmp_path: Path) -> None:  # A-07, fault 16
    """It takes nothing while some megabytes of live text go by; then it gets every event, and what it has of the text
    is made good."""
    words = "x" * 2_000_000
    model = ScriptedModel([Turn((Say(words), Call("look", n=1)), chunk=2_000), Turn((Say("Done."),))])
    store, limits = SqliteStore(tmp_path / "t.db"), Limits(backlog=50)
    async with serving(store, tmp_path, model, look, limits=limits, buffer=BUFFER) as server:
        chat = await server.local.create()
        reader, writer = await Firehose(server, chat).open()
        await reader.readuntil(b"retry: 1000\n\n")
        await server.local("POST", f"/api/chats/{chat}/messages", {"content": "Speak."})
        await server.local.until(chat, "session.idle")
        assert server.service.feeds.dropped > 0
        events: list[dict[str, Any]] = []
        while not events or events[-1]["type"] != "session.idle":
            line = await reader.readline()
            if line.startswith(b"data: "):
                events.append(json.loads(line.removeprefix(b"data: ")))
        writer.close()
        assert select_recorded_events(events) == await server.local.log(chat)
        deltas = sum(len(event["data"]["text"]) for event in events if event["type"] == "assistant.message_delta")
        assert deltas < len(words), "live text was dropped"


UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.mark.parametrize("upgrade", ["", UPGRADE])
async def test_a_reader_that_takes_nothing_is_removed(  # A-07, S-20, fault 16
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upgrade: str
) -> None:
    monkeypatch.setattr(connections, "STALL_S", 0.3)
    steps = [Turn((Say("x" * 4_000_000),), chunk=100_000)]
    store, limits = SqliteStore(tmp_path / "t.db"), Limits(streams=1, backlog=5)
    async with serving(store, tmp_path, steps, look, limits=limits, buffer=BUFFER) as server:
        chat = await server.local.create("Speak.")
        await server.local.until(chat, "session.idle")
        await eventually(lambda: server.service.metrics.streams.total() == 0)
        host, port = server.address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
            token = f"Authorization: Bearer {server.local.token}\r\n"
            raw.sendall(
                f"GET /api/chats/{chat}/events HTTP/1.1\r\nHost: {host}:{port}\r\n{token}{upgrade}\r\n".encode()
            )
            await eventually(lambda: server.service.metrics.streams.total() == 1)
            await eventually(lambda: server.service.metrics.streams.total() == 0)
            protocols = server.running._server.server_state.connections
            await eventually(lambda: all(each.client != raw.getsockname() for each in protocols))
            assert await server.local.until(chat, "user.message")  # the place is free for another reader


async def test_heartbeats(tmp_path: Path) -> None:
    limits = Limits(heartbeat_s=0.05)
    async with serving(SqliteStore(tmp_path / "t.db"), tmp_path, STEPS, limits=limits) as server:
        chat = await server.local.create()
        for path in (f"/api/chats/{chat}/events", "/api/watch"):
            async with server.session.get(server.address + path, headers=server.local.headers) as response:
                lines = [line async for line in _lines(response, 8)]
            assert lines.count(b": still here\n") >= 2
        async with server.session.ws_connect(
            f"{server.address}/api/chats/{chat}/events?after=1", headers=server.local.headers
        ) as talk:
            assert [(await talk.receive()).data for _ in range(2)] == ["", ""]


async def test_streams_end_when_their_token_is_revoked(tmp_path: Path) -> None:  # S-13
    limits = Limits(heartbeat_s=0.05)
    async with serving(SqliteStore(tmp_path / "t.db"), tmp_path, STEPS, limits=limits) as server:
        token, secret = server.tokens.add("eve")
        eve = Client(server.session, server.address, secret)
        paths = (f"/api/chats/{await eve.create()}/events", "/api/watch")
        talks = [await server.session.ws_connect(server.address + path, headers=eve.headers) for path in paths]
        answers = [await server.session.get(server.address + path, headers=eve.headers) for path in paths]
        for talk in talks:
            assert isinstance((await talk.receive()).data, str)
        server.tokens.revoke(token.id)
        for talk in talks:
            assert {message.data async for message in talk} <= {""}
            assert talk.closed
        for answer in answers:
            assert (await answer.read()).startswith(b"retry: ")  # it came to its end


async def _lines(response: aiohttp.ClientResponse, count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield await response.content.readline()


async def test_a_socket_is_the_same_stream(server: Server) -> None:
    chat = await server.local.create("Look.")
    await server.local.until(chat, "session.idle")
    log = await server.local.log(chat)
    address = f"{server.address}/api/chats/{chat}/events"
    for seq in (0, 3):
        query = f"?after={seq}&follow=false"
        async with server.session.ws_connect(address + query, headers=server.local.headers) as talk:
            events = [json.loads(message.data) async for message in talk]
            assert talk.close_code == 1000
        assert select_recorded_events(events) == log[seq:]
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await server.session.ws_connect(address)
    assert refused.value.status == 401
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await server.session.ws_connect(f"{address}?after=999", headers=server.local.headers)
    assert refused.value.status == 400
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await server.session.ws_connect(address, headers=server.user("bob").headers)
    assert refused.value.status == 404


async def test_leaving_is_not_stopping(tmp_path: Path) -> None:  # A-07, law 11
    steps = [Turn((Say("one two three four"),), chunk=2, delay_s=0.01)]
    async with serving(SqliteStore(tmp_path / "t.db"), tmp_path, steps) as server:
        chat = await server.local.create("Speak.")
        await server.local.until(chat, "assistant.message_delta")
        events = await server.local.until(chat, "session.idle")
        assert events[-1]["data"]["reason"] == "done"


async def words_of(server: Server, chat: str, query: str = "&follow=false", until: str = "") -> list[dict[str, Any]]:
    address = f"{server.address}/api/chats/{chat}/events?view=simple{query}"
    words: list[dict[str, Any]] = []
    async with server.session.get(address, headers=server.local.headers) as response:
        async for line in response.content:
            if line.startswith(b"data: "):
                words.append(json.loads(line[6:]))
                if words[-1]["type"] == until:
                    break
    return words


async def test_the_simple_view(server: Server) -> None:
    chat = await server.local.create("Look.")
    await server.local.until(chat, "session.idle")
    words = [word["type"] for word in await words_of(server, chat)]
    assert words == ["tool_start", "tool_start", "tool_done", "tool_done", "tool_start", "tool_done", "token", "done"]


def text_of(words: list[dict[str, Any]]) -> str:
    return "".join(word["text"] for word in words if word["type"] == "token")


async def test_simple_readers_get_the_text_once_whenever_they_come(tmp_path: Path) -> None:  # A-11, fault 7
    full_text = "one two three four five six seven eight"
    steps = [Turn((Say(full_text[:20]), Fail("cut_stream"), Say(full_text[20:])), chunk=4, delay_s=0.02)]
    async with serving(SqliteStore(tmp_path / "t.db"), tmp_path, steps) as server:
        chat = await server.local.create("Speak.")
        first = asyncio.create_task(words_of(server, chat, "", "done"))
        await server.local.until(chat, "assistant.message_delta")
        middle = asyncio.create_task(words_of(server, chat, "", "done"))
        await server.local.until(chat, "session.idle")
        for words in (
            await first,
            await middle,
            await words_of(server, chat),
            await words_of(server, chat, "&follow=false&deltas=false"),
        ):
            assert text_of(words) == full_text
            assert (words[-1]["type"], words[-1]["reason"]) == ("done", "done")


@pytest.mark.thorough(one_of=8)
async def test_simple_readers_see_every_file_before_its_call_is_done(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    steps = [
        [Call("write_file", path="a.txt", content="a"), Call("run_command", command="touch $(seq -f f%g 250)")],
        Say("Done."),
    ]
    options = ChatOptions(model="scripted:test", mode="autopilot", auto_approve_commands=True, max_continuations=0)
    async with serving(SqliteStore(tmp_path / "t.db"), tmp_path, steps, builtin=True, options=options) as server:
        chat = await server.local.create("Write.", root=str(project))
        live = await words_of(server, chat, "", "done")
        for words in (live, await words_of(server, chat)):
            order = [(word["type"], word.get("path") or word.get("call", "")) for word in words]
            assert order[: order.index(("tool_done", "1.0")) + 1][-2] == ("file_modified", "a.txt")
            assert order.index(("tool_start", "1.1")) < order.index(("file_modified", "f1"))
            assert order.index(("file_modified", "f250")) < order.index(("tool_done", "1.1"))
            assert [kind for kind, _ in order].count("file_modified") == 251


async def test_a_chat_that_another_process_runs(open_shared: Callable[[], Store], tmp_path: Path) -> None:
    """Two servers on one store, of which only one works; its own reader and the other's see the same."""
    steps = [[Call("look", n=1), Call("weather", city="Oslo")], Say("Done.")]
    options = ChatOptions(model="scripted:test", interactive=True, summarize=False, verify=False)
    async with serving(open_shared(), tmp_path, steps, look, works=False) as server:
        other_agent = Agent(open_shared(), model=ScriptedModel(steps), tools=[look], builtin=False, options=options)
        async with other_agent:
            chat = await server.local.create("How is it?", dynamic_tools=[WEATHER])
            assert (await server.local("GET", f"/api/chats/{chat}")).json["status"] == "pending"
            other_agent.worker.start(chat)  # type: ignore[arg-type]
            events = await server.local.until(chat, "session.action_required")
            assert select_recorded_events(events) == await server.local.log(chat)
            body = {"results": [{"tool_call_id": "1.1", "output": "rain"}]}
            assert (await server.local("POST", f"/api/chats/{chat}/tool-results", body)).status == 204
            other_agent.worker.start(chat)  # type: ignore[arg-type]
            again = await server.local.until(chat, "session.idle", after_seq=events[-2]["seq"])
            log = await server.local.log(chat)
            assert select_recorded_events(events) + select_recorded_events(again) == log
            for seq in range(len(log) + 1):
                missed_events = [event async for event in server.local.events(chat, after_seq=seq, follow=False)]
                assert select_recorded_events(missed_events) == log[seq:]


async def test_watching_all_chats_of_a_user(on_each: Server) -> None:
    bob = on_each.user("bob")
    first = await on_each.local.create()
    headers = on_each.local.headers | {"last-event-id": "0"}
    changes: list[dict[str, Any]] = []
    async with on_each.session.get(f"{on_each.address}/api/watch", headers=headers) as response:
        stream = sse(response.content)
        changes.append(await anext(stream))
        await bob.create("Look.")
        second = await on_each.local.create("Look.")
        async for change in stream:
            changes.append(change)
            if change["chat"]["id"] == second and change["chat"]["status"] == "idle":
                break
    assert changes[0]["chat"]["id"] == first
    assert {change["chat"]["id"] for change in changes} == {first, second}
    numbers = [change["changed"] for change in changes]
    assert numbers == sorted(numbers)
    bogus = await on_each.local("GET", "/api/watch?after=99999")
    assert (bogus.status, bogus.code) == (400, "bad_request")


async def test_streams_end_with_a_hint_when_the_server_does(server: Server) -> None:  # fault 17
    chat = await server.local.create()
    address = f"{server.address}/api/chats/{chat}/events"
    async with (
        server.session.get(address, headers=server.local.headers) as response,
        server.session.get(f"{server.address}/api/watch", headers=server.local.headers) as watch,
        server.session.ws_connect(address, headers=server.local.headers) as talk,
    ):
        await response.content.readuntil(b"session.created")
        assert (await talk.receive()).type == aiohttp.WSMsgType.TEXT
        server.running.end()
        assert (await response.content.read()).endswith(b"retry: 1000\n\n")
        await watch.content.read()
        assert [message.type async for message in talk] == []
        assert talk.close_code == 1012


async def test_live_text_of_a_chat_that_another_process_runs(
    open_shared: Callable[[], Store], tmp_path: Path
) -> None:  # D-04, law 7
    """Two readers at a server that runs nothing; one comes in the middle. Both have the whole text, once."""
    text = "word " * 40
    steps = [Turn((Say(text), Hang()), chunk=5)]
    options = ChatOptions(model="scripted:test", interactive=True, summarize=False, verify=False)
    store = open_shared()
    async with serving(open_shared(), tmp_path, steps, works=False) as server:
        other_agent = Agent(store, model=ScriptedModel(steps), builtin=False, options=options, relays=True)
        async with other_agent:
            chat = await server.local.create("Speak.")
            other_agent.worker.start(chat)  # type: ignore[arg-type]
            for last_seq in (None, 3, None):
                partial_text = ""
                async for event in server.local.events(chat, after_seq=last_seq):
                    if event["type"] == "assistant.reset":
                        partial_text = ""
                    if event["type"] == "assistant.message_delta":
                        partial_text += event["data"]["text"]
                    assert text.startswith(partial_text)
                    if partial_text == text:
                        break
            assert (await server.local("POST", f"/api/chats/{chat}/interrupt")).status == 200
            events = await server.local.until(chat, "session.idle")
            assert select_recorded_events(events) == await server.local.log(chat)


async def test_simple_readers_see_what_a_stopped_call_was_about(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    steps = [[Call("write_file", path="a.txt", content="x")], Say("Done.")]
    options = ChatOptions(model="scripted:test", mode="confirm", interactive=True, summarize=False)
    async with serving(SqliteStore(tmp_path / "t.db"), tmp_path, steps, builtin=True, options=options) as server:
        chat = await server.local.create("Write.", root=str(project))
        await server.local.until(chat, "session.action_required")
        await server.local("POST", f"/api/chats/{chat}/interrupt", {})
        await server.local.until(chat, "session.idle")
        begin, end = [word for word in await words_of(server, chat) if word["type"].startswith("tool_")]
        assert (begin["name"], begin["args_summary"]) == ("write_file", "a.txt")
        assert (end["type"], end["call"], end["result_summary"]) == ("tool_done", begin["call"], "interrupted")
