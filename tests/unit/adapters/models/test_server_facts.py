"""Facts that servers tell of their models are used in runs, kept for the next process and shown (M-12); an unknown
model is sent nothing that the user did not ask for."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.adapters.models.test_reasoning_effort import greeting
from tests.wires.case import encode_reply, reach
from treadle.adapters.models.catalog.lookup import FACTS_FILE_NAME, OWN_SERVERS, ModelFacts, ServerFacts, look_up
from treadle.adapters.models.registry import ModelRegistry, list_offers
from treadle.ports.model import Memo, ModelInfo, ModelRequest
from treadle.protocol.content import UserEntry
from treadle.protocol.tools import ToolSpec
from treadle.testing.fake_http import FakeResponse, Headers, ThreadedServer, make_json_answer

LISTS: dict[str, tuple[str, dict[str, Any]]] = {
    "openrouter": (
        "/v1/models",
        {
            "id": "acme/new",
            "context_length": 200_000,
            "top_provider": {"max_completion_tokens": 9_000},
            "pricing": {"prompt": "0.000002", "completion": "0.00001", "input_cache_read": "0.0000002"},
            "supported_parameters": ["tools", "reasoning", "max_tokens"],
            "architecture": {"input_modalities": ["text", "image"]},
        },
    ),
    "vllm": ("/v1/models", {"id": "acme/new", "object": "model", "max_model_len": 65_536}),
    "lmstudio": (
        "/api/v0/models",
        {
            "id": "acme/new",
            "type": "vlm",
            "max_context_length": 131_072,
            "loaded_context_length": 8_192,
            "capabilities": ["tool_use"],
        },
    ),
    "together": (
        "/v1/models",
        {"id": "acme/new", "type": "chat", "context_length": 40_960, "pricing": {"input": 0.5, "output": 1.5}},
    ),
    "groq": ("/v1/models", {"id": "acme/new", "context_window": 131_072, "max_completion_tokens": 16_384}),
    "llamacpp": (
        "/props?model=acme%2Fnew",
        {"default_generation_settings": {"n_ctx": 6_144}, "total_slots": 2, "modalities": {"vision": True}},
    ),
}
WANTED: dict[str, dict[str, Any]] = {
    "openrouter": {
        **{"window": 200_000, "max_output": 9_000, "vision": True, "native_tools": True, "limit_assumed": False},
        **{"usd_per_million_input": 2.0, "usd_per_million_cached": 0.2, "usd_per_million_output": 10.0},
    },
    "vllm": {"window": 65_536, "limit_assumed": True, "free": True},
    "lmstudio": {"window": 8_192, "vision": True, "native_tools": True},
    "together": {"window": 40_960, "usd_per_million_input": 0.5, "usd_per_million_output": 1.5},
    "groq": {"window": 131_072, "max_output": 16_384, "limit_assumed": False},
    "llamacpp": {"window": 6_144, "vision": True, "limit_assumed": True, "free": True},
}


class TellingServer:
    """A server that tells of its model at one path, in a list or by itself, and answers anything else."""

    def __init__(self, path: str, item: dict[str, Any]) -> None:
        self._path, self.item = path, item
        self.lists = 0
        self.requests: list[dict[str, Any]] = []

    def __call__(self, method: str, path: str, _headers: Headers, body: bytes) -> FakeResponse:
        if method == "GET":
            self.lists += 1
            document = {"data": [self.item]} if "id" in self.item else self.item
            return make_json_answer(200, document) if path == self._path else make_json_answer(404, {})
        self.requests.append(msgspec.json.decode(body))
        return encode_reply(greeting("openai:x"), lines=False)


async def call(registry: ModelRegistry, ref: str, **more: Any) -> ModelInfo:
    model = registry.get(ref)
    async for _ in model.stream(ModelRequest("", [UserEntry("Hi.")], memo=Memo(), **more)):
        pass
    return model.info


@pytest.mark.parametrize("provider", LISTS)
async def test_a_first_call_asks_the_server(provider: str, tmp_path: Path) -> None:
    telling = TellingServer(*LISTS[provider])
    ref = f"{provider}:acme/new"
    with ThreadedServer(telling) as server:
        env = reach(ref, f"{server.url}/v1")
        registry = ModelRegistry(env, home=tmp_path)
        info = await call(registry, ref)
        assert {name: getattr(info, name) for name in WANTED[provider]} == WANTED[provider]
        await call(registry, ref)
        await registry.close()
        assert telling.lists == 1
        again = ModelRegistry(env, home=tmp_path)  # the next process
        assert again.get(ref).info == info
        await call(again, ref)
        infos = {each.ref: each for offer in list_offers(again) for each in offer.models}
        await again.close()
        assert infos[ref] == info
        assert telling.lists == (2 if provider in OWN_SERVERS else 1)  # one on the user's machine may have changed
    for request in telling.requests:
        assert "temperature" not in request
        assert ("max_tokens" in request) == ("max_output" in WANTED[provider])


async def test_a_server_that_was_started_with_another_window(tmp_path: Path) -> None:  # M-12
    """The facts of a server on the user's machine are asked for by each process; the stored ones help while it is
    not reached."""
    telling = TellingServer("/v1/models", {"id": "m", "max_model_len": 65_536})
    with ThreadedServer(telling) as server:
        env = reach("vllm:m", f"{server.url}/v1")
        windows = []
        for item in ({"id": "m", "max_model_len": 65_536}, {"id": "m", "max_model_len": 8_192}, {}):
            telling.item = item
            registry = ModelRegistry(env, home=tmp_path)
            windows.append((await call(registry, "vllm:m")).window)
            await registry.close()
        assert windows == [65_536, 8_192, 8_192]
        registry = ModelRegistry(env, home=tmp_path)
        assert registry.get("vllm:m").info.window == 8_192
        await registry.close()


LLAMACPP_LIST = {
    "n_ctx": ({"n_ctx": 4_096, "n_ctx_train": 131_072}, 4_096),
    "n_ctx_train": ({"n_ctx_train": 8_192}, 8_192),
    "large n_ctx_train": ({"n_ctx_train": 131_072}, 32_768),
    "none": ({}, 32_768),
}


@pytest.mark.parametrize("case", LLAMACPP_LIST)
async def test_the_windows_in_the_list_of_llamacpp(case: str, tmp_path: Path) -> None:  # M-12
    """`n_ctx` is the window with which the server was started; `n_ctx_train` is only what the model could have."""
    meta, window = LLAMACPP_LIST[case]
    item = {"id": "/models/m.gguf", "object": "model", "meta": {"vocab_type": 2, **meta}}
    with ThreadedServer(TellingServer("/v1/models", item)) as server:
        registry = ModelRegistry(reach("llamacpp:m", f"{server.url}/v1"), home=tmp_path)
        (info,) = await registry.ask("llamacpp") or ()
        await registry.close()
    assert (info.name, info.window) == ("/models/m.gguf", window)


async def test_a_server_that_does_not_tell_is_used_all_the_same(tmp_path: Path) -> None:
    telling = TellingServer("/nowhere", {})
    with ThreadedServer(telling) as server:
        registry = ModelRegistry(reach("vllm:m", f"{server.url}/v1"), home=tmp_path)
        assert await call(registry, "vllm:m") == look_up("vllm", "m")
        await registry.close()


async def test_a_model_without_tools_calls_them_in_its_text(tmp_path: Path) -> None:  # M-07
    telling = TellingServer("/v1/models", {"id": "m", "supported_parameters": ["max_tokens"]})
    with ThreadedServer(telling) as server:
        env = reach("openrouter:m", f"{server.url}/v1")
        registry = ModelRegistry(env, home=tmp_path)
        await call(registry, "openrouter:m")
        await call(registry, "openrouter:m", tools=(ToolSpec("look", "Look."),))
        await registry.close()
    assert "tools" not in telling.requests[-1]


@pytest.mark.parametrize("ref", ["openai:m", "openai-responses:m", "gemini:m", "ollama:m", "mistral:m", "deepseek:m"])
async def test_nothing_is_sent_that_nobody_asked_for(ref: str) -> None:  # M-01
    request_bodies: list[dict[str, Any]] = []

    def answer(method: str, path: str, _headers: Headers, body: bytes) -> FakeResponse:
        if method == "GET" or path.endswith("/api/show"):
            return make_json_answer(404, {"error": "unknown"})
        request_bodies.append(msgspec.json.decode(body))
        return encode_reply(greeting(ref), lines=ref.startswith("ollama:"))

    with ThreadedServer(answer) as server:
        registry = ModelRegistry(reach(ref, f"{server.url}/v1"))
        await call(registry, ref)
        await call(registry, ref, temperature=0.5, max_tokens=99)
        await registry.close()
    flat = [
        {**request, **request.get("options", {}), **request.get("generationConfig", {})} for request in request_bodies
    ]
    limits = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens", "num_predict")
    assert [name for name in ("temperature", *limits) if name in flat[0]] == []
    assert flat[1]["temperature"] == 0.5
    assert [flat[1][name] for name in limits if name in flat[1]] == [99]


async def test_where_a_limit_must_be_one_is_sent() -> None:
    request_bodies: list[dict[str, Any]] = []

    def answer(_method: str, _path: str, _headers: Headers, body: bytes) -> FakeResponse:
        request_bodies.append(msgspec.json.decode(body))
        return encode_reply(greeting("anthropic:m"), lines=False)

    with ThreadedServer(answer) as server:
        registry = ModelRegistry(reach("anthropic:m", f"{server.url}/v1"))
        await call(registry, "anthropic:m")
        await registry.close()
    assert request_bodies[0]["max_tokens"] == 4_096
    assert "temperature" not in request_bodies[0]


def test_facts_are_forgotten_in_time_and_a_damaged_file_is_empty(tmp_path: Path) -> None:
    facts = ServerFacts(tmp_path)
    facts.keep("http://x/v1/", "m", ModelFacts(window=5))
    assert ServerFacts(tmp_path).find("http://x/v1", "m") == ModelFacts(window=5)
    assert ServerFacts(tmp_path).find("http://y/v1", "m") is None
    file = tmp_path / FACTS_FILE_NAME
    file.write_bytes(file.read_bytes().replace(b'"time_s":', b'"time_s":0.00000000'))
    assert ServerFacts(tmp_path).find("http://x/v1", "m") is None
    file.write_bytes(b"{")
    assert ServerFacts(tmp_path).find("http://x/v1", "m") is None


@pytest.mark.parametrize("name", ["gpt-9", "o9", "mistral-new", "claude-new", "kimi-k9"])
def test_families_have_defaults(name: str) -> None:
    maker = {"mistral-new": "mistral", "claude-new": "anthropic"}.get(name, "openai")
    info = look_up(maker, name)
    assert info.window > ModelInfo("x", "y").window
    assert not info.limit_assumed
