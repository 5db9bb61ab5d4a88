"""Properties of any text: nothing crashes, every split gives the same, any call in any notation is found in any prose,
and the time is linear (P-01, P-02, P-07)."""

# ruff: noqa: RUF001
import json
import re
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from tests.faults.chance import examples, some
from tests.unit.adapters.models.text_calls.corpus import CASES, KNOWN
from treadle.adapters.models.text_calls import Scanner, TextCall, detect_partial, extract, strip

pytestmark = pytest.mark.thorough(one_of=12)

PIECES = sorted(
    {
        *(case.text for case in CASES if len(case.text) < 60),
        *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "<function=f>", "<parameter=x>"),
        *("</parameter>", "</function>", '<invoke name="a">', "<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>", "function"),
        *(
            "```",
            "```json\n",
            "\n```",
            "`",
            "``",
            "\n",
            " ",
            "{",
            "}",
            "[",
            "]",
            '"',
            "'",
            "“",
            "”",
            ":",
            ",",
            "=",
            "(",
        ),
        *('"name": "read_file"', '{"name": "read_file", "arguments": {"path": "x"}}', "read_file", '(path="x")'),
        *("<arg_key>a</arg_key>", "<arg_value>", "</arg_value>", "\\", "\\u00", "1", "-", ".5", "tru", "//", "/*", "#"),
        *("<|channel|>", "commentary to=functions.now ", "<|message|>", "<|call|>", "<|start|>assistant", "<|end|>"),
        *("analysis", "<|tool_call>", "call:now{", '<|"|>', "<tool_call|>", "<|tools_prefix|>", '{"now": {}}'),
        *("]<]minimax[>[", "<path>", "</path>", "</invoke>", "<|open|>", "<|sep|>", "<|close|>", "call", "argument"),
        *("<|open|>tools<|sep|>", '<|open|>call tool="now"<|sep|>', ">>>", "now\n", "all\n", "<|recipient|>", "]"),
        *("<|content|>", '<function name="now">', '<param name="x">', "</param>", "response<|sep|>", "think<|sep|>"),
        *("<think>", "</think>", "~~~", '"""', "<tools>", '{"id":', '{"tool_calls": [', "<", "</", "<|eom_id|>", "x"),
    }
)
soup = st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=14).map("".join)
"""Texts that are full of what a call is made of."""
tool_names = st.sampled_from([KNOWN, None])
fast = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(soup | st.text(), tool_names)
@settings(fast, max_examples=examples(200))
def test_no_text_crashes_it(text: str, names: tuple[str, ...] | None) -> None:
    extraction = extract(text, names)
    for call in extraction.calls:
        assert call.name
        msgspec.json.encode(call.arguments)
    at = detect_partial(text)
    assert at is None or 0 <= at <= len(text)
    if not extraction.calls and not re.search(r"<|\[T", text):
        assert extraction.text == text
    assert len(strip(text, names)) <= len(text)


@given(soup, tool_names, st.data())
@settings(fast, max_examples=examples(200))
def test_every_split_gives_the_same(text: str, names: tuple[str, ...] | None, data: st.DataObject) -> None:
    extraction = extract(text, names)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4) | st.just(list(range(len(text))))))
    scanner = Scanner(names)
    shown_text = ""
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        shown_text += scanner.feed(text[begin:end])
        assert extraction.text.startswith(shown_text)  # shown text is never taken back
    ending = scanner.end()
    assert (ending.calls, shown_text + ending.text) == (extraction.calls, extraction.text)


# -- any call in any notation -----------------------------------------------------------------------------------------

nasty = st.text() | st.lists(st.sampled_from(PIECES), max_size=4).map("".join)
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | nasty,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(nasty, inner, max_size=3),
    max_leaves=8,
)
arguments = st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), values, max_size=4)


def dump(name: str, args: dict[str, Any]) -> str:
    return json.dumps({"name": name, "arguments": args}, ensure_ascii=False)


def python(args: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in args.items())


FORMATS: dict[str, Callable[[str, dict[str, Any]], str]] = {
    "hermes": lambda n, a: f"<tool_call>\n{dump(n, a)}\n</tool_call>",
    "hermes on one line": lambda n, a: f"<tool_call>{dump(n, a)}</tool_call>",
    "hermes, escaped": lambda n, a: "<tool_call>" + json.dumps({"name": n, "arguments": a}) + "</tool_call>",
    "hermes, indented": lambda n, a: "<tool_call>" + json.dumps({"name": n, "args": a}, indent=2) + "</tool_call>",
    "hermes, text arguments": lambda n, a: (
        "<tool_call>" + json.dumps({"name": n, "arguments": json.dumps(a)}) + "</tool_call>"
    ),
    "hermes, python": lambda n, a: f"<tool_call>{ {'name': n, 'arguments': a}!r}</tool_call>",
    "llama custom": lambda n, a: f"<function={n}>{json.dumps(a)}</function>",
    "mistral": lambda n, a: f"[TOOL_CALLS] [{dump(n, a)}]",
    "mistral args": lambda n, a: f"[TOOL_CALLS]{n}[ARGS]{json.dumps(a)}",
    "python tag": lambda n, a: f"<|python_tag|>{json.dumps({'name': n, 'parameters': a})}<|eom_id|>",
    "python tag call": lambda n, a: f"<|python_tag|>{n}.call({python(a)})",
    "pythonic": lambda n, a: f"[{n}({python(a)})]",
    "deepseek v3": lambda n, a: (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{n}\n```json\n"
        f"{json.dumps(a)}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "deepseek v3.1": lambda n, a: (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{n}<｜tool▁sep｜>{json.dumps(a)}"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "kimi": lambda n, a: (
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{n}:0"
        f"<|tool_call_argument_begin|>{json.dumps(a)}<|tool_call_end|><|tool_calls_section_end|>"
    ),
    "harmony": lambda n, a: (
        f"<|channel|>commentary to=functions.{n} <|constrain|>json<|message|>{json.dumps(a)}<|call|>"
    ),
    "functionary 2": lambda n, a: f"<|recipient|>{n}\n<|content|>{json.dumps(a)}<|stop|>",
    "functionary 3.2": lambda n, a: f">>>{n}\n{json.dumps(a)}",
    "kimi k3": lambda n, a: (
        f'<|open|>tools<|sep|><|open|>call tool="{n}" index="1"<|sep|><|open|>json type="object"<|sep|>'
        f"{json.dumps(a)}<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
    ),
    "apertus": lambda n, a: f"<|tools_prefix|>{json.dumps([{n: a}])}<|tools_suffix|>",
    "gemma, json strings": lambda n, a: f"<|tool_call>call:{n}{json.dumps(a)}<tool_call|>",
    "fenced": lambda n, a: f"\n```json\n{dump(n, a)}\n```\n",
    "fenced tool_call": lambda n, a: f"\n```tool_call\n{dump(n, a)}\n```\n",
    "bare": lambda n, a: dump(n, a),
    "openai": lambda n, a: json.dumps({"type": "function", "function": {"name": n, "arguments": json.dumps(a)}}),
}
prose = st.text(st.characters(exclude_characters="`~<>[]{}\"'“”", exclude_categories=["Cs"]), max_size=30) | st.just(
    "I'll read “it” now (a < b, c[0] = {1})."
)


@pytest.mark.parametrize("form", FORMATS)
@given(prose, st.sampled_from(KNOWN), arguments, prose)
@settings(fast, max_examples=examples(40))
def test_any_call_in_any_prose_is_found(
    form: str, prose_above: str, name: str, args: dict[str, Any], prose_below: str
) -> None:
    call_text = FORMATS[form](name, args)
    # In a dict that Python printed, a string in double quotes reads as JSON, which has no such escapes.
    assume(form != "hermes, python" or not re.search(r"\\[xU]", call_text))
    extraction = extract(f"{prose_above}\n{call_text}\n{prose_below}", tool_names=KNOWN)
    assert extraction.calls == (TextCall(name, args),)
    assert extraction.text.split() == f"{prose_above}\n{prose_below}".split()


M3 = "]<]minimax[>["
XML_FORMATS: dict[str, Callable[[str, dict[str, str]], str]] = {
    "qwen3-coder": lambda n, a: (
        f"<tool_call>\n<function={n}>\n"
        + "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in a.items())
        + "</function>\n</tool_call>"
    ),
    "invoke": lambda n, a: (
        f'<function_calls><invoke name="{n}">\n'
        + "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in a.items())
        + "</invoke></function_calls>"
    ),
    "glm": lambda n, a: (
        f"<tool_call>{n}\n"
        + "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in a.items())
        + "</tool_call>"
    ),
}
XML_FORMATS |= {
    "minicpm 5": lambda n, a: (
        f'<function name="{n}">' + "".join(f'<param name="{k}">{v}</param>' for k, v in a.items()) + "</function>"
    ),
    "minimax m3": lambda n, a: (
        f'{M3}<tool_call>{M3}<invoke name="{n}">'
        + "".join(f"{M3}<{key}>{value}{M3}</{key}>" for key, value in a.items())
        + f"{M3}</invoke>{M3}</tool_call>"
    ),
    "kimi k3, arguments": lambda n, a: (
        f'<|open|>tools<|sep|><|open|>call tool="{n}" index="1"<|sep|>'
        + "".join(
            f'<|open|>argument key="{key}" type="string"<|sep|>{value}<|close|>argument<|sep|>'
            for key, value in a.items()
        )
        + "<|close|>call<|sep|><|close|>tools<|sep|>"
    ),
    "gemma": lambda n, a: (
        f"<|tool_call>call:{n}{{" + ",".join(f'{key}:<|"|>{value}<|"|>' for key, value in a.items()) + "}<tool_call|>"
    ),
}
plain_arguments = st.dictionaries(
    st.from_regex(r"[a-z_]{1,8}", fullmatch=True),
    st.text(st.characters(exclude_characters="<", exclude_categories=["Cs"])) | st.sampled_from(["a\n", "{"]),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("form", XML_FORMATS)
@given(prose, st.sampled_from(KNOWN), plain_arguments, prose)
@settings(fast, max_examples=examples(60))
def test_any_call_with_marked_arguments_is_found(
    form: str, prose_above: str, name: str, args: dict[str, str], prose_below: str
) -> None:
    extraction = extract(f"{prose_above}\n{XML_FORMATS[form](name, args)}\n{prose_below}", tool_names=KNOWN)
    assert extraction.calls == (TextCall(name, args),)
    assert extraction.text.split() == f"{prose_above}\n{prose_below}".split()


@pytest.mark.parametrize("form", [*FORMATS])
@given(st.sampled_from(KNOWN), arguments)
@settings(fast, max_examples=examples(25))
@example("write_file", {"content": "</tool_call>\n```\n<tool_call>{}\\ \" ' }"})
def test_no_piece_of_a_call_is_ever_shown(form: str, name: str, args: dict[str, Any]) -> None:  # P-01
    opening = "Let me see."
    call_text = FORMATS[form](name, args)
    text = f"{opening}\n{call_text}"
    scanner = Scanner(KNOWN)
    shown_text = ""
    for char in text:
        shown_text += scanner.feed(char)
        assert opening.startswith(shown_text)
    assert scanner.end().text.strip() == ""
    begin = len(opening) + 1 + (len(call_text) - len(call_text.lstrip()))
    for end in range(begin + 1, len(text.rstrip())):
        at = detect_partial(text[:end], KNOWN)
        assert at == begin or extract(text[:end], KNOWN).calls, text[:end]


# -- time -------------------------------------------------------------------------------------------------------------

HARD = [
    *("<tool_call>", "<tool_call>{", '<tool_call>{"name": "a"b ', '{"name": "read_file", ', '{"id":/*', '{"id":#'),
    *('[{"id": "', '[{"id":1},', "`", "``", "```", "```json\n", "```json\n{", "~~~", "<", "[", "{", '{"name": '),
    *("[TOOL_CALLS]", '[TOOL_CALLS]a[ARGS]{"x":', "<function=a>", "<function=a><parameter=b>", "<|python_tag|>a("),
    *("<｜tool▁calls▁begin｜>", "\\", '"', '"a" ', '{"name": "read_file", "arguments": {"a": "x"y', "\n", " ", "[["),
    *("[read_file(", '<tool_call>{"name":"a"}}', '<tool_call>{"name":"a"} x ', "<think>", "\n```", '{"a":"\\'),
    *('`<tool_call>{"name":"a"}', "<tool_call>a <arg_key>b</arg_key><arg_value>", '{"tool_calls": [', '""" '),
    *('<invoke name="a"><parameter name="b">c', '<tool_call>{"name": "x", "arguments": {"c": "', '{"arguments": "'),
    *("<|channel|>a to=b<|message|>{", "<|channel|>analysis<|message|>x", "<|start|>assistant", ">>>now\n{", ">"),
    *("]<]minimax[>[", "]<]minimax[>[<invoke name='a'>", "]<]minimax[>[<a>", "]", '<|tool_call>call:a{b:<|"|>'),
    *('<|open|>call tool="a"<|sep|>', '<|open|>argument key="a"<|sep|>b<|close|>argument<|sep|>', '<tool_call>{"a":1}'),
    *("<tool_call>{'a':\"b\",", "\n   ", "```tool_call\n{", '```json\n{"name": "read_file", '),
]
OPENINGS = ["", '`<tool_call>{"name": "x", "arguments": {"content": "']
SMALL, LARGE = 2_000, 16_000


def stream(text: str) -> None:
    scanner = Scanner(KNOWN)
    for at in range(0, len(text), 7):
        scanner.feed(text[at : at + 7])
    scanner.end()


def seconds(work: Callable[[str], object], text: str) -> float:
    begin = time.process_time()
    work(text)
    return time.process_time() - begin


@pytest.mark.parametrize("piece", HARD)
def test_time_is_linear(piece: str) -> None:  # P-07
    for opening in some(OPENINGS, 2, piece):
        small, large = (opening + piece * (size // len(piece)) for size in (SMALL, LARGE))
        for work in (lambda text: extract(text, KNOWN), stream, detect_partial):
            # 8 times the text: linear is 8 times the time, quadratic 64 times. A busy machine gets three tries.
            tries = (seconds(work, large) < 28 * max(seconds(work, small), 0.001) for _ in range(3))
            assert any(tries), (opening, work)
