"""The fake Ollama: its answers are right, and it refuses what the real one refuses."""

from typing import Any

import aiohttp
import pytest

from treadle.testing.fake_ollama import FakeOllama, Reply

USER = {"role": "user", "content": "go"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def request(**more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [USER], **more}


def make_call_message(arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}


def schema(**properties: Any) -> dict[str, Any]:
    function = {"name": "look", "parameters": {"type": "object", "properties": properties}}
    return request(tools=[{"type": "function", "function": function}])


REFUSED: dict[str, tuple[dict[str, Any], int, str]] = {
    "no messages": ({"model": "m"}, 400, "messages"),
    "content that is no text": (request(messages=[{"role": "user", "content": [1]}]), 400, "unmarshal"),
    "arguments that are text": (request(messages=[USER, make_call_message("{}")]), 400, "unmarshal"),
    "a schema that is no object": (schema(a=True), 400, "unmarshal"),
    "a type that is no word": (schema(a={"type": {}}), 400, "unmarshal"),
    "no such model": (request(model="other"), 404, "model 'other' not found"),
    "tools": (request(tools=[TOOL]), 400, "does not support tools"),
    "thinking": (request(think=True), 400, '"m" does not support thinking'),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_refused(case: str) -> None:
    body, status, words = REFUSED[case]
    with FakeOllama([Reply(text="hi")], capabilities=["completion"], models=["m"]) as fake:
        async with aiohttp.ClientSession() as session, session.post(f"{fake.url}/api/chat", json=body) as answer:
            assert answer.status == status
            assert words in (await answer.json())["error"]
    assert fake.requests == []


async def test_what_is_answered() -> None:
    reply = Reply(text="hi", thinking="hm", calls=[("look", {"a": 1})], ids=["c1"])
    with FakeOllama(lambda _request: reply) as fake:
        async with aiohttp.ClientSession(fake.url) as session:
            async with session.post("/api/chat", json=request(stream=False, tools=[TOOL], think="low")) as answer:
                payload = await answer.json()
            async with session.post("/api/chat", json=request()) as answer:
                assert answer.content_type == "application/x-ndjson"
                lines = (await answer.text()).splitlines()
            async with session.get("/api/version") as answer:
                assert "version" in await answer.json()
            async with session.get("/api/nothing") as answer:
                assert answer.status == 404
    assert payload["message"] == {
        "role": "assistant",
        "content": "hi",
        "thinking": "hm",
        "tool_calls": [{"id": "c1", "function": {"index": 0, "name": "look", "arguments": {"a": 1}}}],
    }
    assert (payload["done"], payload["done_reason"], payload["prompt_eval_count"], payload["eval_count"]) == (
        True,
        "stop",
        10,
        5,
    )
    assert len(lines) == 4
