"""Reasoning effort on every wire (M-16): the fields for each level, the refusal of a level by a server, and the notice
for a model that has none."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.adapters.models.loopback import Exchange, serving
from tests.wires.case import Reply, reach, write_reply
from treadle.adapters.models.base import check_effort, choose_nearest, parse_levels
from treadle.adapters.models.catalog.lookup import look_up
from treadle.adapters.models.openai_chat.adapter import find_effort_style
from treadle.adapters.models.registry import ModelRegistry
from treadle.errors import InvalidInput, ModelError
from treadle.ports.model import Memo, ModelRequest
from treadle.protocol.content import UserEntry
from treadle.protocol.deltas import NoticeDelta
from treadle.protocol.options import EFFORTS, ReasoningEffort

HELLO = {
    "chat": '{"choices":[{"index":0,"delta":{"content":"Hi."},"finish_reason":"stop"}]}',
    "ollama": '{"message":{"role":"assistant","content":"Hi."},"done":true,"done_reason":"stop"}',
    "gemini": '{"candidates":[{"content":{"parts":[{"text":"Hi."}]},"finishReason":"STOP"}]}',
}
ANTHROPIC = [
    '{"type":"message_start","message":{"usage":{"input_tokens":1,"output_tokens":1}}}',
    '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Hi."}}',
    '{"type":"content_block_stop","index":0}',
    '{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}',
    '{"type":"message_stop"}',
]
RESPONSES = [
    '{"type":"response.output_text.delta","delta":"Hi."}',
    '{"type":"response.completed","response":{"status":"completed","output":[]}}',
]


def greeting(ref: str) -> Reply:
    provider = ref.partition(":")[0]
    if provider == "anthropic":
        return Reply(events=ANTHROPIC)
    if provider == "openai-responses":
        return Reply(events=RESPONSES)
    if provider in ("gemini", "ollama"):
        return Reply(events=[HELLO[provider]])
    return Reply(events=[HELLO["chat"], "[DONE]"])


async def ask(
    ref: str, efforts: Sequence[ReasoningEffort | str], replies: Sequence[Reply] = (), show_reply: str = ""
) -> tuple[list[dict[str, Any]], list[str]]:
    """The requests, and the notices, of one conversation in which each effort is asked for in turn."""
    requests: list[dict[str, Any]] = []
    notices: list[str] = []
    remaining_replies = list(replies)

    async def handle(exchange: Exchange) -> None:
        if exchange.path.endswith("/api/show"):
            await exchange.reply(200 if show_reply else 404, show_reply.encode() or b'{"error":"unknown"}')
            return
        requests.append(exchange.json)
        reply = remaining_replies.pop(0) if remaining_replies else greeting(ref)
        await write_reply(exchange, reply, lines=ref.startswith("ollama:"))

    async with serving(handle) as server:
        registry = ModelRegistry(reach(ref, server.url))
        try:
            model = registry.get(ref)
            request = ModelRequest("", [UserEntry("Hi.")], memo=Memo())
            for effort in efforts:
                effort_request = ModelRequest("", request.entries, memo=request.memo, effort=effort)  # type: ignore[arg-type]
                try:
                    async for deltas in model.stream(effort_request):
                        notices += (delta.text for delta in deltas if isinstance(delta, NoticeDelta))
                except ModelError as error:
                    notices.append(f"error: {error}")
        finally:
            await registry.close()
    return requests, notices


SENT: list[tuple[str, ReasoningEffort, dict[str, Any]]] = [
    ("openai:some-model", "high", {"reasoning_effort": "high"}),
    ("openai-responses:gpt-5.6", "max", {"reasoning": {"effort": "max", "summary": "auto"}}),
    ("openai-responses:some-model", "low", {"reasoning": {"effort": "low", "summary": "auto"}}),
    ("anthropic:claude-opus-5", "xhigh", {"output_config": {"effort": "xhigh"}}),
    ("anthropic:claude-opus-5", "none", {"thinking": {"type": "disabled"}}),
    ("anthropic:claude-sonnet-4-5", "high", {"thinking": {"type": "enabled", "budget_tokens": 16_384}}),
    ("anthropic:claude-sonnet-4-5-20250929", "low", {"thinking": {"type": "enabled", "budget_tokens": 4_096}}),
    (
        "anthropic:deepseek-v4-pro",
        "max",
        {"output_config": {"effort": "max"}, "thinking": {"type": "enabled", "budget_tokens": 4_095}},
    ),
    ("anthropic:deepseek-v4-pro", "none", {"thinking": {"type": "disabled"}}),
    ("gemini:gemini-3.5-flash", "low", {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"}}),
    ("gemini:gemini-2.5-flash", "none", {"thinkingConfig": {"includeThoughts": True, "thinkingBudget": 0}}),
    ("gemini:gemini-2.5-pro", "medium", {"thinkingConfig": {"includeThoughts": True, "thinkingBudget": 8_192}}),
    ("ollama:gpt-oss:20b", "medium", {"think": "medium"}),
    ("ollama:qwen3:8b", "none", {"think": False}),
    ("ollama:qwen3:8b", "high", {"think": True}),
    ("openrouter:anthropic/claude-opus-5", "minimal", {"reasoning": {"effort": "minimal"}}),
    ("mistral:mistral-small-latest", "high", {"reasoning_effort": "high"}),
    ("groq:openai/gpt-oss-120b", "low", {"reasoning_effort": "low"}),
    ("groq:qwen/qwen3-32b", "high", {"reasoning_effort": "default"}),
    ("groq:qwen/qwen3-32b", "none", {"reasoning_effort": "none"}),
    ("xai:grok-4.3", "medium", {"reasoning_effort": "medium"}),
    ("deepseek:deepseek-v4-pro", "max", {"thinking": {"type": "enabled"}, "reasoning_effort": "max"}),
    ("deepseek:deepseek-v4-pro", "none", {"thinking": {"type": "disabled"}}),
    ("together:openai/gpt-oss-120b", "high", {"reasoning_effort": "high"}),
    ("vllm:Qwen/Qwen3-8B", "none", {"chat_template_kwargs": {"enable_thinking": False}}),
    ("llamacpp:some-model", "low", {"chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": "low"}}),
]


@pytest.mark.parametrize(("ref", "effort", "fields"), SENT, ids=[f"{ref}-{effort}" for ref, effort, _ in SENT])
async def test_each_wire_has_its_own_words(ref: str, effort: ReasoningEffort, fields: dict[str, Any]) -> None:
    (request,), notices = await ask(ref, [effort])
    settings = request.get("generationConfig", {}) if ref.startswith("gemini:") else request
    assert {name: settings.get(name) for name in fields} == fields
    assert not notices
    (without,), _ = await ask(ref, [""])
    settings = without.get("generationConfig", {}) if ref.startswith("gemini:") else without
    assert "reasoning_effort" not in settings
    assert "output_config" not in settings
    assert "effort" not in (settings.get("reasoning") or {})
    assert "chat_template_kwargs" not in settings


async def test_a_model_without_reasoning_says_so_once() -> None:
    requests, notices = await ask("openai:gpt-4.1", ["high", "high", "low", "none"])
    assert not any("reasoning_effort" in request for request in requests)
    assert notices == [
        "openai:gpt-4.1 has no reasoning effort; it goes on without high",
        "openai:gpt-4.1 has no reasoning effort; it goes on without low",
    ]


async def test_a_level_that_the_model_does_not_have_becomes_the_nearest() -> None:
    requests, notices = await ask("groq:openai/gpt-oss-120b", ["max"])
    assert requests[0]["reasoning_effort"] == "high"
    assert notices == [
        "groq:openai/gpt-oss-120b takes the reasoning efforts low, medium, high; it is asked for high instead of max"
    ]


OPENAI_REFUSAL = Reply(
    400,
    body='{"error":{"message":"Unsupported value: \'max\' is not supported with the \'m\' model. Supported values are: '
    '\'low\', \'medium\', and \'high\'.","type":"invalid_request_error","param":"reasoning_effort",'
    '"code":"unsupported_value"}}',
)
NO_PARAMETER = Reply(400, body='{"error":{"message":"Unknown parameter: \'reasoning_effort\'.","param":""}}')


async def test_a_server_that_names_its_levels_is_believed() -> None:
    requests, notices = await ask("openai:some-model", ["max", "max", "low"], [OPENAI_REFUSAL])
    assert [request.get("reasoning_effort") for request in requests] == ["max", "high", "high", "low"]
    assert notices == [
        "openai:some-model refuses the reasoning effort max; it takes the levels low, medium, high",
        "openai:some-model takes the reasoning efforts low, medium, high; it is asked for high instead of max",
    ]


async def test_a_server_that_knows_no_effort_is_asked_without() -> None:
    requests, notices = await ask("openai:some-model", ["high", "high"], [NO_PARAMETER])
    assert [request.get("reasoning_effort") for request in requests] == ["high", None, None]
    assert notices[0] == "openai:some-model refuses the reasoning effort high; it takes no reasoning effort"


async def test_a_refusal_of_something_else_keeps_the_effort() -> None:
    refusal = Reply(400, body='{"error":{"message":"reasoning.summary is not supported","param":"reasoning.summary"}}')
    requests, _ = await ask("openai-responses:some-model", ["high"], [refusal])
    assert requests[0]["reasoning"]["effort"] == "high"
    assert "reasoning" not in requests[1]


async def test_a_refusal_that_going_without_does_not_help_is_forgotten() -> None:
    replies = [NO_PARAMETER, Reply(400, body='{"error":{"message":"no"}}')]
    requests, notices = await ask("openai:some-model", ["high", "high"], replies)
    assert [request.get("reasoning_effort") for request in requests] == ["high", None, "high"]
    assert notices[-1].startswith("error: ")


async def test_ollama_says_whether_a_model_thinks() -> None:
    show_reply = '{"capabilities":["completion","tools"],"model_info":{}}'
    (request,), notices = await ask("ollama:some-model", ["high"], show_reply=show_reply)
    assert "think" not in request
    assert notices == ["ollama:some-model has no reasoning effort; it goes on without high"]
    show_reply = '{"capabilities":["completion","thinking"],"model_info":{}}'
    (request,), notices = await ask("ollama:some-model", ["high"], show_reply=show_reply)
    assert (request["think"], notices) == (True, [])


def test_the_border_refuses_what_cannot_be() -> None:
    models = ModelRegistry({"OPENAI_API_KEY": "k"})
    with pytest.raises(InvalidInput, match=r"gpt-4\.1 has no reasoning effort"):
        check_effort(models, "openai:gpt-4.1", "high")
    check_effort(models, "openai:gpt-4.1", "none")
    check_effort(models, "openai:gpt-5", "max")  # the run says that it is asked for less
    check_effort(models, "openai:some-model", "high")


@pytest.mark.parametrize(
    ("effort", "levels", "expected"),
    [
        ("max", ("low", "high"), "high"),
        ("medium", ("low", "high"), "low"),
        ("minimal", ("none", "high"), "high"),
        ("none", ("low", "high"), "low"),
        ("low", ("none",), "none"),
    ],
)
def test_nearest(effort: ReasoningEffort, levels: tuple[ReasoningEffort, ...], expected: ReasoningEffort) -> None:
    assert choose_nearest(effort, levels) == expected


def test_levels_in_the_sentences_of_servers() -> None:
    assert parse_levels("Supported values are: 'low', 'medium', and 'high'.") == ("low", "medium", "high")
    assert parse_levels("`reasoning_effort` must be one of `none` or `default`") == ("none",)
    assert parse_levels("output_config.effort: Input should be 'low', 'medium', 'high' or 'max'") == (
        *("low", "medium", "high", "max"),
    )
    assert parse_levels("reasoning is not available") == ()


def test_what_the_catalogue_knows() -> None:
    assert look_up("openai", "gpt-4.1").efforts == ()
    assert look_up("openai", "some-model").efforts is None
    assert look_up("openai", "gpt-7").efforts is None
    assert look_up("anthropic", "claude-fable-5-1").efforts == ("low", "medium", "high", "xhigh", "max")
    assert look_up("openrouter", "anthropic/claude-opus-5.5").efforts == EFFORTS
    assert look_up("openrouter", "meta-llama/llama-3.3-70b-instruct").efforts == ()
    assert look_up("copilot", "gpt-5.2").efforts == ("none", "low", "medium", "high", "xhigh")
    assert look_up("openai", "gpt-4.1").offered_efforts == ()
    assert look_up("openai", "some-model").offered_efforts == EFFORTS


def test_servers_known_by_their_address() -> None:
    assert find_effort_style("api.z.ai") == "switch"
    assert find_effort_style("api.moonshot.cn") == "switch"
    assert find_effort_style("dashscope-intl.aliyuncs.com") == "qwen"
    assert find_effort_style("api.openai.com") == ""
    assert find_effort_style("notz.ai") == ""
