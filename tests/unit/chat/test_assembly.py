"""Any labelling that real servers use, cut anywhere, gives the calls that the model meant (M-08)."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.errors import ModelError
from treadle.protocol.content import Thinking, Usage
from treadle.protocol.deltas import (
    CallDelta,
    Delta,
    FinishDelta,
    NoticeDelta,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    UsageDelta,
)


def assemble(*deltas: Delta, turn: int = 1) -> ModelAnswer:
    assembler = Assembler(turn)
    assembler.feed(deltas)
    assembler.feed([FinishDelta("tool_calls")])
    return assembler.finish("openai:x")


def calls(*deltas: Delta) -> list[tuple[str, str]]:
    return [(request.name, request.arguments) for request in assemble(*deltas).requests]


C = CallDelta
A, B = '{"p": "a}{"}', '{"q": [1, "\\"]"]}'

TABLE: dict[str, tuple[list[CallDelta], list[tuple[str, str]]]] = {
    "well behaved": (
        [C("i1", 0, "f"), C(index=0, arguments=A), C("i2", 1, "g"), C(index=1, arguments=B)],
        [("f", A), ("g", B)],
    ),
    "in one piece": ([C("i1", 0, "f", A), C("i2", 1, "g", B)], [("f", A), ("g", B)]),
    "by character": (
        [
            C("i1", 0, "f"),
            *(C(index=0, arguments=x) for x in A),
            C("i2", 1, "g"),
            *(C(index=1, arguments=x) for x in B),
        ],
        [("f", A), ("g", B)],
    ),
    "all index 0, ids": (
        [C("i1", 0, "f"), C(index=0, arguments=A), C("i2", 0, "g"), C(index=0, arguments=B)],
        [("f", A), ("g", B)],
    ),
    "all index 0, no ids": ([C(None, 0, "f", A), C(None, 0, "g", B)], [("f", A), ("g", B)]),
    "all index 0, empty ids, name first": (
        [C("", 0, "f"), C("", 0, "", A), C("", 0, "g"), C("", 0, "", B)],
        [("f", A), ("g", B)],
    ),
    "no index, ids": ([C("i1", None, "f"), C(arguments=A), C("i2", None, "g"), C(arguments=B)], [("f", A), ("g", B)]),
    "no index, no ids": ([C(name="f"), C(arguments=A), C(name="g"), C(arguments=B)], [("f", A), ("g", B)]),
    "nothing but whole calls": ([C(name="f", arguments=A), C(name="g", arguments=B)], [("f", A), ("g", B)]),
    "id with every fragment": (
        [C("i1", 0, "f", A[:3]), C("i2", 1, "g", B[:3]), C("i1", 0, None, A[3:]), C("i2", 1, None, B[3:])],
        [("f", A), ("g", B)],
    ),
    "id and name with every fragment": (
        [C("i1", 0, "f", A[:3]), C("i1", 0, "f", A[3:]), C("i1", 0, "f", ""), C("i2", 0, "g", B)],
        [("f", A), ("g", B)],
    ),
    "name with every fragment, no id": (
        [C(None, 0, "f", A[:3]), C(None, 0, "f", A[3:]), C(None, 0, "f", "")],
        [("f", A)],
    ),
    "a known id beats the index": (
        [C("i1", 0, "f", A[:3]), C("i2", 1, "g", B[:3]), C("i1", 1, None, A[3:]), C("i2", 0, None, B[3:])],
        [("f", A), ("g", B)],
    ),
    "interleaved indices": (
        [
            *(C("i1", 0, "f"), C("i2", 1, "g"), C(index=0, arguments=A[:5]), C(index=1, arguments=B[:5])),
            *(C(index=1, arguments=B[5:]), C(index=0, arguments=A[5:])),
        ],
        [("f", A), ("g", B)],
    ),
    "order of first appearance": ([C("i2", 1, "g", B), C("i1", 0, "f", A)], [("g", B), ("f", A)]),
    "equal calls": ([C("i1", 0, "f", A), C("i2", 1, "f", A)], [("f", A), ("f", A)]),
    "equal calls, one id, one index": ([C("i1", 0, "f", A), C("i1", 0, "f", A)], [("f", A), ("f", A)]),
    "equal calls without labels": ([C(name="f", arguments=A), C(name="f", arguments=A)], [("f", A), ("f", A)]),
    "equal calls without labels, name first": (
        [C(name="f"), C(arguments=A), C(name="f"), C(arguments=A)],
        [("f", A), ("f", A)],
    ),
    "the id comes late": ([C(None, 0, "f"), C("i1", 0, None, A)], [("f", A)]),
    "the index comes late": ([C("i1", None, "f"), C(None, 0, None, A)], [("f", A)]),
    "the name comes last": ([C("i1", 0, None, A), C(None, 0, "f")], [("f", A)]),
    "a name in pieces": ([C("i1", 0, "read_"), C(None, 0, "file"), C(None, 0, None, A)], [("read_file", A)]),
    "no name": ([C("i1", 0, None, A)], [("", A)]),
    "no arguments": ([C("i1", 0, "f"), C("i2", 1, "g", " ")], [("f", "{}"), ("g", "{}")]),
    "broken arguments stay as they are": ([C("i1", 0, "f", '{"a": '), C("i2", 0, "g", B)], [("f", '{"a": '), ("g", B)]),
    "broken arguments, no ids": ([C(None, 0, "f", '{"a": '), C(None, 0, "g", B)], [("f", '{"a": '), ("g", B)]),
}


@pytest.mark.parametrize("case", TABLE)
def test_odd_servers(case: str) -> None:  # M-08, fault 9
    fragments, expected = TABLE[case]
    assert calls(*fragments) == expected


def test_keys_come_from_turn_and_position() -> None:  # M-09, fault 23
    answer = assemble(C("same", 0, "f", A), C("same", 0, "f", A), turn=7)
    assert [(request.call, request.id) for request in answer.requests] == [("7.0", "same"), ("7.1", "same")]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(st.text(max_size=5), values, max_size=4).map(
    lambda value: json.dumps(value, ensure_ascii=False)
)
wanted_calls = st.lists(st.tuples(st.sampled_from(["f", "g"]), arguments), min_size=1, max_size=4)


@given(data=st.data(), expected=wanted_calls, style=st.sampled_from(["plain", "zero", "bare", "ids", "echo"]))
def test_any_split_gives_the_same_answer(
    data: st.DataObject, expected: list[tuple[str, str]], style: str
) -> None:  # fault 7
    fragments: list[CallDelta] = []
    for number, (name, text) in enumerate(expected):
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        for place, piece in enumerate(pieces):
            first = place == 0
            match style:
                case "plain":
                    fragments.append(C(f"i{number}" if first else None, number, name if first else None, piece))
                case "zero":
                    fragments.append(C(f"i{number}" if first else "", 0, name if first else None, piece))
                case "bare":
                    fragments.append(C(name=name if first else None, arguments=piece))
                case "ids":
                    fragments.append(C(f"i{number}", None, name if first else None, piece))
                case _:
                    fragments.append(C(f"i{number}", 0, name, piece))
    assert calls(*fragments) == expected


@given(
    st.lists(
        st.builds(
            C,
            st.sampled_from([None, "", "a", "b"]),
            st.sampled_from([None, 0, 1]),
            st.sampled_from([None, "", "f", "g"]),
            st.sampled_from(["", "{}", '{"a":', '"}"}', "}", "\\"]),
        )
    )
)
def test_no_fragment_is_lost_and_nothing_crashes(fragments: list[CallDelta]) -> None:  # fault 9
    positions: list[int] = []
    assembler = Assembler(1, on_call=lambda position, _delta: positions.append(position))
    assembler.feed(fragments)
    assembler.feed([FinishDelta()])
    requests = assembler.finish("m").requests
    assert len(positions) == len(fragments)
    for position, request in enumerate(requests):
        text = "".join(f.arguments for f, at in zip(fragments, positions, strict=True) if at == position)
        assert request.arguments == (text or "{}")


def test_nothing_is_a_call_until_the_stream_ended_well() -> None:  # M-08
    assembler = Assembler(1)
    assembler.feed([TextDelta("so "), TextDelta("far"), C("i1", 0, "f", A)])
    with pytest.raises(ModelError, match="stopped before its end") as caught:
        assembler.finish("openai:x")
    assert caught.value.kind == "cut_stream"
    assert assembler.build_partial_answer("openai:x") == ModelAnswer("so far", finish_reason="interrupted")  # L-07


def test_thinking_is_kept_apart_and_blocks_replace_their_deltas() -> None:  # M-10
    signed = Thinking("whole", opaque='{"s":1}')
    assembler = Assembler(1)
    assembler.feed([ThinkingDelta("wh"), ThinkingDelta("ole"), ThinkingBlock(signed), TextDelta("hi")])
    assembler.feed([ThinkingDelta("more"), UsageDelta(Usage(1, 2)), UsageDelta(Usage(3, 4)), NoticeDelta("k", "n")])
    assert assembler.thinking_text == "wholemore"
    assembler.feed([FinishDelta("stop")])
    answer = assembler.finish("p:m")
    assert answer.thinking == (Thinking("whole", '{"s":1}', "p:m"), Thinking("more", model="p:m"))
    assert (answer.text, answer.usage, answer.finish_reason) == ("hi", Usage(3, 4), "stop")
    assert assembler.notices == [NoticeDelta("k", "n")]


def test_time_is_linear_even_when_every_fragment_repeats_the_name() -> None:  # fault 10: 1 MB of arguments
    def cost(size: int) -> float:
        text = '{"a": "' + "}" * size + '"}'
        began = time.process_time()
        assert calls(*(C("i", 0, "f", char) for char in text)) == [("f", text)]
        return time.process_time() - began

    cost(1_000)
    small, large = cost(8_000), cost(128_000)
    assert large < 90 * small  # quadratic would be 256 times


def test_a_known_id_wins_in_the_middle_of_its_arguments_whatever_the_name_is() -> None:  # M-08
    assembler = Assembler(1)
    assembler.feed([CallDelta("a", 0, "read", '{"path": '), CallDelta("a", 0, "write", '"x"}'), FinishDelta("stop")])
    (call,) = assembler.finish("p:m").requests
    assert (call.id, call.name, call.arguments) == ("a", "read", '{"path": "x"}')
