"""A server's question in words, and an answer as the server wants it."""

from typing import Any

import pytest

from tests.lazily import lazily

types, elicitation, content = (
    lazily("mcp_types"),
    lazily("treadle.adapters.mcp.calls"),
    lazily("treadle.adapters.mcp.calls"),
)


def form(properties: dict[str, Any], *required: str) -> Any:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return types.ElicitRequestFormParams(message="What?", requested_schema=schema)


def person() -> Any:
    return form({"name": {"type": "string"}, "age": {"type": "integer"}, "ok": {"type": "boolean"}}, "name")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('{"name": "Ada", "age": 36, "ok": true}', {"name": "Ada", "age": 36, "ok": True}),
        ("name: Ada\nage: 36\nok: yes", {"name": "Ada", "age": 36, "ok": True}),
        ("name: Ada: the first", {"name": "Ada: the first"}),
        ('{"name": "Ada", "more": 1}', {"name": "Ada"}),
    ],
)
def test_a_form_is_answered_in_json_or_in_lines(answer: str, expected: dict[str, Any]) -> None:
    reply = elicitation.read_form_answer(person(), answer)
    assert (reply.action, reply.content) == ("accept", expected)


@pytest.mark.parametrize("answer", ["just words", "age: 36", "name: Ada\nage: many", "name: Ada\nok: perhaps"])
def test_what_does_not_fit_is_said(answer: str) -> None:
    assert isinstance(elicitation.read_form_answer(person(), answer), str)


@pytest.mark.parametrize(
    "answer", ['{"x": {"y": 1}}', '{"x": [1]}', '{"x": 1e999}', '{"x":' * 10_000, "inf", "nan", "1e999", "9" * 5_000]
)
def test_an_answer_that_no_form_can_carry_is_asked_again(answer: str) -> None:  # S-20
    assert isinstance(elicitation.read_form_answer(form({"x": {"type": "number"}}), answer), str)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": [1]},
        {"properties": {"x": 1}, "required": 7},
        {"properties": {"x": {"enum": 5, "oneOf": 3}}, "required": [["x"], {}]},
        {"properties": {"x": {"default": {}}, "y": {"enum": "ab"}}, "required": {"x": 1}},
    ],
)
def test_an_odd_form_is_a_question_that_can_be_declined(schema: dict[str, Any]) -> None:  # E-01
    params = types.ElicitRequestFormParams(message="m", requested_schema={"type": "object", **schema})
    assert "asks: m" in elicitation.build_form_question("s", params).text
    elicitation.read_form_answer(params, '{"x": "1"}')
    assert elicitation.read_form_answer(params, "decline").action == "decline"


def test_one_field_is_answered_as_it_stands() -> None:
    assert elicitation.read_form_answer(form({"text": {"type": "string"}}, "text"), "a: b").content == {"text": "a: b"}
    assert elicitation.read_form_answer(form({"yes": {"type": "boolean"}}, "yes"), "no").content == {"yes": False}
    assert elicitation.build_form_question("s", form({"yes": {"type": "boolean"}})).options == ("yes", "no", "decline")
    choice = form({"c": {"type": "string", "oneOf": [{"const": "a", "title": "A"}]}})
    assert elicitation.build_form_question("s", choice).options == ("a", "decline")
    assert elicitation.read_form_answer(form({}), "yes").action == "accept"


def test_defaults_are_shown_and_sent() -> None:  # E-01
    name_schema = {"type": "string", "default": "Ada\x1b[1m"}
    params = form(
        {"name": name_schema, "age": {"type": "integer", "default": 36}, "ok": {"type": "boolean", "default": False}}
    )
    question = elicitation.build_form_question("s", params)
    for line in (
        "  name: string, default: Ada",
        "  age: integer, default: 36, optional",
        "yes | no, default: no, optional",
    ):
        assert line in question.text
    assert "\x1b" not in question.text
    assert question.options == ("accept", "decline")
    everything = {"name": "Ada\x1b[1m", "age": 36, "ok": False}
    for answer in ("accept", "Accept", "", "{}"):
        assert elicitation.read_form_answer(params, answer).content == everything
    assert elicitation.read_form_answer(params, "age: 40").content == everything | {"age": 40}
    one = form({"name": {"type": "string", "default": "Ada", "description": "Yours"}}, "name")
    question = elicitation.build_form_question("s", one)
    assert "(Yours, default: Ada)" in question.text
    assert question.options == ("accept", "decline")
    assert (
        elicitation.read_form_answer(one, "accept").content
        == elicitation.read_form_answer(one, "").content
        == {"name": "Ada"}
    )
    assert elicitation.read_form_answer(one, "Bea").content == {"name": "Bea"}
    colour = form({"c": {"type": "string", "enum": ["red", "blue"], "default": "blue"}}, "c")
    assert elicitation.build_form_question("s", colour).options == ("red", "blue", "decline")
    assert "(default: blue)" in elicitation.build_form_question("s", colour).text
    assert elicitation.read_form_answer(colour, "").content == {"c": "blue"}


def test_without_all_defaults_accept_is_an_answer_like_any_other() -> None:
    two = form({"name": {"type": "string"}, "age": {"type": "integer", "default": 36}}, "name")
    assert elicitation.build_form_question("s", two).options == ("decline",)
    assert isinstance(elicitation.read_form_answer(two, "accept"), str)
    assert elicitation.read_form_answer(two, "name: Ada").content == {"name": "Ada", "age": 36}
    word = form({"word": {"type": "string"}}, "word")
    assert elicitation.read_form_answer(word, "accept").content == {"word": "accept"}


def test_it_can_be_declined_and_addresses_are_only_shown() -> None:
    page = types.ElicitRequestURLParams(message="Sign\x1b in", url="https://x/\x1b]0;", elicitation_id="1")
    question = elicitation.build_form_question("s", page)
    assert "\x1b" not in question.text
    assert question.options == ("done", "decline")
    assert elicitation.read_form_answer(page, "done").action == "accept"
    for params in (page, person()):
        assert elicitation.read_form_answer(params, "decline").action == "decline"
        assert elicitation.read_form_answer(params, "Cancel").action == "cancel"


def test_results_of_every_kind_become_text_and_pictures() -> None:
    blocks = [
        types.TextContent(text="hello"),
        types.ImageContent(data="iVBORw==", mime_type="image/png"),
        types.ImageContent(data="%%%", mime_type="image/png"),
        types.ImageContent(data="aGk=", mime_type="image/svg+xml"),
        types.AudioContent(data="aGk=", mime_type="audio/wav"),
        types.ResourceLink(uri="a://b", name="b"),
        types.EmbeddedResource(resource=types.TextResourceContents(uri="a://c", text="inside")),
    ]
    rendering = content.render_content(blocks)
    assert rendering.pictures == (("image/png", b"\x89PNG"),)
    assert rendering.text.splitlines() == [
        "hello",
        "[picture 1: image/png, 4 bytes; shown below]",
        "[bytes that cannot be read]",
        "[image/svg+xml, 2 bytes; it cannot be shown]",
        "[a sound, audio/wav, about 3 bytes; it cannot be shown]",
        "[the resource b at a://b]",
        "[a://c]",
        "inside",
    ]
    assert content.render_content([], {"a": 1}).text == '{"a":1}'
    many = [types.ImageContent(data="iVBORw==", mime_type="image/png")] * 20
    assert len(content.render_content(many).pictures) == content.MAX_PICTURES
