"""The fake Messages server: its answers are right, and it refuses what the real one refuses."""

from typing import Any

import aiohttp
import msgspec
import pytest

from treadle.testing.fake_anthropic import FakeAnthropic, Reply, find_complaint, make_signature

VERSION = {"anthropic-version": "2023-06-01"}
TOOL = {"name": "look", "input_schema": {"type": "object"}}
CALL = {"type": "tool_use", "id": "i", "name": "look", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "i", "content": "x"}
MARK = {"cache_control": {"type": "ephemeral"}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def request(*contents: Any, **more: Any) -> dict[str, Any]:
    """A request whose messages alternate, the user first."""
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": content} for at, content in enumerate(contents)]
    return {"model": "m", "max_tokens": 9, "tools": [TOOL], "messages": messages, **more}


def thinking(words: str, signed: str = "") -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": signed or make_signature(words)}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no limit": ({"model": "m", "messages": []}, "max_tokens: Field required"),
    "no messages": (request(), "at least one message"),
    "empty content": (request([]), "non-empty content"),
    "blank text": (request([text(" \n")]), "non-whitespace"),
    "prefill": (request("a", "b"), "prefill"),
    "assistant first": (
        {**request("a"), "messages": [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]},
        "first message",
    ),
    "two of a role": ({**request("a"), "messages": [{"role": "user", "content": "a"}] * 2}, "alternate"),
    "call without result": (request("a", [CALL], "b"), "without `tool_result`"),
    "result without call": (request("a", "b", [RESULT]), "without `tool_result`"),
    "results last": (request("a", [CALL], [text("b"), RESULT]), "must come first"),
    "repeated ids": (request("a", [CALL], [RESULT], [CALL], [RESULT]), "unique"),
    "an odd id": (
        request("a", [{**CALL, "id": "a.b"}], [{**RESULT, "tool_use_id": "a.b"}]),
        "String should match pattern",
    ),
    "input that is no object": (request("a", [{**CALL, "input": "{}"}], [RESULT]), "valid dictionary"),
    "an error without a word": (
        request("a", [CALL], [{**RESULT, "content": "", "is_error": True}]),
        "content cannot be empty",
    ),
    "calls without tools": (
        {name: value for name, value in request("a", [CALL], [RESULT]).items() if name != "tools"},
        "must define tools",
    ),
    "a nameless tool": (request("a", tools=[{"name": "", "input_schema": {"type": "object"}}]), "tools.0.name"),
    "a schema without type": (request("a", tools=[{"name": "x", "input_schema": {}}]), "input_schema.type"),
    "five breakpoints": (request([{**text("a"), **MARK} for _ in range(5)]), "Found 5"),
    "a forged thought": (request("a", [thinking("hm", "sig-0"), text("b")], "c"), "Invalid `signature`"),
    "thinking last": (request("a", [text("b"), thinking("hm")], "c"), "final block"),
    "temperature and thinking": (request("a", temperature=0.1, thinking={"type": "adaptive"}), "temperature"),
    "choice without tools": (
        {"model": "m", "max_tokens": 1, "messages": request("a")["messages"], "tool_choice": {"type": "none"}},
        "tool_choice",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_what_the_api_refuses(case: str) -> None:
    request_body, words = REFUSED[case]
    assert words in find_complaint(VERSION, msgspec.json.encode(request_body))


def test_takes_what_the_api_takes() -> None:
    good = request(
        "a",
        [thinking("hm"), text("b"), CALL],
        [RESULT, {**text("c"), **MARK}],
        system=[{**text("s"), **MARK}],
        tool_choice={"type": "none"},
        thinking={"type": "adaptive"},
    )
    assert find_complaint(VERSION, msgspec.json.encode(good)) == ""
    assert "anthropic-version" in find_complaint({}, msgspec.json.encode(good))
    assert "not valid JSON" in find_complaint(VERSION, b"{")


async def test_streams_answers_whole_and_refuses_in_its_own_shape() -> None:
    reply = Reply(text="hello", thinking="hm", signature="mine", calls=[("look", {"n": 1})], chunk_size=2)
    with FakeAnthropic([reply]) as fake:
        async with aiohttp.ClientSession(headers=VERSION) as http:
            url = f"{fake.base_url}/v1/messages"
            async with http.post(url, json=request("a")) as response:
                message = await response.json()
            async with http.post(url, json=request("a", stream=True)) as response:
                names = [line[7:] async for line in response.content if line.startswith(b"event: ")]
            async with http.post(url, json=request()) as response:
                assert (response.status, (await response.json())["error"]["type"]) == (400, "invalid_request_error")
            # The script's own signature is good when it comes back.
            async with http.post(url, json=request("a", [thinking("hm", "mine"), CALL], [RESULT])) as response:
                assert "the script has 1 replies" in (await response.json())["error"]["message"]
            async with http.get(f"{fake.base_url}/v1/elsewhere") as response:
                assert response.status == 404
    assert [block["type"] for block in message["content"]] == ["thinking", "text", "tool_use"]
    assert (message["stop_reason"], message["usage"]) == ("tool_use", {"input_tokens": 10, "output_tokens": 5})
    assert names[0] == b"message_start\n"
    assert names.count(b"content_block_start\n") == names.count(b"content_block_stop\n") == 3
    assert names[-2:] == [b"message_delta\n", b"message_stop\n"]
