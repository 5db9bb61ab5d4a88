"""The ladder around a model: which rung, what the model is told on it, and what its answers mean (M-07)."""

from collections.abc import AsyncIterator, Sequence

import pytest

from treadle.adapters.models.capability_ladder import Ladder, is_tool_refusal
from treadle.adapters.models.openai_chat.adapter import OpenAIChat
from treadle.adapters.models.scripted import Call, Fail, Say, ScriptedModel, Turn
from treadle.base.types import CallKey, JsonObject
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.errors import ModelError
from treadle.ports.model import Memo, Model, ModelInfo, ModelRequest
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, ToolRequest, ToolResult, UserEntry
from treadle.protocol.deltas import Delta, FinishDelta, NoticeDelta, TextDelta
from treadle.protocol.tools import ToolSpec
from treadle.testing.fake_openai import FakeOpenAI, Reply

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = (ToolSpec("read_file", "Reads a file.", SCHEMA), ToolSpec("write_file", "Writes “it”.", SCHEMA))
CALL = '<tool_call>\n{"name": "read_file", "arguments": {"path": "a"}}\n</tool_call>'
REQUEST = '{"path":"a"}'
REFUSAL = "my-model does not support tools"


class Watched:
    """Lets a model answer and keeps what reached it."""

    def __init__(self, inner: Model) -> None:
        self.inner = inner
        self.seen: list[ModelRequest] = []
        self.closed = 0

    @property
    def info(self) -> ModelInfo:
        return self.inner.info

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        self.seen.append(request)
        try:
            async for deltas in self.inner.stream(request):
                yield deltas
        finally:
            self.closed += 1

    async def close(self) -> None:
        await self.inner.close()


def ladder(*turns: Turn | Say | Sequence[Say | Call], info: ModelInfo | None = None) -> tuple[Ladder, Watched]:
    watched = Watched(ScriptedModel(turns, follow="calls", info=info))
    return Ladder(watched), watched


async def ask(model: Model, request: ModelRequest) -> tuple[ModelAnswer, list[NoticeDelta], list[str]]:
    assembler = Assembler(1)
    texts: list[str] = []
    async for deltas in model.stream(request):
        assembler.feed(deltas)
        texts += [delta.text for delta in deltas if isinstance(delta, TextDelta)]
    return assembler.finish(model.info.ref), assembler.notices, texts


def build_request(text: str = "Hi.", rung: str = "", tools: tuple[ToolSpec, ...] = TOOLS) -> ModelRequest:
    return ModelRequest("Be good.", [UserEntry(text)], tools, rung=rung)  # type: ignore[arg-type]


def calls(answer: ModelAnswer) -> list[tuple[str, str, bool]]:
    return [(request.name, request.arguments, request.repaired) for request in answer.requests]


# -- the text rung ----------------------------------------------------------------------------------------------------


async def test_text_is_shown_and_calls_come_at_the_end() -> None:
    model, watched = ladder(Turn((Say(f"I look.\n\n{CALL}\n{CALL}"),), chunk=3))
    answer, notices, texts = await ask(model, build_request(rung="text"))
    assert (answer.text, answer.finish_reason) == ("I look.", "tool_calls")
    assert calls(answer) == [("read_file", REQUEST, False)] * 2
    assert "".join(texts) == "I look."
    assert len(texts) > 1
    assert [notice.kind for notice in notices] == ["rung"]
    (request,) = watched.seen
    assert request.tools == ()
    assert request.system.startswith("Be good.\n# Tools\n")
    assert '{"name":"read_file","description":"Reads a file.","parameters":' in request.system
    assert '{"name": "read_file", "arguments": {"path":"…"}}' in request.system
    assert watched.closed == 1


async def test_a_call_that_was_cut_off_is_marked() -> None:  # P-04
    model, _ = ladder(Say('<tool_call>{"name": "write_file", "arguments": {"path": "a'))
    answer, _, _ = await ask(model, build_request(rung="text"))
    assert calls(answer) == [("write_file", REQUEST, True)]


async def test_half_a_call_is_told_and_not_shown() -> None:
    model, _ = ladder(Turn((Say('Hm. <tool_call>{"na'),), chunk=1))
    answer, notices, texts = await ask(model, build_request(rung="text"))
    assert (answer.text, answer.requests) == ("Hm.", ())
    assert "".join(texts) == "Hm."
    assert "half a tool call" in notices[-1].text


async def test_without_tools_no_call_is_made_and_no_markup_shown() -> None:  # L-03: the last answer
    model, watched = ladder(Say(f"That is it. {CALL}"))
    answer, notices, _ = await ask(model, build_request(rung="text", tools=()))
    assert (answer.text, answer.requests, notices, answer.finish_reason) == ("That is it.", (), [], "stop")
    assert watched.seen[0].system == "Be good."


HISTORY: list[Entry] = [
    UserEntry("Read both."),
    AssistantEntry(
        1,
        "I read.",
        calls=(
            ToolRequest(CallKey("1.0"), "read_file", '{"path": "a"}', "id1"),
            ToolRequest(CallKey("1.1"), "read_file", '{"path": ', "id2"),
        ),
    ),
    ResultsEntry(1, (ToolResult(CallKey("1.0"), "A</tool_response>"), ToolResult(CallKey("1.1"), "broken", False))),
]


async def test_the_conversation_is_retold_and_stays_the_same_objects() -> None:  # L-21, law 13
    model, watched = ladder(Say("one"), Say("two"), Say("three"))
    memo = Memo()
    more: list[Entry] = [*HISTORY, AssistantEntry(2, "one"), UserEntry("Go on.")]
    for entries in (HISTORY, more, more[:1]):
        await ask(model, ModelRequest("s", list(entries), TOOLS, rung="text", memo=memo))
    first, second, third = (list(request.entries) for request in watched.seen)
    assert first[1] == AssistantEntry(
        1,
        'I read.\n<tool_call>\n{"name": "read_file", "arguments": {"path": "a"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "read_file", "arguments": {"invalid_json":"{\\"path\\": "}}\n</tool_call>',
    )
    assert isinstance(first[2], UserEntry)
    assert first[2].text == (
        '<tool_response name="read_file">\nA<\\/tool_response>\n</tool_response>\n'
        '<tool_response name="read_file" status="error">\nbroken\n</tool_response>'
    )
    assert all(old is new for old, new in zip(first, second[:3], strict=True))
    assert second[3:] == more[3:]
    assert third == more[:1]


async def test_a_chat_is_told_once() -> None:
    model, _ = ladder(Say("one"), Say("two"), Say("three"), info=ModelInfo("p", "small", native_tools=False))
    memo = Memo()
    notice_texts = [
        [notice.text for notice in (await ask(model, ModelRequest("", [UserEntry("x")], TOOLS, memo=each)))[1]]
        for each in (memo, memo, Memo())
    ]
    sentence = "p:small calls tools in its text instead of by its protocol; expect more mistakes"
    assert notice_texts == [[sentence], [], [sentence]]


async def test_plain_neither_tells_of_tools_nor_looks_for_calls() -> None:
    model, watched = ladder(Say(CALL))
    answer, notices, _ = await ask(model, ModelRequest("s", HISTORY, TOOLS, rung="plain"))
    assert (answer.text, answer.requests) == (CALL, ())
    assert (watched.seen[0].system, watched.seen[0].tools) == ("s", ())
    assert not any(isinstance(entry, ResultsEntry) for entry in watched.seen[0].entries)
    assert "without tools" in notices[0].text


# -- which rung -------------------------------------------------------------------------------------------------------


async def test_a_refused_tools_field_is_one_rung_down_for_good() -> None:
    def script(request: JsonObject) -> Reply:
        if "tools" in request:
            return Reply(status=400, error={"message": REFUSAL, "type": "api_error"})
        return Reply(text=CALL)

    with FakeOpenAI(script) as fake:
        model = Ladder(OpenAIChat(ModelInfo("openai", "my-model"), base_url=fake.base_url))
        first = await ask(model, build_request())
        second = await ask(model, build_request())
        await model.close()
    assert calls(first[0]) == calls(second[0]) == [("read_file", REQUEST, False)]
    assert [notice.kind for notice in first[1]] == ["rung"]
    assert ["tools" in request for request in fake.requests] == [True, False, False]
    assert first[0].usage == second[0].usage


async def test_a_forced_rung_is_kept() -> None:
    model, watched = ladder(Turn((Fail("bad_request", REFUSAL, times=0, status=400),)))
    with pytest.raises(ModelError, match="does not support"):
        await ask(model, build_request(rung="native"))
    with pytest.raises(ModelError):
        await ask(model, build_request(rung="text"))
    assert [request.tools for request in watched.seen] == [TOOLS, ()]


async def test_a_refusal_after_the_first_word_is_a_failure() -> None:
    model, watched = ladder(Turn((Say("Well"), Fail("bad_request", REFUSAL, times=0, status=400))))
    with pytest.raises(ModelError):
        await ask(model, build_request())
    assert len(watched.seen) == 1


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (400, "registry.ollama.ai/library/gemma:2b does not support tools"),
        (404, "No endpoints found that support tool use. Try disabling one."),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (500, "tools param requires --jinja flag"),
        (500, "Unsupported param: tools"),
        (400, "Unsupported parameter: 'tools' is not supported with this model."),
        (400, "`tool calling` is not supported with this model"),
        (400, "deepseek-reasoner does not support Function Calling"),
        (400, "Function calling is not enabled for models/gemma-3-27b-it"),
        (422, "body.tools: Extra inputs are not permitted"),
        (400, "Unknown name: tools"),
    ],
)
def test_refusals_of_tools(status: int, sentence: str) -> None:
    kind = "overloaded" if status == 500 else "bad_request"
    assert is_tool_refusal(ModelError(kind, f"localhost answered {status}: {sentence}", status=status))


@pytest.mark.parametrize(
    ("kind", "status", "sentence"),
    [
        ("bad_request", 400, "Invalid schema for function 'x': 'oneOf' is not permitted"),
        ("bad_request", 400, "tools.0.custom.name: String should match pattern; unexpected"),
        ("bad_request", 400, "Unsupported value: 'temperature' does not support 0.1 with this model"),
        ("bad_request", 400, "Unknown parameter tools[2].function.strict"),
        ("rate_limit", 429, "tools are not supported at this rate"),
        ("overloaded", 503, "the model is overloaded"),
        ("auth", 401, "tools are not available for this key"),
    ],
)
def test_other_failures(kind: str, status: int, sentence: str) -> None:
    assert not is_tool_refusal(ModelError(kind, sentence, status=status))  # type: ignore[arg-type]


# -- the native rung --------------------------------------------------------------------------------------------------


async def test_native_requests_and_answers_pass_as_they_are() -> None:
    model, watched = ladder((Say("I  look [at] `it` <now>\n"), Call("read_file", path="a")))
    request = build_request()
    answer, notices, _ = await ask(model, request)
    assert watched.seen[0] is request
    assert answer.text == "I  look [at] `it` <now>\n"
    assert [tool_request.name for tool_request in answer.requests] == ["read_file"]
    assert notices == []


async def test_a_call_in_the_text_is_one_if_nothing_else_can_be_meant() -> None:
    model, _ = ladder(Turn((Say(f"I look.\n{CALL}"),), chunk=4))
    answer, notices, texts = await ask(model, build_request())
    assert calls(answer) == [("read_file", REQUEST, False)]
    assert answer.finish_reason == "tool_calls"
    assert answer.text == "".join(texts) == "I look.\n"  # shown before the call was seen
    assert [notice.kind for notice in notices] == ["text_call"]


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "read_file", "arguments": {"path": "a"}}',
        '```json\n{"name": "read_file", "arguments": {"path": "a"}}\n```',
        f"```xml\n{CALL}\n```",
        f"```\n{CALL}\n```\n",
        "Write `<tool_call>{}</tool_call>` so.",
        CALL.replace("read_file", "fly"),
        f"{CALL}\n{CALL.replace('read_file', 'fly')}",
        "The tag <tool_call> begins it. \n",
        "<tool_call>\n",
        "Half a <tool_c",
        " [TOOL_CALLS] ",
    ],
)
@pytest.mark.parametrize("chunk", [0, 1])
async def test_anything_in_doubt_stays_text_to_the_letter(text: str, chunk: int) -> None:
    model, _ = ladder(Turn((Say(text),), chunk=chunk))
    answer, notices, texts = await ask(model, build_request())
    assert answer.text == "".join(texts) == text
    assert (answer.requests, notices, answer.finish_reason) == ((), [], "stop")


async def test_native_calls_count_and_text_beside_them_is_text() -> None:
    model, _ = ladder((Say(CALL), Call("write_file", path="b")))
    answer, _, _ = await ask(model, build_request())
    assert answer.text == CALL
    assert calls(answer) == [("write_file", '{"path":"b"}', False)]


async def test_without_tools_nothing_is_looked_for() -> None:
    model, watched = ladder(Say(CALL))
    request = build_request(tools=())
    answer, _, _ = await ask(model, request)
    assert (answer.text, answer.requests) == (CALL, ())
    assert watched.seen[0] is request


@pytest.mark.parametrize("rung", ["native", "text", "plain"])
async def test_closing_the_stream_closes_the_models_own(rung: str) -> None:
    model, watched = ladder(Turn((Say("one two three four"),), chunk=2))
    stream = model.stream(build_request(rung=rung))
    batch: Sequence[Delta] = ()
    while not any(isinstance(delta, TextDelta) for delta in batch):
        batch = await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    assert watched.closed == 1
    assert not any(isinstance(delta, FinishDelta) for delta in batch)
