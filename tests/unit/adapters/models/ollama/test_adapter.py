"""The adapter against fake and raw servers: its first question, its requests, its handling of refusals (M-04, M-07,
M-10, M-13, faults 7 and 8)."""

import asyncio
import socket
import sys
import types
from typing import Any

import pytest

from tests.unit.adapters.models.loopback import Exchange, serving
from treadle.adapters.models.capability_ladder import Ladder
from treadle.adapters.models.ollama import BASE_URL, OllamaChat, parse_base_url
from treadle.adapters.models.registry import ModelRegistry
from treadle.base.stream_server import start_stream_server
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.errors import ConfigError, ModelError
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.content import Thinking, UserEntry
from treadle.protocol.deltas import NoticeDelta, TextDelta
from treadle.protocol.tools import ToolSpec
from treadle.testing.fake_ollama import FakeOllama, Reply

KEY = "very-secret-key"
INFO = ModelInfo("ollama", "qwen3:8b")
TOOLS = (ToolSpec("read_file"),)
ASKED = ModelRequest("s", [UserEntry("hi")])
GREETING = Reply(text="hello")


async def ask(model: OllamaChat, request: ModelRequest = ASKED) -> tuple[ModelAnswer, list[NoticeDelta]]:
    assembler = Assembler(1)
    async for deltas in model.stream(request):
        assembler.feed(deltas)
    return assembler.finish(model.info.ref), assembler.notices


async def failing(model: OllamaChat, request: ModelRequest = ASKED) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(model, request)
    await model.close()
    return caught.value


async def test_one_call() -> None:
    reply = Reply(text="hello", thinking="hm", calls=[("read_file", {"path": "a"})], chunk_size=2)
    with FakeOllama([reply]) as fake:
        model = OllamaChat(INFO, base_url=fake.url + "/", headers={"X-Title": "t"})
        answer, notices = await ask(model, ModelRequest("s", [UserEntry("hi")], TOOLS))
        await model.close()
    assert (answer.text, answer.finish_reason, notices) == ("hello", "tool_calls", [])
    assert answer.thinking == (Thinking("hm", model="ollama:qwen3:8b"),)
    assert [(call.call, call.name, call.arguments) for call in answer.requests] == [
        ("1.0", "read_file", '{"path":"a"}')
    ]
    assert fake.shown_models == ["qwen3:8b"]
    assert fake.paths == ["/api/chat"]
    assert (fake.headers[0]["x-title"], "authorization" in fake.headers[0]) == ("t", False)
    assert fake.requests[0] == {
        "model": "qwen3:8b",
        "stream": True,
        "truncate": False,
        "shift": False,
        "think": True,
        "options": {"num_ctx": 32_768, "num_predict": 4096, "temperature": 0.1},
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "read_file",
                    "description": "",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}],
    }


async def test_what_a_model_can_is_asked_once_by_all_who_call_at_once() -> None:
    with FakeOllama(lambda _request: GREETING, capabilities=["completion", "vision"], window=8_192) as fake:
        model = OllamaChat(INFO, base_url=fake.url)
        assert (model.info.window, model.info.native_tools, model.served_model) == (32_768, True, None)
        await asyncio.gather(*(ask(model) for _ in range(5)))
        info = await model.prepare()
        await model.close()
    assert fake.shown_models == ["qwen3:8b"]
    assert len(fake.requests) == 5
    assert info == model.info
    assert (info.window, info.max_output, info.native_tools, info.thinking) == (8_192, 4_096, False, False)
    assert model.served_model is not None
    assert (model.served_model.has_capability("vision"), model.served_model.has_capability("tools")) == (True, False)
    assert "think" not in fake.requests[0]


@pytest.mark.parametrize(
    ("window", "parameters", "user_window", "num_ctx"),
    [
        (131_072, "", 0, 32_768),  # a window takes memory: no more than is needed
        (4_096, "", 0, 4_096),
        (131_072, "", 65_536, 65_536),  # the user chose it
        (8_192, "", 65_536, 8_192),
        (131_072, 'num_ctx                        16384\nstop                           "<|im_end|>"', 0, 16_384),
        (131_072, "num_ctx 16384", 8_000, 8_000),
        (131_072, "num_ctx lots", 0, 32_768),
        (0, "", 0, 32_768),
        (0, "", 100_000, 100_000),
    ],
)
async def test_the_window(window: int, parameters: str, user_window: int, num_ctx: int) -> None:  # M-04
    with FakeOllama([GREETING], window=window, parameters=parameters) as fake:
        model = OllamaChat(INFO, base_url=fake.url)
        await ask(model, ModelRequest("", [UserEntry("hi")], window=user_window))
        await model.close()
    assert fake.requests[0]["options"]["num_ctx"] == num_ctx  # type: ignore[index]
    if not user_window:
        assert model.info.window == num_ctx


async def test_the_request_overrules_the_modelfile_which_overrules_the_default() -> None:
    with FakeOllama(lambda _request: GREETING, parameters="temperature 0.6\ntop_k 20") as fake:
        model = OllamaChat(INFO, base_url=fake.url)
        await ask(model)
        await ask(model, ModelRequest("", [UserEntry("x")], temperature=0.7, max_tokens=9))
        await model.close()
    assert fake.requests[0]["options"] == {"num_ctx": 32_768, "num_predict": 4096}
    assert fake.requests[1]["options"] == {"num_ctx": 32_768, "num_predict": 9, "temperature": 0.7}


@pytest.mark.parametrize(
    ("capabilities", "think", "expected"),
    [
        (["completion", "thinking"], None, True),
        (["completion", "thinking"], False, False),
        (["completion", "thinking"], "high", "high"),
        (["completion"], None, None),
        (["completion"], True, None),  # it would be refused
        (None, None, None),
        (None, True, True),
    ],
)
async def test_think(capabilities: list[str] | None, think: Any, expected: Any) -> None:
    with FakeOllama([GREETING], capabilities=capabilities) as fake:
        model = OllamaChat(INFO, base_url=fake.url, think=think)
        assert (await ask(model))[0].text == "hello"
        await model.close()
    assert fake.requests[0].get("think") == expected


async def test_a_refused_think_is_dropped_for_good() -> None:
    def refuse(request: Any) -> Reply:
        bad = Reply(status=400, raw=b'{"error":"invalid think value: \\"high\\""}')
        return bad if "think" in request else GREETING

    with FakeOllama(refuse) as fake:
        model = OllamaChat(ModelInfo("ollama", "think-big"), base_url=fake.url, think="high")
        answer, notices = await ask(model)
        assert (answer.text, [notice.kind for notice in notices]) == ("hello", ["parameter_dropped"])
        assert (await ask(model))[1] == []
        await model.close()
    assert len(fake.requests) == 3


async def test_a_name_with_think_in_it_is_no_refusal_of_think() -> None:
    with FakeOllama(lambda _request: Reply(status=400, raw=b'{"error":"\\"think-big\\" is odd"}')) as fake:
        error = await failing(OllamaChat(ModelInfo("ollama", "think-big"), base_url=fake.url))
    assert (error.kind, len(fake.requests)) == ("bad_request", 1)


async def test_no_tools() -> None:  # M-07: the ladder goes one rung down
    request = ModelRequest("", [UserEntry("x")], TOOLS)
    with FakeOllama(lambda _request: GREETING, capabilities=["completion"]) as fake:
        error = await failing(OllamaChat(INFO, base_url=fake.url), request)
        assert (error.kind, error.status, str(error)) == ("bad_request", 400, "ollama:qwen3:8b does not support tools")
        assert fake.requests == []
        model = OllamaChat(INFO, base_url=fake.url)
        for rung in ("plain", "text"):
            assert (await ask(model, ModelRequest("", [UserEntry("x")], TOOLS, rung=rung)))[0].text == "hello"  # type: ignore[arg-type]
        forced = await failing(model, ModelRequest("", [UserEntry("x")], TOOLS, rung="native"))
    assert ["tools" in request_body for request_body in fake.requests] == [False, False]
    assert "does not support tools" in str(forced)


async def test_a_server_too_old_to_tell_is_trusted() -> None:
    with FakeOllama([GREETING], capabilities=None) as fake:
        model = OllamaChat(INFO, base_url=fake.url)
        assert (await ask(model, ModelRequest("", [UserEntry("x")], TOOLS)))[0].text == "hello"
        await model.close()
    assert model.info.native_tools
    assert "tools" in fake.requests[0]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"no json", b"{" * 100_000, b'{"capabilities":3,"model_info":7,"parameters":1}']
)
async def test_a_server_that_tells_nonsense_or_nothing_of_its_models(body: bytes) -> None:
    async def handler(exchange: Exchange) -> None:
        if exchange.path.endswith("/api/show"):
            await exchange.reply(200 if body else 404, body or b"404 page not found")
        else:
            await exchange.stream(b'{"message":{"content":"hello"},"done":true}\n')

    async with serving(handler) as server:
        model = OllamaChat(INFO, base_url=server.url)
        assert (await ask(model))[0].text == "hello"
        await model.close()
    assert [exchange.path for exchange in server.seen] == ["/v1/api/show", "/v1/api/chat"]
    assert server.seen[0].connection == server.seen[1].connection


async def test_a_server_that_is_busy_is_asked_again_next_time() -> None:
    busy = iter([True, False])

    async def handler(exchange: Exchange) -> None:
        if not exchange.path.endswith("/api/show"):
            await exchange.stream(b'{"message":{"content":"hello"},"done":true}\n')
        elif next(busy):
            await exchange.reply(503, b'{"error":"server busy"}')
        else:
            await exchange.reply(200, b'{"capabilities":["tools"],"model_info":{"x.context_length":2048}}')

    async with serving(handler) as server:
        model = OllamaChat(INFO, base_url=server.url)
        windows = [(await ask(model))[0].text + str(model.info.window) for _ in range(3)]
        await model.close()
    assert windows == ["hello32768", "hello2048", "hello2048"]
    assert len(server.seen) == 5


async def test_a_model_that_is_not_there() -> None:
    with FakeOllama([GREETING], models=["llama3"]) as fake:
        error = await failing(OllamaChat(INFO, base_url=fake.url))
    assert error.kind == "bad_request"
    assert "model 'qwen3:8b' not found; get it with: ollama pull qwen3:8b" in str(error)
    assert fake.requests == []


async def test_no_server_and_then_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server_socket:
        port = server_socket.getsockname()[1]
    model = OllamaChat(INFO, base_url=f"http://127.0.0.1:{port}")
    with pytest.raises(ModelError, match=r"cannot be reached.*ollama serve, or set OLLAMA_HOST") as caught:
        await ask(model)
    assert caught.value.kind == "network"
    listener = await start_stream_server(_answer, "127.0.0.1", port)
    async with listener:
        assert (await ask(model))[0].text == "hello"  # nothing false was remembered
    await model.close()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    body = (
        b'{"capabilities":["completion"]}' if b"/api/show" in head else b'{"message":{"content":"hello"},"done":true}'
    )
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    writer.close()


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (400, b'{"error":"the input length exceeds the context length"}', "context_limit", "shorten"),
        (401, b'{"error":"unauthorized","signin_url":"https://x"}', "auth", "ollama signin"),
        (404, b'{"error":"model \\"x\\" not found, try pulling it first"}', "bad_request", "ollama pull"),
        (429, b'{"error":"too many"}', "rate_limit", "too many"),
        (
            500,
            b'{"error":"model requires more system memory (9 GiB) than is available"}',
            "bad_request",
            "CONTEXT_WINDOW",
        ),
        (500, b'{"error":"llama runner process has terminated"}', "overloaded", "terminated"),
        (503, b'{"error":"server busy, please try again"}', "overloaded", "busy"),
    ],
)
async def test_refusals(status: int, body: bytes, kind: str, words: str) -> None:  # fault 8
    with FakeOllama([Reply(status=status, raw=body)]) as fake:
        error = await failing(OllamaChat(INFO, base_url=fake.url))
    assert (error.kind, error.status) == (kind, status)
    assert words in str(error)


async def test_an_error_in_the_stream_comes_after_what_was_said() -> None:  # fault 8
    raw = b'{"message":{"content":"so"},"done":false}\n{"error":"the model failed to generate a response"}\n'
    with FakeOllama([Reply(raw=raw)]) as fake:
        model = OllamaChat(INFO, base_url=fake.url)
        stream = model.stream(ASKED)
        assert await anext(stream) == [TextDelta("so")]
        with pytest.raises(ModelError, match="failed to generate") as caught:
            await anext(stream)
        await model.close()
    assert caught.value.kind == "overloaded"


@pytest.mark.parametrize("byte_count", [0, 1, 60, 150, 250])
async def test_a_connection_that_is_cut(byte_count: int) -> None:  # fault 7
    with FakeOllama([Reply(text="hello", thinking="hm", cut_after=byte_count)]) as fake:
        error = await failing(OllamaChat(INFO, base_url=fake.url))
    assert error.kind == "cut_stream"


@pytest.mark.parametrize("size", [1, 7])
async def test_small_pieces_on_the_network(size: int) -> None:  # fault 7
    with FakeOllama([Reply(text="Grüße 🧵", calls=[("read_file", {"path": "ä"})], split=size)]) as fake:
        model = OllamaChat(INFO, base_url=fake.url)
        answer, _ = await ask(model)
        await model.close()
    assert (answer.text, answer.requests[0].arguments) == ("Grüße 🧵", '{"path":"ä"}')


async def test_closing_the_stream_drops_the_connection() -> None:  # L-07
    hangup_event = asyncio.Event()

    async def handler(exchange: Exchange) -> None:
        if exchange.path.endswith("/api/show"):
            await exchange.reply(200, b"{}")
            return
        await exchange.stream(b'{"message":{"content":"a"}}\n', end=False)
        await exchange.hung_up()
        hangup_event.set()

    async with serving(handler) as server:
        model = OllamaChat(INFO, base_url=server.url)
        stream = model.stream(ASKED)
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        async with asyncio.timeout(60):
            await hangup_event.wait()
        await model.close()


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("example.org", "http://example.org:11434"),
        ("example.org:8080", "http://example.org:8080"),
        (":8080", "http://127.0.0.1:8080"),
        (" 10.0.0.7 ", "http://10.0.0.7:11434"),
        ("http://example.org", "http://example.org:80"),
        ("https://example.org", "https://example.org:443"),
        ("https://example.org:8443/ollama/", "https://example.org:8443/ollama"),
        ("example.org/a/b", "http://example.org:11434/a/b"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("http://0.0.0.0:9", "http://127.0.0.1:9"),
        ("[::1]:9", "http://[::1]:9"),
        ("::1", "http://[::1]:11434"),
        ("[::]", "http://[::1]:11434"),
        ("ollama.com", "https://ollama.com:443"),
    ],
)
def test_hosts(host: str, url: str) -> None:
    assert parse_base_url(host) == url


@pytest.mark.parametrize("host", ["ftp://x", "x:port", "x:99999", "a b", "user@host", "http://[::1"])
def test_what_is_no_host(host: str) -> None:
    with pytest.raises(ConfigError, match="OLLAMA_HOST is "):
        parse_base_url(host)


def make_plain_model(**env: str) -> OllamaChat:
    """The model itself, without the ladder that it stands on."""
    ladder = ModelRegistry(env).get("ollama:qwen3:8b")
    assert isinstance(ladder, Ladder)
    assert isinstance(ladder.inner, OllamaChat)
    return ladder.inner


async def test_the_ladder_learns_what_the_server_tells() -> None:  # M-07
    request = ModelRequest("", [UserEntry("x")], TOOLS)
    with FakeOllama(lambda _request: GREETING, capabilities=["completion"]) as fake:
        ladder = Ladder(OllamaChat(INFO, base_url=fake.url))
        for _ in range(2):
            deltas_heard = [delta async for deltas in ladder.stream(request) for delta in deltas]
            assert TextDelta("hello") in deltas_heard
        await ladder.close()
    assert ["tools" in request_body for request_body in fake.requests] == [False, False]
    assert "<tools>" in fake.requests[0]["messages"][0]["content"]  # type: ignore[index]


async def test_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:  # M-13
    store = types.ModuleType("keyring")
    store.get_password = lambda _service, _name: KEY  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", store)
    with FakeOllama(lambda _request: GREETING) as fake:
        host = fake.url.removeprefix("http://")
        model = make_plain_model(OLLAMA_HOST=host, OLLAMA_API_KEY=KEY, TREADLE_OLLAMA_THINK="off")
        assert model.info.name == "qwen3:8b"
        await ask(model)
        await model._http.close()
        assert fake.headers[0]["authorization"] == f"Bearer {KEY}"
        assert fake.requests[0]["think"] is False
        assert KEY not in f"{model!r} {model.info!r} {vars(model)}"
        model = make_plain_model(OLLAMA_HOST=host)
        await ask(model)
        await model._http.close()
        assert "authorization" not in fake.headers[1]  # the key store is not asked for another host
    assert make_plain_model()._access.base_url == BASE_URL
    assert make_plain_model(OLLAMA_HOST="ollama.com")._access.key.reveal() == KEY
    with pytest.raises(ConfigError, match="TREADLE_OLLAMA_THINK is 'maybe'; it must be one of on, off, low"):
        make_plain_model(TREADLE_OLLAMA_THINK="maybe")


async def test_a_key_that_the_server_echoes_is_not_shown() -> None:  # M-13
    with FakeOllama([Reply(status=401, raw=b'{"error":"bad key %b"}' % KEY.encode())]) as fake:
        error = await failing(OllamaChat(INFO, base_url=fake.url, api_key=KEY))
    assert KEY not in str(error)
    assert "bad key ***" in str(error)
