"""Which words of a server mean that it refuses a parameter, and which merely mention it (M-01)."""

from collections.abc import Callable
from typing import Any

import pytest

from treadle.adapters.models.anthropic import AnthropicMessages
from treadle.adapters.models.gemini.adapter import Gemini
from treadle.adapters.models.ollama import OllamaChat
from treadle.adapters.models.openai_chat.adapter import OpenAIChat
from treadle.adapters.models.openai_responses import OpenAIResponses
from treadle.adapters.models.wire.failures import is_refusal_of
from treadle.errors import ModelError
from treadle.ports.model import Model, ModelInfo, ModelRequest
from treadle.protocol.content import UserEntry
from treadle.testing.fake_anthropic import FakeAnthropic
from treadle.testing.fake_gemini import FakeGemini
from treadle.testing.fake_model import FakeModelServer, Reply
from treadle.testing.fake_ollama import FakeOllama
from treadle.testing.fake_openai import FakeOpenAI
from treadle.testing.fake_responses import FakeResponses


@pytest.mark.parametrize(
    "message",
    [
        "Unsupported parameter: 'temperature' is not supported with this model.",
        "Unsupported value: 'temperature' does not support 0.1 with this model. Only the default is supported.",
        "Unrecognized request argument supplied: temperature",
        "temperature: Extra inputs are not permitted",
        "body.temperature: Extra inputs are not permitted",
        "`temperature` is deprecated for this model.",
        "`temperature` may only be set to 1 when thinking is enabled.",
        "temperature must not be set",
        "The temperature is out of range",
    ],
)
def test_refusals_in_words(message: str) -> None:
    for status in (400, 422):
        assert is_refusal_of(
            ModelError("bad_request", f"host answered {status}: {message}", status=status), "temperature"
        )


@pytest.mark.parametrize(
    "message",
    [
        "I could not find the city whose temperature you asked for",
        "messages[3].content: invalid text 'the temperature of the oven'",
        "Invalid schema for function 'weather': property temperature has an unsupported type",
        "tools.0.input_schema: temperature must be a number",
        "the tool set_temperature is not allowed",
        "unknown model 'temperature-1'",
        "Invalid role. " + "x" * 80 + " temperature",
    ],
)
def test_a_mention_is_no_refusal(message: str) -> None:
    assert not is_refusal_of(ModelError("bad_request", f"host answered 400: {message}", status=400), "temperature")


def test_the_documented_shape_decides() -> None:
    def error(param: str, status: int = 400) -> ModelError:
        return ModelError("bad_request", "temperature is not supported", status=status, param=param)

    assert is_refusal_of(error("temperature"), "temperature")
    assert is_refusal_of(error("reasoning.summary"), "reasoning")
    assert not is_refusal_of(error("messages[3].content"), "temperature")
    assert not is_refusal_of(error("temperature_2"), "temperature")
    assert not is_refusal_of(error("temperature", 500), "temperature")
    assert not is_refusal_of(ModelError("rate_limit", "temperature is not supported", status=400), "temperature")


INFO = ModelInfo("p", "m")
WIRES: dict[str, tuple[Callable[..., FakeModelServer], Callable[[Any], Model]]] = {
    "openai": (FakeOpenAI, lambda fake: OpenAIChat(INFO, base_url=fake.base_url)),
    "responses": (FakeResponses, lambda fake: OpenAIResponses(INFO, base_url=fake.base_url)),
    "anthropic": (FakeAnthropic, lambda fake: AnthropicMessages(INFO, base_url=fake.base_url)),
    "gemini": (FakeGemini, lambda fake: Gemini(INFO, base_url=fake.base_url)),
    "ollama": (FakeOllama, lambda fake: OllamaChat(INFO, base_url=fake.url, think=True)),
}


async def fail(model: Model) -> None:
    with pytest.raises(ModelError):
        async for _ in model.stream(ModelRequest("", [UserEntry("x")], temperature=0.5)):
            pass


@pytest.mark.parametrize("wire", WIRES)
async def test_no_adapter_drops_what_was_merely_mentioned(wire: str) -> None:
    fake_of, connect = WIRES[wire]
    error_text = "The question was about thinking, the temperature and max_tokens of something; it has no answer"
    with fake_of(lambda _: Reply(status=400, error={"message": error_text})) as fake:
        model = connect(fake)
        await fail(model)
        await fail(model)
        await model.close()
        first, second = fake.requests
    assert first == second


@pytest.mark.parametrize("wire", WIRES)
async def test_what_was_left_out_and_did_not_help_is_sent_again_next_time(wire: str) -> None:
    """Every request is answered with words that look like a refusal: later calls lose nothing."""
    fake_of, connect = WIRES[wire]
    error_text = "The temperature is not supported, and thinking is not allowed"
    with fake_of(lambda _: Reply(status=400, error={"message": error_text})) as fake:
        model = connect(fake)
        await fail(model)
        request_count = len(fake.requests)
        assert 1 < request_count < 5
        await fail(model)
        await model.close()
        assert fake.requests[request_count] == fake.requests[0]
        assert fake.requests[request_count - 1] != fake.requests[0]


async def test_a_server_that_always_finds_something_else_to_refuse() -> None:
    limit = 10_000

    def refuse(request: Any) -> Reply:
        nonlocal limit
        limit = min(limit, request["max_tokens"])
        return Reply(status=400, error={"message": f"max_tokens: {limit} > {limit - 1}, which is the maximum"})

    with FakeAnthropic(refuse) as fake:
        model = AnthropicMessages(INFO, base_url=fake.base_url)
        await fail(model)
        await model.close()
    assert len(fake.requests) < 20
