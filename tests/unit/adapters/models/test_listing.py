"""Lists of models as servers really give them (M-12)."""

from typing import Any

import msgspec
import pytest

from treadle.adapters.models.keys import Secret
from treadle.adapters.models.listing import fetch_models, read_list
from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.wire.http import Access
from treadle.errors import ModelError
from treadle.ports.model import ModelInfo
from treadle.testing.fake_http import FakeResponse, Headers, ThreadedServer, make_json_answer


def names(document: Any) -> list[str] | None:
    models = read_list(document if isinstance(document, bytes) else msgspec.json.encode(document))
    return None if models is None else list(models)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"object": "list", "data": [{"id": "b"}, {"id": "a", "object": "model"}]}, ["b", "a"]),
        ([{"id": "a", "type": "chat"}, {"id": "b", "type": "embedding"}], ["a"]),
        ({"models": [{"name": "qwen3:8b", "size": 1}, {"name": "x"}]}, ["qwen3:8b", "x"]),
        (
            {
                "models": [
                    {"name": "models/gemini-2.5-pro", "supportedGenerationMethods": ["generateContent"]},
                    {"name": "models/aqa", "supportedGenerationMethods": ["generateAnswer"]},
                ]
            },
            ["gemini-2.5-pro"],
        ),
        ({"data": [{"id": 7}, {"id": None}, "text", {"id": ""}, {"id": "ok", "context_length": "many"}]}, ["ok"]),
        ({"data": []}, []),
        ({"data": None, "models": [{"name": "a"}]}, ["a"]),
        ({"error": {"message": "no"}}, None),
        (b"<html>", None),
        (b"", None),
        (b"\xff[", None),
        (b"[1", None),
    ],
)
def test_every_shape_is_read(document: Any, expected: list[str] | None) -> None:
    assert names(document) == expected


def test_what_does_not_answer_is_left_out() -> None:
    ids = ["gpt-5", "text-embedding-3-large", "whisper-1", "gpt-4o-realtime", "gpt-image-2", "tts-1", "omni-moderation"]
    assert names({"data": [{"id": name} for name in ids]}) == ["gpt-5"]


DOCUMENT = {
    "data": [
        {"id": "groq-like", "context_window": 131_072, "max_completion_tokens": 65_536},
        {"id": "mistral-like", "max_context_length": 40_000},
        {"id": "vllm-like", "max_model_len": 4_096},
        {
            "id": "some/open-router",
            "context_length": 262_144,
            "top_provider": {"max_completion_tokens": 16_384},
            "pricing": {"prompt": "0.0000005", "completion": "0.000002", "input_cache_read": "0.00000005"},
        },
        {"id": "z-ai/glm-5.2", "context_length": 5, "pricing": {"prompt": "1", "completion": "2"}},
        {"id": "free", "pricing": {"prompt": "0", "completion": "-1"}},
    ]
}


async def ask(document: Any, status: int = 200) -> list[ModelInfo]:
    def route(method: str, path: str, headers: Headers, body: bytes) -> FakeResponse:
        assert (method, path, headers["x-key"]) == ("GET", "/models", "secret-secret")
        return make_json_answer(status, document)

    with ThreadedServer(route) as server:
        context = ProviderContext({})
        try:
            access = Access(server.url, Secret("secret-secret"), key_header="x-key")
            return await fetch_models(context, "openrouter", access, "/models")
        finally:
            await context.close()


async def test_what_a_server_tells_fills_what_is_not_known() -> None:
    infos = {info.name: info for info in await ask(DOCUMENT)}
    assert list(infos) == sorted(infos)
    limits = {name: (info.window, info.max_output) for name, info in infos.items()}
    assert limits == {
        "free": (32_768, 4_096),
        "groq-like": (131_072, 32_768),
        "mistral-like": (40_000, 16_384),
        "some/open-router": (262_144, 16_384),
        "vllm-like": (4_096, 2_048),
        "z-ai/glm-5.2": (1_048_576, 32_768),
    }
    prices = infos["some/open-router"]
    assert (prices.usd_per_million_input, prices.usd_per_million_output) == (0.5, 2.0)
    assert prices.usd_per_million_cached == 0.05
    assert infos["z-ai/glm-5.2"].usd_per_million_input == 0.93
    assert infos["free"].usd_per_million_output == 0.0


async def test_what_is_no_list_is_said() -> None:
    with pytest.raises(ModelError, match="gave no list of models"):
        await ask({"hello": 1})
    with pytest.raises(ModelError, match="no such thing") as caught:
        await ask({"error": {"message": "no such thing, secret-secret"}}, 404)
    assert "secret-secret" not in str(caught.value)


@pytest.mark.parametrize("price", ["-1", "nan", "inf"])
async def test_a_price_that_differs_from_call_to_call_is_unknown(price: str) -> None:  # L-11
    """OpenRouter tells -1 for its router, which chooses another model for each call."""
    (info,) = await ask({"data": [{"id": "openrouter/auto", "pricing": {"prompt": price, "completion": price}}]})
    assert (info.usd_per_million_input, info.usd_per_million_cached, info.usd_per_million_output) == (0.0, 0.0, 0.0)
