"""Messages requests: the API takes them for every history; stable prefixes; caches that hit (M-02, M-09, M-10,
L-20, L-21, faults 10, 23 and 24)."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from treadle.adapters.models.anthropic import MARK, AnthropicEncoder
from treadle.base.types import make_call_key
from treadle.chat.transcript import repair
from treadle.ports.model import Memo, ModelRequest
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
from treadle.testing.fake_anthropic import find_complaint, make_signature

REF = "anthropic:claude-test"
TOOLS = (
    ToolSpec("read_file", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}}),
    ToolSpec("write_file", parameters={"properties": {}}),
)
MARKED = {"type": "ephemeral"}


def body(request: ModelRequest, encoder: AnthropicEncoder | None = None) -> bytes:
    return (encoder or AnthropicEncoder(REF)).encode_body({"model": "m", "max_tokens": 9}, request)


def encode_request(entries: Sequence[Entry], tools: tuple[ToolSpec, ...] = TOOLS, system: str = "") -> dict[str, Any]:
    raw = body(ModelRequest(system, entries, tools))
    assert find_complaint({"anthropic-version": "x"}, raw) == ""
    payload: dict[str, Any] = msgspec.json.decode(raw)
    return payload


def messages(*entries: Entry) -> list[tuple[str, list[Any]]]:
    """Return roles and blocks, without the breakpoints: text as a string, other blocks as they are."""
    turns = []
    for message in encode_request(entries)["messages"]:
        blocks = [
            {key: value for key, value in block.items() if key != "cache_control"} for block in message["content"]
        ]
        turns.append((message["role"], [block["text"] if block["type"] == "text" else block for block in blocks]))
    return turns


def turn(number: int, *calls: tuple[str, str], text: str = "", thinking: Sequence[Thinking] = ()) -> list[Entry]:
    """An answer with (id, arguments) calls, and its results."""
    tool_requests = tuple(
        ToolRequest(make_call_key(number, at), "read_file", arguments, call_id)
        for at, (call_id, arguments) in enumerate(calls)
    )
    results = tuple(ToolResult(call.call, f"r{call.call}") for call in tool_requests)
    return [AssistantEntry(number, text, tuple(thinking), tool_requests), ResultsEntry(number, results)]


def build_thinking(text: str, place: str = "", model: str = REF) -> Thinking:
    block = msgspec.json.encode({"type": "thinking", "thinking": text, "signature": make_signature(text)}).decode()
    return Thinking(text, f"[{place},{block}]" if place else block, model)


def test_the_shape() -> None:
    entries = [UserEntry("go"), *turn(1, ("i1", '{"path": "a"}'), ("i2", "{}"), text="hm"), UserEntry("faster")]
    assert encode_request(entries, system="be good") == {
        "model": "m",
        "max_tokens": 9,
        "tools": [
            {"name": "read_file", "description": "Reads.", "input_schema": TOOLS[0].parameters},
            {"name": "write_file", "input_schema": {"type": "object", "properties": {}}, "cache_control": MARKED},
        ],
        "system": [{"type": "text", "text": "be good", "cache_control": MARKED}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "go", "cache_control": MARKED}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "hm"},
                    {"type": "tool_use", "id": "i1", "name": "read_file", "input": {"path": "a"}},
                    {"type": "tool_use", "id": "i2", "name": "read_file", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "i1", "content": "r1.0"},
                    {"type": "tool_result", "tool_use_id": "i2", "content": "r1.1"},
                    {"type": "text", "text": "faster", "cache_control": MARKED},
                ],
            },
        ],
    }


def test_no_tools_and_no_system_are_not_sent_and_what_is_asked_once_is_not_cached() -> None:
    assert sorted(encode_request([UserEntry("x")], ())) == ["max_tokens", "messages", "model"]
    once = body(ModelRequest("shorten", [UserEntry("x")], purpose="compaction"))
    assert b"cache_control" not in once


def test_roles_alternate_whatever_the_history() -> None:  # L-20
    turns = messages(UserEntry("a"), UserEntry("b"), AssistantEntry(1, "c"), AssistantEntry(2, "d"), UserEntry("e"))
    assert turns == [("user", ["a", "b"]), ("assistant", ["c", "d"]), ("user", ["e"])]
    (first, _), *_, (last, words) = messages(AssistantEntry(1, "c"))
    assert (first, last, words) == ("user", "user", ["Go on."])
    assert messages() == messages(UserEntry(" ")) == [("user", ["Go on."])]


def test_blank_text_is_not_sent() -> None:
    turns = messages(UserEntry("a"), AssistantEntry(1, " \n"), UserEntry(""), UserEntry("b"))
    assert turns == [("user", ["a", "b"])]
    assert encode_request([UserEntry("a")], system=" \n").keys() == {"model", "max_tokens", "tools", "messages"}
    answer = AssistantEntry(1, "", (), (ToolRequest(make_call_key(1, 0), "f", "{}", "i"),))
    results = ResultsEntry(1, (ToolResult(make_call_key(1, 0), "", False),))
    assert messages(UserEntry("a"), answer, results)[-1] == (
        "user",
        [{"type": "tool_result", "tool_use_id": "i", "content": "(no output)", "is_error": True}],
    )


def test_images_are_named() -> None:
    assert "image/png" in messages(UserEntry("look", images=(Image("image/png", "00"),)))[0][1][0]


def test_ids_are_unique_and_take_the_shape_that_the_api_demands() -> None:  # M-09, fault 23
    entries: list[Entry] = [UserEntry("go")]
    for number, name in enumerate(["same", "same", "", "functions.read:0", "ü", "fine_1"], 1):
        entries += turn(number, (name, "{}"))
    ids = [
        block["id"] for _, blocks in messages(*entries) for block in blocks if isinstance(block, dict) and "id" in block
    ]
    assert ids == ["same", "t00002000", "t00003000", "t00004000", "t00005000", "fine_1"]


def test_broken_calls_do_not_break_the_chat() -> None:  # fault 10
    names = ["", "a b.c", "x" * 200, "grüße"]
    texts = ["{oops", "[1]", '{"a": ' + "[" * 5000, '{"path":"\ud800"}']
    calls = tuple(
        ToolRequest(make_call_key(1, at), name, text, f"i{at}")
        for at, (name, text) in enumerate(zip(names, texts, strict=True))
    )
    results = ResultsEntry(1, tuple(ToolResult(call.call, "\ud800 no") for call in calls))
    tool_uses = messages(UserEntry("go"), AssistantEntry(1, "", (), calls), results)[1][1]
    assert [block["name"] for block in tool_uses] == ["unnamed", "a_b_c", "x" * 128, "gr__e"]
    assert [list(block["input"]) for block in tool_uses] == [["invalid_json"]] * 4
    assert tool_uses[0]["input"] == {"invalid_json": "{oops"}


def test_a_last_answer_keeps_the_tools_and_forbids_them() -> None:
    entries = [UserEntry("go"), *turn(1, ("i", "{}"))]
    encoder, memo = AnthropicEncoder(REF), Memo()
    first_body = body(ModelRequest("s", entries, TOOLS, memo=memo), encoder)
    last = body(ModelRequest("s", [*entries, UserEntry("stop")], memo=memo), encoder)
    assert msgspec.json.decode(last)["tool_choice"] == {"type": "none"}
    assert msgspec.json.decode(last)["tools"] == msgspec.json.decode(first_body)["tools"]
    # After a restart the tools are not known, but the names of those that were called are.
    request_body = encode_request(entries, ())
    assert request_body["tools"] == [{"name": "read_file", "input_schema": {"type": "object"}, "cache_control": MARKED}]
    assert request_body["tool_choice"] == {"type": "none"}


def test_thinking_goes_back_to_its_model_only_and_exactly() -> None:  # M-10, fault 24
    odd = '{"type":"thinking", "thinking":"ü/\\u00fc\\/", "signature":"' + make_signature("ü/ü/") + '","more":1}'
    redacted = '{"type":"redacted_thinking","data":"xyz=="}'
    own_thinking = (Thinking("ü/ü/", odd, REF), Thinking("", redacted, REF))
    foreign = (build_thinking("a", model="anthropic:other"), Thinking("b", model=REF), Thinking("c", "{oops", REF))
    entries = [UserEntry("go"), *turn(1, ("i", "{}"), text="t", thinking=(*own_thinking, *foreign))]
    raw = body(ModelRequest("", entries, TOOLS))
    assert f'"content":[{odd},{redacted},{{"type":"text","text":"t"}},{{"type":"tool_use"'.encode() in raw
    assert [block["type"] for block in msgspec.json.decode(raw)["messages"][1]["content"]] == [
        "thinking",
        "redacted_thinking",
        "text",
        "tool_use",
    ]


def test_thinking_goes_back_to_its_place() -> None:  # M-10: interleaved
    blocks = [
        build_thinking("0"),
        build_thinking("5", "5,0"),
        build_thinking("8", "8,0"),
        build_thinking("c1", "10,1"),
        build_thinking("end", "10,2"),
    ]
    entries = [UserEntry("go"), *turn(1, ("i", "{}"), ("j", "{}"), text="onceuponly", thinking=blocks)]
    order = [
        block if isinstance(block, str) else block.get("thinking", block["type"]) for block in messages(*entries)[1][1]
    ]
    assert order == ["0", "onceu", "5", "pon", "8", "ly", "tool_use", "c1", "tool_use"]
    # A text that was shortened after it was said, and an answer of thinking alone.
    short = AssistantEntry(1, "on", tuple(blocks))
    assert [
        block if isinstance(block, str) else block["thinking"] for block in messages(UserEntry("a"), short)[1][1]
    ] == [
        "0",
        "on",
    ]
    assert messages(UserEntry("a"), AssistantEntry(1, " ", (build_thinking("0"),)), UserEntry("b")) == [
        ("user", ["a", "b"])
    ]


def test_refused_thinking_is_not_sent_again_but_new_thinking_is() -> None:  # M-10
    encoder, memo = AnthropicEncoder(REF), Memo()
    entries = [UserEntry("go"), *turn(1, ("i", "{}"), thinking=[build_thinking("old")])]
    request = ModelRequest("", entries, TOOLS, memo=memo)
    assert b'"thinking":"old"' in body(request, encoder)
    assert encoder.drop_thinking(request)
    assert b'"thinking"' not in body(request, encoder)
    assert not encoder.drop_thinking(request)
    later = ModelRequest("", [*entries, *turn(2, ("j", "{}"), thinking=[build_thinking("new")])], TOOLS, memo=memo)
    raw = body(later, encoder)
    assert (b'"thinking":"old"' in raw, b'"thinking":"new"' in raw) == (False, True)
    new_request = ModelRequest("", entries, TOOLS)
    assert b'"thinking":"old"' in body(new_request, encoder)


def grown(turns: int, calls: int = 2) -> list[list[Entry]]:
    """The entries of each request of a conversation, with a word of the user in the middle."""
    entries: list[Entry] = [UserEntry("go")]
    requests = [list(entries)]
    for number in range(1, turns + 1):
        tool_calls = [(f"i{number}_{at}", "{}") for at in range(calls)]
        entries += turn(number, *tool_calls, thinking=[build_thinking(str(number))])
        if number == turns // 2:
            entries.append(UserEntry("and quickly"))
        requests.append(list(entries))
    return requests


def test_a_request_begins_with_the_bytes_of_the_one_before() -> None:  # L-21
    encoder, memo = AnthropicEncoder(REF), Memo()
    last = b""
    pieces: list[bytes] = []
    for entries in grown(6):
        raw = body(ModelRequest("s", entries, TOOLS, memo=memo), encoder).replace(MARK, b"")
        assert raw.startswith(last)
        last = raw.removesuffix(b"}]}]}")
        pieces_again = list(memo.encode_pieces(entries, lambda: lambda entry: b"encoded again"))
        assert len(pieces_again) > len(pieces)
        assert all(a is b for a, b in zip(pieces, pieces_again, strict=False))
        pieces = pieces_again


class PromptCache:
    """The provider's cache, by its rules: a prefix is written at each breakpoint, and found at one or at most 20 blocks
    before it. It compares the content of the blocks, not their marks."""

    def __init__(self) -> None:
        self._written: set[bytes] = set()

    def read(self, raw: bytes) -> tuple[int, int]:
        """How many blocks were found, and how many had to be written."""
        request = msgspec.json.decode(raw)
        blocks: list[tuple[bytes, bool]] = []
        for kind, content in [("tool", request.get("tools", [])), ("system", request.get("system", []))] + [
            (message["role"], message["content"]) for message in request["messages"]
        ]:
            for block in content:
                unmarked_block = {key: value for key, value in block.items() if key != "cache_control"}
                blocks.append((msgspec.json.encode([kind, unmarked_block]), "cache_control" in block))
        prefixes = [b"".join(unmarked_block for unmarked_block, _ in blocks[: at + 1]) for at in range(len(blocks))]
        marks = [at for at, (_, marked) in enumerate(blocks) if marked]
        assert len(marks) <= 4
        hit = max(
            (at + 1 for mark in marks for at in range(max(0, mark - 20), mark + 1) if prefixes[at] in self._written),
            default=0,
        )
        self._written |= {prefixes[mark] for mark in marks}
        return hit, marks[-1] + 1 - hit


def test_the_providers_cache_is_hit_on_every_turn() -> None:  # M-02
    for calls in (1, 3, 40):  # 40 calls and their results are far more than the cache looks back
        encoder, memo, cache = AnthropicEncoder(REF), Memo(), PromptCache()
        prefix_size = 0
        for entries in grown(6, calls):
            hit_count, write_count = cache.read(body(ModelRequest("s", entries, TOOLS, memo=memo), encoder))
            assert hit_count == prefix_size
            prefix_size = hit_count + write_count
        # A last answer: its tools are the same, so all is found.
        hit_count, _ = cache.read(body(ModelRequest("s", [*entries, UserEntry("stop")], memo=memo), encoder))
        assert hit_count == prefix_size


def test_breakpoints_can_be_left_out() -> None:
    encoder = AnthropicEncoder(REF)
    request = ModelRequest("s", grown(2)[-1], TOOLS)
    assert body(request, encoder).count(MARK) == 4
    assert encoder.change(mark=b"")
    assert b"cache_control" not in body(request, encoder)
    assert not encoder.change(mark=b"")


texts = st.sampled_from(["", " ", "a", "ü\n", "\ud800", '"}]', MARK.decode()])
places = st.sampled_from(["", "0,1", "1,0", "3,3"])
blocks = st.builds(build_thinking, st.sampled_from(["", "hm"]), places, st.sampled_from([REF, "other:x"]))
requests = st.builds(
    lambda name, arguments, call_id: ToolRequest(make_call_key(0, 0), name, arguments, call_id),
    st.sampled_from(["read_file", "", "a.b"]),
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
            st.lists(blocks, max_size=3),
            st.lists(requests, max_size=3),
        ),
        st.builds(
            lambda items: ResultsEntry(0, tuple(items)),
            st.lists(st.builds(ToolResult, st.just(make_call_key(0, 0)), texts, st.booleans()), max_size=3),
        ),
    ),
    max_size=8,
).map(lambda items: list(repair([*(place_entry(entry, at) for at, entry in enumerate(items)), UserEntry("end")])))


@given(entries_of, st.sampled_from([TOOLS, ()]))
def test_no_history_makes_a_request_that_is_refused(entries: list[Entry], tools: tuple[ToolSpec, ...]) -> None:  # L-20
    raw = body(ModelRequest("s", entries, tools))
    assert find_complaint({"anthropic-version": "x"}, raw) == ""


def test_tools_are_encoded_once() -> None:
    encoder = AnthropicEncoder(REF)
    request = ModelRequest("s", [UserEntry("a")], TOOLS)
    tool_lists = {re.search(rb'"tools":(\[.*?\]),"system"', body(request, encoder))[1] for _ in range(3)}  # type: ignore[index]
    assert len(tool_lists) == 1
