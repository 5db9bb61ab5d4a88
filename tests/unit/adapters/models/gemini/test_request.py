"""generateContent requests: the API takes them for every history; signatures where they stood; stable prefixes
(M-03, M-09, M-10, L-20, L-21, faults 10, 23 and 24)."""

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from treadle.adapters.models.gemini.adapter import STAND_IN, GeminiEncoder, GeminiReader
from treadle.base.types import make_call_key
from treadle.chat.assembly import Assembler
from treadle.chat.transcript import repair
from treadle.ports.model import Memo, ModelInfo, ModelRequest
from treadle.protocol.content import (
    AssistantEntry,
    Entry,
    Image,
    ResultsEntry,
    Thinking,
    ToolRequest,
    ToolResult,
    UserEntry,
)
from treadle.protocol.tools import ToolSpec
from treadle.testing.fake_gemini import find_complaint

INFO = ModelInfo("gemini", "gemini-test")
REF = INFO.ref
TOOLS = (
    ToolSpec("read_file", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}}),
    ToolSpec("write_file", parameters={"properties": {}, "additionalProperties": False}),
)
SIGNED = ("s1", "s2", "s3", "s4", "CgA/+==")


def body(request: ModelRequest, encoder: GeminiEncoder | None = None) -> bytes:
    return (encoder or GeminiEncoder(REF)).encode_body({"maxOutputTokens": 9}, request)


def encode_request(
    entries: Sequence[Entry], encoder: GeminiEncoder | None = None, strict: bool = False
) -> dict[str, Any]:
    raw = body(ModelRequest("", entries, TOOLS), encoder)
    assert find_complaint(raw, SIGNED, strict=strict) == ""
    request_body: dict[str, Any] = msgspec.json.decode(raw)
    return request_body


def contents(*entries: Entry) -> list[tuple[str, list[Any]]]:
    """Return roles and parts: text as a string, other parts as they are."""
    turns = []
    for content in encode_request(entries)["contents"]:
        parts = [part["text"] if part.keys() == {"text"} else part for part in content["parts"]]
        turns.append((content["role"], parts))
    return turns


def turn(number: int, *calls: tuple[str, str], text: str = "", thinking: Sequence[Thinking] = ()) -> list[Entry]:
    """An answer with (id, arguments) calls, and its results."""
    tool_requests = tuple(
        ToolRequest(make_call_key(number, at), "read_file", arguments, call_id)
        for at, (call_id, arguments) in enumerate(calls)
    )
    results_entry = ResultsEntry(number, tuple(ToolResult(call.call, f"result {call.call}") for call in tool_requests))
    answer = AssistantEntry(number, text, tuple(thinking), tool_requests)
    return [answer, results_entry] if tool_requests else [answer]


def signature(opaque: str, text: str = "", model: str = REF) -> Thinking:
    return Thinking(text, opaque, model)


ON_CALL = '[2,0,{"on":"call","thoughtSignature":"CgA/+=="}]'


def test_the_shape() -> None:
    entries = [UserEntry("go"), *turn(1, ("i", '{ "path": "ä" }'), text="ok", thinking=[signature(ON_CALL, "hm")])]
    entries[-1] = ResultsEntry(1, (ToolResult(make_call_key(1, 0), "no such file", success=False),))
    raw = body(ModelRequest("Be brief.", entries, TOOLS))
    assert find_complaint(raw, SIGNED, strict=True) == ""
    assert msgspec.json.decode(raw) == {
        "generationConfig": {"maxOutputTokens": 9},
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "read_file", "description": "Reads.", "parametersJsonSchema": TOOLS[0].parameters},
                    {
                        "name": "write_file",
                        "description": "write_file",
                        "parametersJsonSchema": {"type": "object", "properties": {}, "additionalProperties": False},
                    },
                ]
            }
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
        "contents": [
            {"role": "user", "parts": [{"text": "go"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "ok"},
                    {
                        "functionCall": {"id": "i", "name": "read_file", "args": {"path": "ä"}},
                        "thoughtSignature": "CgA/+==",
                    },
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "i", "name": "read_file", "response": {"error": "no such file"}}}
                ],
            },
        ],
    }
    assert b'"args":{ "path": "\xc3\xa4" }' in raw  # as the model wrote it


def test_no_tools_no_system_and_no_parameters_are_not_sent() -> None:
    raw = GeminiEncoder(REF).encode_body({}, ModelRequest(" \n", [UserEntry("hi")]))
    assert raw == b'{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}'


def test_schemas_can_be_reduced() -> None:
    encoder = GeminiEncoder(REF)
    body(ModelRequest("", [UserEntry("a")], TOOLS), encoder)
    encoder.change(reduced=True)
    declared = encode_request([UserEntry("a")], encoder)["tools"][0]["functionDeclarations"]
    assert declared == [
        {"name": "read_file", "description": "Reads.", "parameters": TOOLS[0].parameters},
        {"name": "write_file", "description": "write_file"},
    ]


def test_roles_alternate_whatever_the_history() -> None:  # L-20
    assert contents() == [("user", ["Go on."])]
    assert contents(UserEntry("a"), UserEntry(""), UserEntry("b")) == [("user", ["a", "b"])]
    untold = ("user", ["(The beginning of the conversation is left out.)"])
    assert contents(*turn(1, text="x"), *turn(2, text="y")) == [untold, ("model", ["x", "y"]), ("user", ["Go on."])]
    assert contents(*turn(1, text="x"), UserEntry("b")) == [untold, ("model", ["x"]), ("user", ["b"])]
    assert contents(UserEntry("a"), *turn(1), UserEntry("b")) == [("user", ["a", "b"])]
    steered = contents(UserEntry("a"), *turn(1, ("i", "{}")), UserEntry("wait"))
    assert [role for role, _ in steered] == ["user", "model", "user"]
    assert steered[-1][1][1] == "wait"


def test_images_are_named() -> None:
    entry = UserEntry("look", images=(Image("image/png", "abc"),))
    assert "image/png" in contents(entry)[0][1][0]


def test_ids_are_sent_where_all_of_a_turn_can_be_and_no_others() -> None:  # M-09, fault 23
    entries: list[Entry] = [UserEntry("go")]
    entries += turn(1, ("a", "{}"), ("b", "{}"))  # both are sent
    entries += turn(2, ("", "{}"), ("c", "{}"))  # one is missing
    entries += turn(3, ("d", "{}"), ("d", "{}"))  # one comes twice
    entries += turn(4, ("a", "{}"))  # taken by another turn
    parts = [part for content in encode_request(entries)["contents"] for part in content["parts"]]
    for key in ("functionCall", "functionResponse"):
        assert [part[key].get("id") for part in parts if key in part] == ["a", "b", *[None] * 5]
    outputs = [part["functionResponse"]["response"]["output"] for part in parts if "functionResponse" in part]
    assert outputs == [f"result {key}" for key in ("1.0", "1.1", "2.0", "2.1", "3.0", "3.1", "4.0")]


def test_broken_calls_do_not_break_the_chat() -> None:  # fault 10
    calls = tuple(
        ToolRequest(make_call_key(1, at), name, arguments)
        for at, (name, arguments) in enumerate([("", "{"), ("9 lives", "[1]"), ("-x", ""), ("ok", '{"\ud800":1}')])
    )
    results = ResultsEntry(1, tuple(ToolResult(call.call, "\ud800") for call in calls))
    sent_contents = encode_request([UserEntry("a"), AssistantEntry(1, "", (), calls), results])["contents"]
    function_calls = [part["functionCall"] for part in sent_contents[1]["parts"]]
    assert [call["name"] for call in function_calls] == ["unnamed", "_9_lives", "_-x", "ok"]
    assert [call["args"] for call in function_calls[:3]] == [
        {"invalid_json": "{"},
        {"invalid_json": "[1]"},
        {"invalid_json": ""},
    ]
    assert [part["functionResponse"]["name"] for part in sent_contents[2]["parts"]] == [
        call["name"] for call in function_calls
    ]


def test_signatures_go_back_to_their_model_only() -> None:  # M-10, fault 24
    foreign = signature(ON_CALL, "hm", "gemini:gemini-other")
    unsigned = Thinking("hm", "", REF)
    strange = [signature(opaque) for opaque in ("x", "[1", '{"on":"call"}', '{"on":"dance","thoughtSignature":"s1"}')]
    raw = body(ModelRequest("", [UserEntry("a"), *turn(1, ("i", "{}"), thinking=[foreign, unsigned, *strange])]))
    assert b"thought" not in raw
    assert b"hm" not in raw


def test_calls_that_nobody_signed_get_a_stand_in_where_the_model_demands_it() -> None:  # M-10
    entries = [UserEntry("a"), *turn(1, ("i", "{}"), ("j", "{}"))]
    entries += turn(2, ("k", "{}"), thinking=[signature('{"on":"call","thoughtSignature":"s1"}')])
    encoder = GeminiEncoder(REF, stand_in=True)
    memo = Memo()

    def collect_signatures(strict: bool) -> list[str | None]:
        raw = body(ModelRequest("", entries, memo=memo), encoder)
        assert find_complaint(raw, SIGNED, strict=strict) == ""
        parts = [part for content in msgspec.json.decode(raw)["contents"] for part in content["parts"]]
        return [part.get("thoughtSignature") for part in parts if "functionCall" in part]

    assert collect_signatures(strict=True) == [STAND_IN, None, "s1"]  # one stands for all calls of a turn
    encoder.change(stand_in=False)
    assert collect_signatures(strict=False) == [None, None, "s1"]


def test_refused_signatures_are_not_sent_again_but_new_ones_are() -> None:  # M-10
    entries = [UserEntry("a"), *turn(1, ("i", "{}"), thinking=[signature('{"on":"call","thoughtSignature":"s1"}')])]
    encoder, memo = GeminiEncoder(REF), Memo()
    request = ModelRequest("", entries, memo=memo)
    assert b"s1" in body(request, encoder)
    assert encoder.drop_thinking(request)
    assert b"s1" not in body(request, encoder)
    assert not encoder.drop_thinking(request)
    entries += turn(2, ("j", "{}"), thinking=[signature('{"on":"call","thoughtSignature":"s2"}')])
    again = body(ModelRequest("", entries, memo=memo), encoder)
    assert (b"s1" in again, b"s2" in again) == (False, True)


def test_a_request_begins_with_the_bytes_of_the_one_before() -> None:  # L-21
    encoder, memo = GeminiEncoder(REF), Memo()
    entries: list[Entry] = [UserEntry("go")]
    prefix = b""
    for number in range(1, 12):
        raw = body(ModelRequest("s", list(entries), TOOLS, memo=memo), encoder)
        assert raw == body(ModelRequest("s", list(entries), TOOLS))  # and it is what it would be from scratch
        assert raw.startswith(prefix)
        prefix = raw[: -len(b"]}]}")]
        thinking = [signature(f'{{"on":"call","thoughtSignature":"s{number % 4 + 1}"}}')]
        entries += turn(number, (f"i{number}", "{}"), ("", "{}"), thinking=thinking)
        if number % 3 == 0:
            entries.append(UserEntry(f"steer {number}"))


def record_answer(parts: list[dict[str, Any]]) -> AssistantEntry:
    """Return the entry that the log records for a stream of these parts."""
    reader, assembler = GeminiReader("x", INFO), Assembler(1)
    for part in parts:
        chunk = {"candidates": [{"content": {"parts": [part]}}]}
        assembler.feed(reader.feed(b"data: " + msgspec.json.encode(chunk) + b"\n\n"))
    assembler.feed(reader.feed(b'data: {"candidates":[{"finishReason":"STOP"}]}\n\n'))
    assembler.feed(reader.end())
    answer = assembler.finish(REF)
    entry = AssistantEntry(1, answer.text, answer.thinking, answer.requests)
    return msgspec.json.decode(msgspec.json.encode(entry), type=AssistantEntry)


marks = st.sampled_from([{}, {"thoughtSignature": "s1"}, {"thoughtSignature": "s2/+=="}])
text_parts = st.builds(lambda text, mark: {"text": text} | mark, st.sampled_from(["a", "ü🧵", "\n"]), marks)
silent = st.builds(lambda mark: {"text": ""} | mark, marks)
thoughts = st.builds(lambda text, mark: {"text": text, "thought": True} | mark, st.sampled_from(["", "hm", "ü"]), marks)
call_parts = st.builds(lambda mark: {"functionCall": {"name": "f", "args": {}}} | mark, marks)


@given(
    st.lists(st.one_of(text_parts, silent, thoughts), max_size=6),
    st.lists(st.one_of(call_parts, silent, thoughts), max_size=6),
)
def test_every_signed_part_goes_back_as_it_came_and_where_it_stood(
    first_parts: list[dict[str, Any]], last_parts: list[dict[str, Any]]
) -> None:  # M-10
    parts = first_parts + last_parts
    entry = record_answer(parts)
    calls = ResultsEntry(1, tuple(ToolResult(call.call, "r") for call in entry.calls))
    raw = body(ModelRequest("", [UserEntry("a"), entry, *([calls] if entry.calls else [])]))
    models = [content for content in msgspec.json.decode(raw)["contents"] if content["role"] == "model"]
    returned = models[0]["parts"] if models else []
    # Parts without a signature may be joined, and unsigned thoughts stay here; all else is as it was.
    expected_parts = [part for part in parts if "thoughtSignature" in part or "functionCall" in part]
    assert [part for part in returned if "thoughtSignature" in part or "functionCall" in part] == expected_parts
    text = "".join(part["text"] for part in parts if "text" in part and "thought" not in part)
    assert "".join(part["text"] for part in returned if "text" in part and "thought" not in part) == text


texts = st.sampled_from(["", " ", "a", "ü\n", "\ud800", '"}]', '{"role":"model","parts":['])
opaques = st.sampled_from(
    [
        "",
        "[",
        '{"on":"call","thoughtSignature":"s1"}',
        '[0,1,{"on":"call","thoughtSignature":"s1"}]',
        '[1,7,{"on":"text","thoughtSignature":"s2"}]',
        '[1,0,{"on":"text","thoughtSignature":"s2","length":9}]',
        '[9,0,{"on":"thought","thoughtSignature":"s3","length":9}]',
    ]
)
requests = st.builds(
    lambda name, arguments, call_id: ToolRequest(make_call_key(0, 0), name, arguments, call_id),
    st.sampled_from(["read_file", "", "a.b", "9"]),
    st.sampled_from(["{}", "", "{", "null", '{"a":1}']),
    st.sampled_from(["", "i", "j", "?"]),
)


def place_entry(entry: Entry, at: int) -> Entry:
    """The entry as that of turn `at`; results answer some calls of the turn before."""
    match entry:
        case AssistantEntry(calls=calls):
            renumbered_calls = tuple(
                msgspec.structs.replace(call, call=make_call_key(at, i)) for i, call in enumerate(calls)
            )
            return msgspec.structs.replace(entry, turn=at, calls=renumbered_calls)
        case ResultsEntry(results=results):
            named_results = tuple(
                msgspec.structs.replace(r, call=make_call_key(at - 1, i)) for i, r in enumerate(results)
            )
            return ResultsEntry(at - 1, named_results)
        case _:
            return entry


entries_of = st.lists(
    st.one_of(
        st.builds(UserEntry, texts),
        st.builds(
            lambda text, thinking, calls: AssistantEntry(0, text, tuple(thinking), tuple(calls)),
            texts,
            st.lists(st.builds(signature, opaques, texts, st.sampled_from([REF, "other:x"])), max_size=3),
            st.lists(requests, max_size=3),
        ),
        st.builds(
            lambda items: ResultsEntry(0, tuple(items)),
            st.lists(st.builds(ToolResult, st.just(make_call_key(0, 0)), texts, st.booleans()), max_size=3),
        ),
    ),
    max_size=8,
).map(lambda items: [place_entry(entry, at) for at, entry in enumerate(items)])
last = st.sampled_from([UserEntry("end"), AssistantEntry(99, "and")])


@given(entries_of, last, st.booleans())
def test_no_history_makes_a_request_that_is_refused(entries: list[Entry], last: Entry, strict: bool) -> None:  # L-20
    repaired = list(repair([*entries, last]))
    raw = body(ModelRequest("s", repaired, TOOLS), GeminiEncoder(REF, stand_in=strict))
    assert find_complaint(raw, SIGNED, strict=strict) == ""
