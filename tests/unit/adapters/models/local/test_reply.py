"""The output of a small model becomes text or a call, wherever the stream is cut (M-15)."""

import json

import pytest

from treadle.adapters.models.local.prompt import GrammarReader
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.protocol.deltas import FinishDelta

WORDS = {"name": "reply", "arguments": {"text": 'Zürich: "443,000"\n\\{}} 😀 done'}}
CALL = {"name": "write", "arguments": {"path": "a.txt", "content": 'if x:\n  {"arguments": {}}}}'}}
SPACED = '{ "name" : "list" ,\n "arguments" : { } }\n'


def read(pieces: list[str]) -> ModelAnswer:
    reader, assembler = GrammarReader("reply"), Assembler(1)
    for piece in pieces:
        assembler.feed(reader.feed(piece))
    assembler.feed([*reader.end(), FinishDelta()])
    return assembler.finish("local:test")


def splits(text: str) -> list[list[str]]:
    return [[text[:at], text[at:]] for at in range(len(text) + 1)] + [list(text)]


@pytest.mark.parametrize("ascii", [True, False])
def test_words_are_text_wherever_they_are_split(ascii: bool) -> None:
    for pieces in splits(json.dumps(WORDS, ensure_ascii=ascii)):
        answer = read(pieces)
        assert (answer.text, answer.requests) == (WORDS["arguments"]["text"], ())  # type: ignore[index]


@pytest.mark.parametrize("ascii", [True, False])
def test_a_call_is_a_call_wherever_it_is_split(ascii: bool) -> None:
    for pieces in splits(json.dumps(CALL, ensure_ascii=ascii)):
        answer = read(pieces)
        assert answer.text == ""
        assert [request.name for request in answer.requests] == ["write"]
        assert json.loads(answer.requests[0].arguments) == CALL["arguments"]


def test_blanks_between_do_not_matter() -> None:
    for pieces in splits(SPACED):
        answer = read(pieces)
        assert [(request.name, request.arguments.strip()) for request in answer.requests] == [("list", "{ }")]


def test_an_answer_that_was_cut_off_is_no_whole_call() -> None:
    call_text = json.dumps(CALL)
    for end in range(len(call_text) - 1):
        answer = read([call_text[:end]])
        for request in answer.requests:
            with pytest.raises(ValueError, match=r"."):
                json.loads(request.arguments)


def test_words_that_were_cut_off_are_kept() -> None:
    assert read(['{"name": "reply", "arguments": {"text": "So far']).text == "So far"
    assert read(['{"name": "rep']).text == ""


@pytest.mark.parametrize("text", ["Hello there.", "[1, 2]", "nonsense {", "  \n Hello", "7"])
def test_what_is_no_object_is_text(text: str) -> None:
    """The engine drops a grammar that it cannot make without a word."""
    for pieces in splits(text):
        assert (read(pieces).text.strip(), read(pieces).requests) == (text.strip(), ())
