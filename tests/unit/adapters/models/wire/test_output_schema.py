"""The schema of an answer as each protocol takes it; and left out where it would forbid calls of tools."""

from typing import Any

from treadle.adapters.models.gemini.adapter import Gemini
from treadle.adapters.models.ollama import OllamaChat
from treadle.adapters.models.openai_chat.adapter import OpenAIChat
from treadle.adapters.models.openai_responses import OpenAIResponses
from treadle.adapters.models.wire.http import HttpModel
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.content import UserEntry
from treadle.protocol.tools import ToolSpec

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
PLAIN = ModelRequest("", [UserEntry("x")], output_schema=SCHEMA)
WITH_TOOLS = ModelRequest("", [UserEntry("x")], (ToolSpec("look"),), output_schema=SCHEMA)
ANY = ModelRequest("", [UserEntry("x")])


def build_parameters(model: HttpModel, request: ModelRequest) -> dict[str, Any]:
    return model._build_parameters(request)


def test_openai_takes_it_beside_tools() -> None:
    chat, responses = OpenAIChat(ModelInfo("openai", "m")), OpenAIResponses(ModelInfo("openai", "m"))
    for request in (PLAIN, WITH_TOOLS):
        shape = {"name": "answer", "schema": SCHEMA, "strict": True}
        assert build_parameters(chat, request)["response_format"] == {"type": "json_schema", "json_schema": shape}
        assert build_parameters(responses, request)["text"] == {"format": {"type": "json_schema", **shape}}
    assert "response_format" not in build_parameters(chat, ANY)
    assert "text" not in build_parameters(responses, ANY)


def test_a_schema_whose_required_is_no_list_is_not_strict() -> None:
    shape = ModelRequest("", [UserEntry("x")], output_schema={**SCHEMA, "required": True})
    chat = build_parameters(OpenAIChat(ModelInfo("openai", "m")), shape)
    assert chat["response_format"]["json_schema"]["strict"] is False


def test_gemini_and_ollama_only_without_tools() -> None:
    gemini, ollama = Gemini(ModelInfo("gemini", "m")), OllamaChat(ModelInfo("ollama", "m"))
    assert build_parameters(gemini, PLAIN)["responseMimeType"] == "application/json"
    assert build_parameters(gemini, PLAIN)["responseSchema"]["properties"]["a"]["type"] == "integer"
    assert build_parameters(ollama, PLAIN)["format"] == SCHEMA
    for request in (WITH_TOOLS, ANY):
        assert "responseSchema" not in build_parameters(gemini, request)
        assert "format" not in build_parameters(ollama, request)
