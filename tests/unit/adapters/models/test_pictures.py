"""Pictures that a user attached: their bytes on every wire, a word where a model cannot see, and a conversation that
goes on when a server does not take them."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.fake_copilot import FakeCopilot
from tests.unit.adapters.models.test_capability_ladder import ask
from treadle.adapters.models.anthropic import AnthropicMessages
from treadle.adapters.models.gemini.adapter import Gemini
from treadle.adapters.models.ollama import OllamaChat
from treadle.adapters.models.openai_chat.adapter import OpenAIChat
from treadle.adapters.models.openai_responses import OpenAIResponses
from treadle.adapters.models.registry import ModelRegistry
from treadle.ports.model import Memo, Model, ModelInfo, ModelRequest
from treadle.protocol.content import AssistantEntry, Entry, Image, UserEntry
from treadle.testing.fake_anthropic import FakeAnthropic
from treadle.testing.fake_gemini import FakeGemini
from treadle.testing.fake_model import FakeModelServer, Reply
from treadle.testing.fake_ollama import FakeOllama
from treadle.testing.fake_openai import FakeOpenAI
from treadle.testing.fake_responses import FakeResponses

PNG = b"\x89PNG\r\n\x1a\n\0\xff"
DATA = b64encode(PNG).decode()
URL = f"data:image/png;base64,{DATA}"
PICTURE = Image("image/png", "aa")
LOOK = UserEntry("Look.", images=(PICTURE,))
WORD = "\n[an image (image/png) was attached here, which cannot be shown to you]"
SEEING = ModelInfo("p", "m", vision=True)
BLIND = ModelInfo("p", "m")


class Wire(NamedTuple):
    fake: Callable[..., FakeModelServer]
    model: Callable[[ModelInfo, str], Model]
    conversation: str
    user: object
    """The message with the picture, as it is sent."""


def _anthropic_user() -> object:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}
    return {"role": "user", "content": [image, {"type": "text", "text": "Look."}]}


WIRES = {
    "openai": Wire(
        FakeOpenAI,
        lambda info, url: OpenAIChat(info, base_url=f"{url}/v1"),
        "messages",
        {
            "role": "user",
            "content": [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {"url": URL}}],
        },
    ),
    "responses": Wire(
        FakeResponses,
        lambda info, url: OpenAIResponses(info, base_url=f"{url}/v1"),
        "input",
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Look."}, {"type": "input_image", "image_url": URL}],
        },
    ),
    "anthropic": Wire(
        FakeAnthropic, lambda info, url: AnthropicMessages(info, base_url=url), "messages", _anthropic_user()
    ),
    "gemini": Wire(
        FakeGemini,
        lambda info, url: Gemini(info, base_url=f"{url}/v1beta"),
        "contents",
        {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": DATA}}, {"text": "Look."}]},
    ),
    "ollama": Wire(
        lambda script: FakeOllama(script, capabilities=["completion", "tools", "vision"]),
        lambda info, url: OllamaChat(info, base_url=url),
        "messages",
        {"role": "user", "content": "Look.", "images": [DATA]},
    ),
}


def remove_cache_marks(message: Any) -> Any:
    """Without the marks of Anthropic's cache, which move."""
    if isinstance(message.get("content"), list):
        for block in message["content"]:
            block.pop("cache_control", None)
    return message


@pytest.mark.parametrize("name", WIRES)
async def test_the_bytes_on_every_wire(name: str) -> None:
    wire = WIRES[name]
    with wire.fake([Reply(text="A cat."), Reply(text="Grey."), Reply(text="Two.")]) as fake:
        model = wire.model(SEEING, fake.url)
        memo = Memo()
        memo.pictures["aa"] = PNG
        entries: list[Entry] = [LOOK]
        for answer in ("A cat.", "Grey."):
            await ask(model, ModelRequest("", list(entries), memo=memo, pictures=memo.pictures))
            entries += [AssistantEntry(len(entries), answer), UserEntry("And now?")]
        await model.close()
    assert [remove_cache_marks(request[wire.conversation][0]) for request in fake.requests] == [wire.user] * 2


@pytest.mark.parametrize("name", WIRES)
async def test_a_picture_in_the_middle_of_a_conversation_that_began_without(name: str) -> None:
    wire = WIRES[name]
    with wire.fake([Reply(text="Hi."), Reply(text="A cat.")]) as fake:
        model = wire.model(SEEING, fake.url)
        memo = Memo()
        entries: list[Entry] = [UserEntry("Hello.")]
        await ask(model, ModelRequest("", list(entries), memo=memo, pictures=memo.pictures))
        memo.pictures["aa"] = PNG
        entries += [AssistantEntry(1, "Hi."), LOOK]
        await ask(model, ModelRequest("", list(entries), memo=memo, pictures=memo.pictures))
        await model.close()
    assert remove_cache_marks(fake.requests[1][wire.conversation][2]) == wire.user


@pytest.mark.parametrize("name", WIRES)
async def test_a_model_that_does_not_see_is_told(name: str) -> None:
    wire = WIRES[name]
    fake_server = FakeOllama if name == "ollama" else wire.fake
    with fake_server([Reply(text="I cannot.")]) as fake:
        model = wire.model(BLIND, fake.url)
        await ask(model, ModelRequest("", [LOOK], pictures={"aa": PNG}))
        await model.close()
    request_text = msgspec.json.encode(fake.requests[0]).decode()
    assert DATA not in request_text
    assert msgspec.json.encode(f"Look.{WORD}").decode()[1:-1] in request_text


@pytest.mark.parametrize("name", WIRES)
async def test_a_picture_that_is_refused_does_not_end_the_conversation(name: str) -> None:
    wire = WIRES[name]

    def script(request: dict[str, Any]) -> Reply:
        if DATA in msgspec.json.encode(request).decode():
            return Reply(status=400, error={"message": "Could not process image"})
        return Reply(text="I see nothing.")

    with wire.fake(script) as fake:
        model = wire.model(SEEING, fake.url)
        request = ModelRequest("", [LOOK], pictures={"aa": PNG})
        first = await ask(model, request)
        second = await ask(model, request)
        await model.close()
    assert (first[0].text, second[0].text) == ("I see nothing.", "I see nothing.")
    assert [notice.kind for notice in first[1]] == ["pictures_dropped"]
    assert second[1] == []
    assert len(fake.requests) == 3


async def test_what_cannot_be_shown_has_a_word_in_the_text() -> None:
    """A lost picture, one of a kind that no provider takes, and a visible one without a text."""
    lost_picture, drawing = Image("image/png", "bb"), Image("image/svg+xml", "cc")
    with FakeOpenAI([Reply(text="One.")]) as fake:
        model = OpenAIChat(SEEING, base_url=fake.base_url)
        entries = [UserEntry("Look.", images=(lost_picture, drawing, PICTURE)), UserEntry("", images=(PICTURE,))]
        await ask(model, ModelRequest("", entries, pictures={"aa": PNG, "cc": b"<svg/>"}))
        await model.close()
    first, second = fake.requests[0]["messages"]
    assert [part["type"] for part in first["content"]] == ["text", "image_url"]
    assert first["content"][0]["text"] == f"Look.{WORD}{WORD.replace('png', 'svg+xml')}"
    assert second["content"] == [{"type": "image_url", "image_url": {"url": URL}}]


async def test_copilot_is_told_that_there_are_pictures() -> None:
    with FakeCopilot([Reply(text="A cat."), Reply(text="Hi.")], in_order=True) as fake:
        models = ModelRegistry(fake.env)
        model = models.get("copilot:gpt-4.1")
        assert model.info.vision
        await ask(model, ModelRequest("", [LOOK], pictures={"aa": PNG}))
        await ask(model, ModelRequest("", [UserEntry("Hi.")]))
        await models.close()
    assert [headers.get("copilot-vision-request") for headers in fake.headers] == ["true", None]
