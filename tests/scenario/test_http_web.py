"""The parts of the web app, over HTTP: the page, HTML of texts, signing in, copies of chats, usage by day."""

import re
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.types import Message

from tests.scenario.http_kit import Server, serving
from treadle import ScriptedModel
from treadle.adapters.models.scripted import ReportUsage, Say
from treadle.adapters.stores.memory import MemoryStore
from treadle.frontends.server.connections import CompressedAnswer
from treadle.frontends.server.routes.web import FOLDER, POLICY, load_web_page
from treadle.frontends.server.service import SignIn
from treadle.protocol.content import Usage

pytestmark = pytest.mark.thorough(one_of=8)

MOST_LINES = 3_500
MOST_BYTES = 60_000
"""Of all that a cold page asks for, compressed; its headers and first answers take about 8,000 more."""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    steps = [[Say("Hello."), ReportUsage(Usage(input=100, output=10, cached=40, usd=0.5))]] * 3
    async with serving(MemoryStore(), tmp_path, ScriptedModel(steps, follow="calls")) as served:
        yield served


async def test_the_page_and_its_parts(server: Server) -> None:  # U-05, S-12, S-13
    page = await server.anonymous_client("GET", "/")
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert "require-trusted-types-for 'script'" in POLICY
    site = load_web_page()
    links = re.findall(r'(?:src|href)="/web/(\w+)/([\w.-]+)"', page.data.decode())
    assert {version for version, _ in links} == {site.version}
    assert {"main.js", "base.css", "chat-fold.js", "family.js"} <= {name for _, name in links} <= set(site.parts)
    for name, part in site.parts.items():
        reply = await server.anonymous_client("GET", f"/web/{name}")
        assert (reply.status, reply.data) == (200, part.body)
        assert reply.headers["content-security-policy"].startswith("default-src 'none'; ")
        again = await server.anonymous_client("GET", f"/web/{name}", headers={"if-none-match": reply.headers["etag"]})
        assert (again.status, again.headers["cache-control"]) == (304, "no-cache")
        versioned = await server.anonymous_client("GET", f"/web/{site.version}/{name}")
        assert (versioned.data, "immutable" in versioned.headers["cache-control"]) == (part.body, True)
    old = await server.anonymous_client("GET", "/web/0123456789abcdef/main.js")
    assert (old.status, old.headers["cache-control"]) == (200, "no-cache")
    for name in ("nothing.js", "..%2fapp.py", "%2e%2e%2fconfig.py"):
        assert (await server.anonymous_client("GET", f"/web/{name}")).status == 404


def test_the_page_is_small_and_its_own() -> None:  # S-12
    """Its modules are few and short, each is there, and nothing is loaded from anywhere."""
    texts = {path.name: path.read_text() for path in FOLDER.iterdir()}
    site = load_web_page()
    names = re.findall(r'"/web/\w+/([\w.-]+)"', site.parts["index.html"].body.decode())
    assert sum(len(site.parts[name].packed or site.parts[name].body) for name in {"index.html", *names}) < MOST_BYTES
    assert sum(text.count("\n") for name, text in texts.items() if name.endswith(".js")) < MOST_LINES
    for name, text in texts.items():
        assert not re.search(r"""(?:src|href|url|import|fetch)\W{1,3}https?:""", text), name
        assert not re.search(r"<style|style=|onclick=|javascript:|eval\(|new Function", text), name
        if name != "rendered.js":
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createPolicy", text), name
        for module in re.findall(r"""from "\./([\w.-]+)"|import "\./([\w.-]+)\"""", text):
            assert "".join(module) in texts, (name, module)


async def test_answers_and_streams_are_compressed(server: Server) -> None:  # U-05
    """For readers that accept it. A stream is flushed with every event: nothing waits for the next one."""
    packed = {"accept-encoding": "gzip"}
    page = await server.anonymous_client("GET", "/", headers=packed)
    assert (page.headers["content-encoding"], page.headers["vary"]) == ("gzip", "Accept-Encoding")
    assert page.data == load_web_page().parts["index.html"].body
    document = await server.local("GET", "/api/openapi.json", headers=packed)
    assert document.headers["content-encoding"] == "gzip"
    assert document.json["openapi"]
    assert int(document.headers["content-length"]) < len(document.data) / 3
    for refusing in ("", "br", "gzip;q=0"):
        plain = await server.local("GET", "/api/openapi.json", headers={"accept-encoding": refusing})
        assert "content-encoding" not in plain.headers
    ticket = await server.local("POST", "/api/tickets", {}, headers=packed)
    assert "content-encoding" not in ticket.headers  # short, and a secret is in it
    chat = await server.local.create("Hi.")
    await server.local.until(chat, "session.idle")
    finite_stream = await server.local("GET", f"/api/chats/{chat}/events?follow=false", headers=packed)
    assert finite_stream.headers["content-encoding"] == "gzip"
    assert b"session.idle" in finite_stream.data
    messages: list[Message] = []

    async def keep(message: Message) -> None:
        messages.append(message)

    answer = CompressedAnswer(keep)
    await answer({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    reader = zlib.decompressobj(16 + zlib.MAX_WBITS)
    for word in (b"data: one\n\n", b"data: two\n\n"):
        await answer({"type": "http.response.body", "body": word, "more_body": True})
        assert reader.decompress(messages[-1]["body"]) == word


async def test_html_of_texts(server: Server) -> None:  # S-12
    passages = [
        {"kind": "markdown", "text": "**b** <script>x</script>"},
        {"kind": "code", "text": "return 1", "language": "a.py"},
        {"kind": "diff", "text": "@@ -1 +1 @@\n-a\n+b", "split": True},
    ]
    reply = await server.local("POST", "/api/render", {"passages": passages})
    assert reply.status == 200
    first, second, third = reply.json["html"]
    assert "<strong>b</strong> &lt;script&gt;" in first
    assert 'class="k"' in second
    assert 'class="diff split"' in third
    assert (await server.anonymous_client("POST", "/api/render", {"passages": passages})).status == 401
    wrong = await server.local("POST", "/api/render", {"passages": [{"kind": "html", "text": "x"}]})
    assert (wrong.status, wrong.code) == (400, "invalid_json")


async def test_signing_in_with_a_code(server: Server) -> None:  # S-13
    codes: list[str] = []
    server.service.sign_in = SignIn(server.tokens, codes.append)
    reply = await server.anonymous_client("POST", "/api/sign-in", {"code": server.service.sign_in.code})
    assert (reply.status, reply.json["user"]) == (201, "local")
    assert codes
    me = await server.anonymous_client("GET", "/api/me", headers={"authorization": f"Bearer {reply.json['token']}"})
    assert me.json["user"] == "local"
    wrong = await server.anonymous_client("POST", "/api/sign-in", {"code": "AAAA-AAAA"})
    assert (wrong.status, wrong.code) == (401, "unauthorized")
    soon = await server.anonymous_client("POST", "/api/sign-in", {"code": codes[0]})
    assert (soon.status, soon.code, soon.headers["retry-after"]) == (429, "too_many_tries", "1")
    foreign = await server.anonymous_client(
        "POST", "/api/sign-in", {"code": codes[0]}, headers={"origin": "https://evil.example"}
    )
    assert foreign.code == "forbidden_origin"


async def test_a_copy_from_an_event(server: Server) -> None:  # D-07
    chat = await server.local.create("Hi.")
    await server.local.until(chat, "session.idle")
    log = await server.local.log(chat)
    answer_seq = next(event["seq"] for event in log if event["type"] == "assistant.message")
    key = {"idempotency-key": "fork 1"}
    fork = await server.local("POST", f"/api/chats/{chat}/fork", {"seq": answer_seq}, headers=key)
    assert (fork.status, fork.json["status"]) == (201, "idle")
    again = await server.local("POST", f"/api/chats/{chat}/fork", {"seq": answer_seq}, headers=key)
    assert again.json["id"] == fork.json["id"] != chat
    copied = await server.local.log(fork.json["id"])
    assert copied[0]["data"]["forked_from"] == f"{chat}@{answer_seq}"
    assert (await server.local("POST", f"/api/chats/{chat}/fork", {"seq": 10_000})).code == "invalid_input"


async def test_usage_by_day(server: Server) -> None:  # E-04
    assert (await server.local("GET", "/api/usage/days")).json == {"rows": []}
    alice = server.user("alice")
    for _ in range(2):
        chat = await alice.create("Hi.")
        await alice.until(chat, "session.idle")
    (row,) = (await alice("GET", "/api/usage/days?days=1")).json["rows"]
    assert (row["model"], row["calls"], row["usage"]["input"], row["usage"]["cached"]) == (
        "scripted:script",
        2,
        200,
        80,
    )
    assert row["usage"]["usd"] == 1.0
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", row["day"])
    last_seq = (await alice.log(chat))[-1]["seq"]
    await alice("POST", f"/api/chats/{chat}/messages", {"content": "More."})
    await alice.until(chat, "session.idle", after_seq=last_seq)
    (row,) = (await alice("GET", "/api/usage/days?days=1")).json["rows"]
    assert (row["calls"], row["usage"]["input"]) == (3, 300)
    assert (await server.local("GET", "/api/usage/days")).json == {"rows": []}  # S-13
