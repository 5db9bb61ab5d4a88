"""The fake provider, seen through aiohttp: its answers, their pieces, and its failures on purpose."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.scenario.http_kit import eventually
from treadle.errors import ScriptError
from treadle.testing.fake_openai import FakeOpenAI, Reply

USER = {"role": "user", "content": "Hi"}
ASSISTANT = {"role": "assistant", "content": "Hello"}


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def body(*messages: Mapping[str, Any], stream: bool = True, **more: Any) -> dict[str, Any]:
    return {"model": "fake", "stream": stream, "messages": list(messages or [USER]), **more}


async def post(http: aiohttp.ClientSession, url: str, request: dict[str, Any]) -> tuple[int, bytes]:
    async with http.post(f"{url}/chat/completions", json=request) as response:
        return response.status, await response.read()


def events(raw: bytes) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in raw.decode().split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def deltas(raw: bytes) -> list[dict[str, Any]]:
    return [event["choices"][0]["delta"] for event in events(raw) if event["choices"]]


async def test_streams_text_and_thinking_in_chunks_of_the_asked_size(http: aiohttp.ClientSession) -> None:
    with FakeOpenAI([Reply(text="grüß dich", thinking="hm", chunk_size=4)]) as fake:
        status, raw = await post(http, fake.base_url, body())
    assert status == 200
    parts = deltas(raw)
    assert [part["content"] for part in parts if part.get("content")] == ["grüß", " dic", "h"]
    assert [part["reasoning_content"] for part in parts if "reasoning_content" in part] == ["hm"]
    assert events(raw)[-1]["choices"][0]["finish_reason"] == "stop"


async def test_streams_calls_as_a_name_and_then_pieces_of_arguments(http: aiohttp.ClientSession) -> None:
    reply = Reply(calls=[("read_file", {"path": "a.py"}), ("broken", '{"path": ')], chunk_size=5)
    with FakeOpenAI([reply]) as fake:
        _, raw = await post(http, fake.base_url, body())
    calls: dict[int, dict[str, str]] = {}
    for part in deltas(raw):
        for piece in part.get("tool_calls", []):
            call = calls.setdefault(piece["index"], {"id": "", "name": "", "arguments": ""})
            call["id"] += piece.get("id", "")
            call["name"] += piece["function"].get("name", "")
            call["arguments"] += piece["function"]["arguments"]
    assert calls[0] == {"id": "call_0_0", "name": "read_file", "arguments": '{"path":"a.py"}'}
    assert calls[1] == {"id": "call_0_1", "name": "broken", "arguments": '{"path": '}
    assert events(raw)[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_usage_comes_only_when_asked_for(http: aiohttp.ClientSession) -> None:
    with FakeOpenAI([Reply(text="x", usage=(7, 3))]) as fake:
        _, without = await post(http, fake.base_url, body())
        _, with_usage = await post(http, fake.base_url, body(stream_options={"include_usage": True}))
    assert not any("usage" in event for event in events(without))
    last = events(with_usage)[-1]
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


async def test_answers_whole_when_not_streamed(http: aiohttp.ClientSession) -> None:
    with FakeOpenAI([Reply(text="Hello", calls=[("noop", {})], ids=["same"])]) as fake:
        _, raw = await post(http, fake.base_url.removesuffix("/v1"), body(stream=False))
    answer = json.loads(raw)
    assert answer["object"] == "chat.completion"
    message = answer["choices"][0]["message"]
    assert message["content"] == "Hello"
    assert message["tool_calls"][0] == {
        "id": "same",
        "type": "function",
        "function": {"name": "noop", "arguments": "{}"},
    }


async def test_chooses_by_assistant_messages_so_that_a_resumed_client_is_served(http: aiohttp.ClientSession) -> None:
    with FakeOpenAI([Reply(text="first"), Reply(text="second")]) as fake:
        for _ in range(2):
            _, raw = await post(http, fake.base_url, body(USER, ASSISTANT, USER))
            assert deltas(raw)[1]["content"] == "second"
        status, raw = await post(http, fake.base_url, body(USER, ASSISTANT, USER, ASSISTANT, USER))
        assert status == 400
        assert b"2 replies; this asks for number 3" in raw
        assert [len(request["messages"]) for request in fake.requests] == [3, 3, 5]


async def test_in_order_serves_a_failure_and_then_the_retry(http: aiohttp.ClientSession) -> None:
    limited = Reply(status=429, headers={"Retry-After": "2"}, error={"message": "slow down", "code": "rate_limit"})
    with FakeOpenAI([limited, Reply(text="ok")], in_order=True) as fake:
        async with http.post(f"{fake.base_url}/chat/completions", json=body()) as response:
            assert response.status == 429
            assert response.headers["Retry-After"] == "2"
            assert (await response.json())["error"]["message"] == "slow down"
        status, _ = await post(http, fake.base_url, body())
        assert status == 200


async def test_a_callable_sees_the_request_and_its_failure_is_shown(http: aiohttp.ClientSession) -> None:
    def script(request: Mapping[str, Any]) -> Reply:
        return Reply(text=request["messages"][0]["content"].upper())

    with FakeOpenAI(script) as fake:
        _, raw = await post(http, fake.base_url, body())
        assert deltas(raw)[1]["content"] == "HI"
        status, raw = await post(http, fake.base_url, {"messages": []})
        assert (status, b"the script failed: IndexError" in raw) == (400, True)


async def test_headers_are_remembered_and_the_connection_is_kept(http: aiohttp.ClientSession) -> None:
    with FakeOpenAI(lambda _request: Reply(text="x")) as fake:
        for _ in range(3):
            async with http.post(
                f"{fake.base_url}/chat/completions", json=body(), headers={"Authorization": "Bearer k"}
            ) as response:
                await response.read()
        assert [headers["authorization"] for headers in fake.headers] == ["Bearer k"] * 3
        assert fake.connections == 1


@pytest.mark.parametrize("byte_count", [0, 1, 100])
async def test_cuts_the_connection_after_so_many_bytes(http: aiohttp.ClientSession, byte_count: int) -> None:
    received_bytes = bytearray()

    async def read_all(response: aiohttp.ClientResponse) -> None:
        async for piece in response.content.iter_any():
            received_bytes.extend(piece)

    with FakeOpenAI([Reply(text="a long answer", cut_after=byte_count)]) as fake:
        async with http.post(f"{fake.base_url}/chat/completions", json=body()) as response:
            with pytest.raises(aiohttp.ClientPayloadError):
                await read_all(response)
    assert len(received_bytes) == byte_count


async def test_raw_bytes_are_sent_exactly_and_split(http: aiohttp.ClientSession) -> None:
    raw = b"\xef\xbb\xbfdata: {\xc3\xbc\r\n\r\n: no end"
    with FakeOpenAI([Reply(raw=raw, split=1)]) as fake:
        async with http.post(f"{fake.base_url}/chat/completions", json=body()) as response:
            pieces = [piece async for piece, end in response.content.iter_chunks() if piece]
    assert b"".join(pieces) == raw
    assert len(pieces) > 1


async def test_delay_holds_back_the_first_byte(http: aiohttp.ClientSession) -> None:
    with FakeOpenAI([Reply(text="late", delay_s=60)]) as fake:
        asking = asyncio.ensure_future(http.post(f"{fake.base_url}/chat/completions", json=body()))
        await eventually(lambda: len(fake.requests) == 1)
        assert not asking.done()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def test_lists_models_and_refuses_what_it_does_not_know(http: aiohttp.ClientSession) -> None:
    with FakeOpenAI() as fake:
        async with http.get(f"{fake.base_url}/models") as response:
            assert (await response.json())["data"][0]["id"] == "fake"
        async with http.get(f"{fake.base_url}/elsewhere") as response:
            assert response.status == 404
        async with http.post(f"{fake.base_url}/chat/completions", data=b"[") as response:
            assert response.status == 400


async def test_reads_a_request_that_arrives_byte_by_byte_and_two_in_one_write() -> None:
    with FakeOpenAI(lambda _request: Reply(text="x")) as fake:
        port = int(fake.base_url.split(":")[2].split("/")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        one = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
        for byte in one:
            writer.write(bytes([byte]))
            await writer.drain()
        writer.write(one + one)
        for _ in range(3):
            assert (await reader.readuntil(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
        writer.close()
        await writer.wait_closed()


def test_the_address_needs_a_running_server() -> None:
    with pytest.raises(ScriptError, match="not running"):
        _ = FakeOpenAI().base_url


@pytest.fixture
def process(request: pytest.FixtureRequest) -> Iterator[str]:
    command = [sys.executable, "-m", "treadle.testing.fake_openai", "--until-eof", *request.param]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.communicate()
        assert server.returncode == 0


@pytest.mark.parametrize("process", [["--bench"]], indirect=True)
async def test_bench_mode_answers_by_the_models_name(http: aiohttp.ClientSession, process: str) -> None:
    _, raw = await post(http, process, {**body(), "model": "bench-chunks-400"})
    assert sum(bool(part.get("content")) for part in deltas(raw)) == 400

    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("first", "noop")]
    history: list[dict[str, Any]] = [USER]
    rounds = []
    for _ in range(3):
        _, raw = await post(http, process, {**body(*history, tools=tools), "model": "bench-rounds-2"})
        parts = deltas(raw)
        rounds.append([piece["function"] for part in parts for piece in part.get("tool_calls", [])])
        history += [ASSISTANT, {"role": "tool", "tool_call_id": "x", "content": "ok"}]
    assert [calls[0]["name"] for calls in rounds[:2]] == ["noop", "noop"]
    assert [calls[1]["arguments"] for calls in rounds[:2]] == ['{"n":0}', '{"n":1}']
    assert rounds[2] == []

    status, _ = await post(http, process, {**body(), "model": "gpt-5"})
    assert status == 404


@pytest.mark.parametrize("process", [["--bench"]], indirect=True)
async def test_bench_mode_paces_the_chunks(http: aiohttp.ClientSession, process: str) -> None:
    clock = asyncio.get_running_loop().time
    start_time = clock()
    _, raw = await post(http, process, {**body(), "model": "bench-chunks-10-every-5ms"})
    assert clock() - start_time >= 0.05
    assert sum(bool(part.get("content")) for part in deltas(raw)) == 10


def test_a_script_file_is_read_by_the_process(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"text": "from a file", "calls": [["noop", {"n": 1}]]}]))
    command = [sys.executable, "-m", "treadle.testing.fake_openai", "--until-eof", "--script", str(script)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()

        async def ask() -> bytes:
            async with aiohttp.ClientSession() as http:
                return (await post(http, url, body()))[1]

        assert deltas(asyncio.run(ask()))[1]["content"] == "from a file"
        server.communicate()


def test_a_bad_script_is_refused_with_a_sentence(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"status": "high"}]')
    command = [sys.executable, "-m", "treadle.testing.fake_openai", "--script", str(script)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "cannot use the script" in result.stderr
