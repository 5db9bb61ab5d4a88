"""Access (S-13, fault 29) and the form of requests: tokens, tickets, hosts, origins, sizes, kinds."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.scenario.http_kit import WAIT_S, Client, Server, serving
from treadle.adapters.models.scripted import Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.frontends.server import connections
from treadle.frontends.server.admission import Admission
from treadle.frontends.server.guard import OPEN
from treadle.frontends.server.replies import list_codes
from treadle.frontends.server.running import ROUTES
from treadle.frontends.server.service import Limits

pytestmark = pytest.mark.thorough(one_of=8)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    limits = Limits(body_s=3)
    store = SqliteStore(tmp_path / "treadle.db")
    async with serving(store, tmp_path, [Say("Hi.")], limits=limits, hosts=("treadle.example",)) as new_server:
        yield new_server


async def test_no_route_without_a_token(server: Server) -> None:  # S-13
    wrong: list[dict[str, str]] = [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic eDp5"}]
    for route in ROUTES:
        for headers in () if route.open else wrong:
            refused = await server.anonymous_client(route.method, route.path, headers=headers)
            assert (refused.status, refused.code) == (401, "unauthorized"), route.path
            assert refused.headers["www-authenticate"] == "Bearer"


async def test_what_is_open_is_nobodys(server: Server) -> None:
    assert {route.path for route in ROUTES if route.open} | {"/favicon.ico"} == OPEN | {
        "/web/{name}",
        "/web/{version}/{name}",
    }
    for path in OPEN - {"/favicon.ico", "/api/sign-in"}:
        assert (await server.anonymous_client("GET", path)).status == 200
    unknown = await server.local("GET", "/api/nothing")
    assert (unknown.status, unknown.code) == (404, "not_found")
    assert (await server.anonymous_client("GET", "/api/nothing")).status == 401
    wrong = await server.local("DELETE", "/api/chats")
    assert (wrong.status, wrong.code) == (405, "method_not_allowed")


async def test_a_revoked_token_is_out_at_once(server: Server) -> None:
    token, secret = server.tokens.add("eve")
    eve = Client(server.session, server.address, secret)
    ticket = (await eve("POST", "/api/tickets")).json["ticket"]
    chat = await eve.create()
    path = f"/api/chats/{chat}/events?follow=false&ticket={ticket}"
    server.tokens.revoke(token.id)
    assert (await eve("GET", "/api/me")).status == 401
    assert (await server.anonymous_client("GET", path)).status == 401


async def test_a_ticket_opens_streams_and_nothing_else(server: Server) -> None:
    chat = await server.local.create("Hello.")
    await server.local.until(chat, "session.idle")
    ticket = (await server.local("POST", "/api/tickets")).json["ticket"]
    for path in (f"/api/chats/{chat}", f"/api/chats/{chat}/log", "/api/me"):
        assert (await server.anonymous_client("GET", f"{path}?ticket={ticket}")).status == 401
    address = f"{server.address}/api/chats/{chat}/events?follow=false&ticket={ticket}"
    async with server.session.ws_connect(address) as talk:
        assert [message.type async for message in talk]
    ticket = (await server.local("POST", "/api/tickets")).json["ticket"]
    late = ticket.replace(ticket.split(".")[1], "1")
    for bogus in ("", "x", "a.b.c", late, ticket[:-1] + ("0" if ticket[-1] != "0" else "1")):
        assert (await server.anonymous_client("GET", f"/api/watch?follow=false&ticket={bogus}")).status == 401


async def test_a_ticket_is_good_once(tmp_path: Path, server: Server) -> None:  # S-13
    chat = await server.local.create("Hello.")
    await server.local.until(chat, "session.idle")
    ticket = (await server.local("POST", "/api/tickets")).json["ticket"]
    path = f"/api/chats/{chat}/events?follow=false&ticket={ticket}"
    answers = await asyncio.gather(*(server.anonymous_client("GET", path) for _ in range(20)))
    assert sorted(answer.status for answer in answers) == [200] + [401] * 19
    assert (await server.anonymous_client("GET", f"/api/watch?follow=false&ticket={ticket}")).status == 401
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await server.session.ws_connect(server.address + path)
    ticket = (await server.local("POST", "/api/tickets")).json["ticket"]
    path = f"/api/chats/{chat}/events?follow=false&ticket={ticket}"
    async with serving(
        SqliteStore(tmp_path / "treadle.db"), tmp_path, []
    ) as second_server:  # any server takes it, and all know
        assert (await second_server.anonymous_client("GET", path)).status == 200
    assert (await server.anonymous_client("GET", path)).status == 401


async def test_numbers_of_the_whole_server_are_for_its_operators(tmp_path: Path, server: Server) -> None:  # S-13
    assert (await server.local("GET", "/metrics")).status == 200
    prometheus = server.user("prometheus")
    refused = await prometheus("GET", "/metrics")
    assert (refused.status, refused.code) == (403, "operators_only")
    server.service.admission = Admission(operators=("prometheus",))
    assert b"treadle_chats" in (await prometheus("GET", "/metrics")).data
    assert (await server.user("alice")("GET", "/metrics")).status == 403


HOSTS = {
    "evil.example": 403,
    "treadle.example.evil.example": 403,
    "": 403,
    "[": 403,
    "localhost:1": 200,
    "127.0.0.1": 200,
    "[::1]:80": 200,
    "treadle.example": 200,
    "TREADLE.example:8443": 200,
}


async def test_only_names_of_its_own(server: Server) -> None:  # DNS rebinding
    for host, status in HOSTS.items():
        response = await server.local("GET", "/api/me", headers={"host": host})
        assert response.status == status, host
        if status == 403:
            assert response.code == "forbidden_host"


async def test_no_pages_of_others(server: Server) -> None:  # fault 29
    for origin in ("null", "http://evil.example", "https://127.0.0.1", "file://", "http://127.0.0.1:1"):
        response = await server.local("POST", "/api/chats", {"content": "hi"}, headers={"origin": origin})
        assert (response.status, response.code) == (403, "forbidden_origin"), origin
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await server.session.ws_connect(f"{server.address}/api/watch", headers=server.local.headers, origin=origin)
        assert refused.value.status == 403


async def test_its_own_pages(server: Server) -> None:
    headers = {"origin": server.address, "sec-fetch-site": "same-origin"}
    assert (await server.local("POST", "/api/chats", {"content": "hi"}, headers=headers)).status == 201
    assert (await server.local("GET", "/api/me", headers={"sec-fetch-site": "same-site"})).status == 403


async def test_users_see_only_their_own(server: Server) -> None:  # S-13
    alice, bob = server.user("alice"), server.user("bob")
    chat = await alice.create("Hello.")
    await alice.until(chat, "session.idle")
    for route in ROUTES:
        if "{chat}" not in route.path:
            continue
        body = None if route.method == "GET" or route.body is None else _body(route.body.__name__)
        query = "?path=x" if route.path.endswith("content") else ""
        answers = []
        for name in (chat, "c_zzzzzzzzzzzzzzzz"):
            path = route.path.format(chat=name, seq=2, queued="q", action="a", job="1.0", place=0) + query
            answer = await bob(route.method, path, body)
            answers.append((answer.status, answer.data.replace(name.encode(), b"X")))
        assert answers[0] == answers[1], route.path
        assert answers[0][0] == 404, route.path
    assert [each["id"] for each in (await alice("GET", "/api/chats")).json["chats"]] == [chat]
    assert (await server.local("GET", f"/api/chats/{chat}")).status == 404
    chats = (await alice("GET", "/api/search?text=HELLO")).json["chats"]
    assert [(each["id"], each["found"]) for each in chats] == [(chat, "")]  # it is in the title
    assert (await bob("GET", "/api/search?text=hello")).json["chats"] == []
    assert (await bob("GET", "/api/search?text=")).status == 400


def _body(kind: str) -> object:
    return {
        "SendMessage": {"content": "x"},
        "EditMessage": {"content": "x"},
        "ReplaceMessage": {"content": "x"},
        "GoBack": {"message": 2},
        "ForkChat": {"seq": 1},
        "ToolResults": {"results": [{"tool_call_id": "1.0"}]},
        "Decision": {"decision": "allow", "hash": "x"},
        "AnswerBody": {"answer": "x"},
        "ApplyText": {"path": "a", "content": "x"},
    }.get(kind, {})


async def test_the_local_user_has_the_chats_of_the_command_line(server: Server) -> None:
    chat = await server.agent.chat(model="scripted:test").open()
    assert (await server.local("GET", f"/api/chats/{chat.id}")).status == 200
    assert (await server.user("bob")("GET", f"/api/chats/{chat.id}")).status == 404


# -- what a request may be ----------------------------------------------------------------------------------------


async def test_kinds_and_sizes(server: Server) -> None:
    plain = await server.local("POST", "/api/chats", data=b'{"content": "x"}', headers={"content-type": "text/plain"})
    assert (plain.status, plain.code) == (415, "unsupported_media_type")
    form = await server.local("POST", "/api/chats", data={"content": "x"})
    assert (form.status, form.code) == (415, "unsupported_media_type")

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b" " * 10_000

    kind = {"content-type": "application/json"}
    large = await server.local("POST", "/api/chats", data=endless(), headers=kind)
    assert (large.status, large.code) == (413, "too_large")
    large = await server.local("POST", "/api/chats", data=b" " * 300_000, headers=kind)
    assert (large.status, large.code) == (413, "too_large")
    for bad in (b"", b"\xff\xfe", b'"text"', b"null", b'{"content": "\\ud800"}', b"{" * 5_000, b'{"content": 1e999}'):
        refused = await server.local("POST", "/api/chats", data=bad, headers=kind)
        assert (refused.status, refused.code) == (400, "invalid_json"), bad
    assert (await server.local("GET", "/api/chats")).json["chats"] == []


async def test_a_body_that_does_not_come(server: Server) -> None:
    never = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await never.wait()

    kind = {"content-type": "application/json"}
    response = await server.local("POST", "/api/chats", data=slow(), headers=kind)
    assert (response.status, response.code) == (408, "request_timeout")


async def test_keys_that_cannot_be_used(server: Server) -> None:
    for key in ("", "x" * 256, "\u00e9"):
        response = await server.local("POST", "/api/chats", {}, headers={"idempotency-key": key})
        assert (response.status, response.code) == (400, "bad_request")


async def test_headers_that_keep_browsers_quiet(server: Server) -> None:  # S-12
    for path in ("/api/me", "/healthz", "/api/nothing"):
        headers = (await server.local("GET", path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


async def test_readiness_and_numbers(server: Server) -> None:
    chat = await server.local.create("Hello.")
    await server.local.until(chat, "session.idle")
    assert (await server.anonymous_client("GET", "/readyz")).json == {"status": "ok"}
    expected_lines = {
        'treadle_chats{status="idle"} 1',
        "treadle_leases_held 0",
        'treadle_http_requests_total{method="POST",route="/api/chats",status="201"} 1',
        'treadle_http_request_duration_seconds_count{route="/readyz"} 1',
        "treadle_open_streams 0",
    }
    text = ""
    async with asyncio.timeout(WAIT_S):  # the stream and the worker have still to notice that it is over
        while not expected_lines <= set(text.splitlines()):
            text = (await server.local("GET", "/metrics")).data.decode()
    appended = next(line for line in text.splitlines() if line.startswith("treadle_events_appended_total"))
    assert int(appended.split()[1]) == len(await server.local.log(chat))
    await server.agent.deps.store.close()
    ready = await server.anonymous_client("GET", "/readyz")
    assert (ready.status, ready.json) == (503, {"status": "unavailable"})
    broken = await server.local("GET", f"/api/chats/{chat}/log")
    assert (broken.status, broken.code) == (503, "store")


def test_every_code_of_the_routes_is_known() -> None:
    known_codes = list_codes()
    assert {code for route in ROUTES for code in route.codes} <= set(known_codes)


WHOLE = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


UNREAD = b"Host: 127.0.0.1\r\nContent-Length: 100000\r\n\r\n"  # a body that no handler reads


@pytest.mark.parametrize(
    "prefix",
    [
        b"",
        b"GET /healthz HTT",
        WHOLE + b"GET / HTTP/1.1\r\nHost: ",
        b"GET /healthz HTTP/1.1\r\n" + UNREAD,
        b"POST /api/chats HTTP/1.1\r\n" + UNREAD,
    ],
)
async def test_a_connection_that_sends_no_headers_is_closed(
    server: Server, prefix: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-20: one byte now and then keeps no connection open."""
    monkeypatch.setattr(connections, "HEADERS_S", 0.5)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.address.rpartition(":")[2]))
    writer.write(prefix)

    async def drip() -> None:
        while True:
            await asyncio.sleep(0.1)
            writer.write(b"x")

    dripping = asyncio.create_task(drip()) if prefix else None
    try:
        async with asyncio.timeout(WAIT_S):
            with contextlib.suppress(ConnectionError):
                while await reader.read(1 << 16):
                    pass
    finally:
        if dripping is not None:
            dripping.cancel()
        writer.close()


async def test_a_slow_answer_and_a_quiet_connection_are_no_missing_headers(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEADERS_S", 1.0)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.address.rpartition(":")[2]))
    for _ in range(2):
        writer.write(WHOLE)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)
        assert head.startswith(b"HTTP/1.1 200")
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        await reader.readexactly(length)
        await asyncio.sleep(1.2)  # longer than headers may take, shorter than a connection may rest
    writer.close()
