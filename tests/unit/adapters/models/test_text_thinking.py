"""Thinking in the text of an answer: taken out where it is meant, left where the text speaks of it (M-10)."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.adapters.models.test_capability_ladder import CALL, REQUEST, TOOLS, ask, build_request, calls, ladder
from treadle.adapters.models.capability_ladder import Ladder
from treadle.adapters.models.openai_chat.adapter import OpenAIChat
from treadle.adapters.models.scripted import Call, Say, Think, Turn
from treadle.adapters.models.thinking import TAGS, SignedBlock, TextThinking, seal, shift_position
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.ports.model import ModelInfo
from treadle.protocol.content import Thinking
from treadle.protocol.deltas import CallDelta, Delta, FinishDelta, TextDelta, ThinkingBlock, ThinkingDelta
from treadle.testing.fake_openai import FakeOpenAI, Reply

TAKEN = [
    ("<think>\nHm, 6 times 7.\n</think>\n\nIt is 42.", "Hm, 6 times 7.", "It is 42."),
    ("<think>Hm.</think>It is 42.", "Hm.", "It is 42."),
    (" \n<thinking>\n\nHm.\n</thinking> It is 42.\n", "Hm.", "It is 42.\n"),
    ("<think> Okay, 42. </think> It is 42.", "Okay, 42.", "It is 42."),
    ("<think>\n\n</think>\n\nIt is 42.", "", "It is 42."),
    ("<think></think>It is 42.", "", "It is 42."),
    ("<think>a</think>\n<think>b</think>\n  It is.", "ab", "It is."),
    (
        "<think>if a < b: </b> </thin k>\n```\n<think>\n```\n</think>42",
        "if a < b: </b> </thin k>\n```\n<think>\n```",
        "42",
    ),
    ("</think>\n\nIt is 42.", "", "It is 42."),  # the opening tag stood in the prompt
    ("\n</think> \r\n\nIt is 42.", "", "It is 42."),
    ("</think>", "", ""),
    ("[THINK]Hm.[/THINK]It is.", "Hm.", "It is."),
    ("<think>Hm.</think>\n\nWrite `<think>` or\n<think>x</think>", "Hm.", "Write `<think>` or\n<think>x</think>"),
    ("<think>\nI never", "I never", ""),
    ("<think>Never</thin", "Never</thin", ""),
    ("<think>\n...\n</think>\nHi.", "...", "Hi."),
]
KEPT = [
    "It is 42.",
    "  \n It is 42. \n",
    "\n",
    "",
    "`<think>` opens the thinking, `</think>` closes it.",
    "```xml\n<think>x</think>\n```\n",
    "What does <think> mean? It opens: <think>x</think>.",
    "<think> is a tag that models write before they answer.",
    "<think>, and other tags,\nare written by models.",
    "<think>…</think> is how models think aloud.",
    "<think>...</think> likewise.",
    "</think> is a tag that ends the thinking.",
    "</think>, too",
    "<thinker>x</thinker>",
    "<thi",
    "<",
    "[T",
    "<tool_call>x",
    "So:\n</think>\nNo.",
    " " * 2_000 + "<think>x</think>y",
]


def assemble_answer(deltas: Iterable[Sequence[Delta]], reason: str = "stop") -> ModelAnswer:
    thinking, assembler = TextThinking(), Assembler(1)
    for batch in (*deltas, [FinishDelta(reason)]):
        assembler.feed(thinking.take(batch))
    return assembler.finish("p:m")


def pieces(text: str, cuts: Iterable[int]) -> list[list[Delta]]:
    places = [0, *sorted({position for position in cuts if 0 < position < len(text)}), len(text)]
    return [[TextDelta(text[a:b])] for a, b in pairwise(places)]


def join_thinking(answer: ModelAnswer) -> str:
    return "".join(block.text for block in answer.thinking)


@pytest.mark.parametrize(("text", "thinking", "answer_text"), TAKEN)
def test_thinking_is_taken_out(text: str, thinking: str, answer_text: str) -> None:
    for cuts in ([], range(len(text)), *([position] for position in range(len(text)))):
        answer = assemble_answer(pieces(text, cuts))
        assert (join_thinking(answer), answer.text) == (thinking, answer_text)


@pytest.mark.parametrize("text", KEPT)
def test_what_speaks_of_thinking_is_kept_to_the_letter(text: str) -> None:
    for cuts in ([], range(len(text)), *([position] for position in range(min(len(text), 100)))):
        answer = assemble_answer(pieces(text, cuts))
        assert (answer.thinking, answer.text) == ((), text)


_WORDS = st.sampled_from(
    [*TAGS, *TAGS.values(), *"<>[]/`.…*", "think", "<th", "</think", "\n", " ", "\n\n", "```", "word", "Is", "é"]
)


@given(st.lists(_WORDS, max_size=14).map("".join), st.lists(st.integers(0, 80), max_size=12), st.booleans())
def test_however_it_is_split(text: str, cuts: list[int], cut_off: bool) -> None:
    reason = "length" if cut_off else "stop"
    unsplit_answer = assemble_answer(pieces(text, []), reason)
    for places in (cuts, range(len(text))):
        answer = assemble_answer(pieces(text, places), reason)
        assert (join_thinking(answer), answer.text) == (join_thinking(unsplit_answer), unsplit_answer.text)


@given(st.lists(_WORDS, max_size=10).map("".join), st.sampled_from(sorted(TAGS)))
def test_nothing_is_lost(text: str, tag: str) -> None:
    """All but white space, tags and thinking stays text; and no thinking is lost."""
    answer = assemble_answer(pieces(text, []))
    assert _bare(join_thinking(answer)) + _bare(answer.text) == _bare(text)
    inner = text.replace(TAGS[tag], "")
    answer = assemble_answer(pieces(f"{tag}\n{inner}{TAGS[tag]}\n\nText `{tag}`.", [3, 9]))
    assert (join_thinking(answer), answer.text) == (inner.strip(), f"Text `{tag}`.")


def _bare(text: str) -> str:
    for tag in (*TAGS, *TAGS.values()):
        text = text.replace(tag, "")
    return "".join(text.split())


def test_thinking_is_told_as_it_comes() -> None:
    thinking = TextThinking()
    delta_lists = [
        list(thinking.take([TextDelta(text)])) for text in ("<thi", "nk>\n", "Let me", " see. \n", "</think>\nYes")
    ]
    assert delta_lists == [
        [],
        [],
        [ThinkingDelta("Let me")],
        [ThinkingDelta(" see.")],
        [TextDelta("Yes")],
    ]


def test_ordinary_text_is_done_with_at_the_first_word() -> None:
    thinking = TextThinking()
    batch = [TextDelta("It is")]
    assert thinking.take(batch) == batch
    assert thinking.over


def test_what_a_sentence_about_the_tag_becomes_when_it_is_cut_off() -> None:
    text = "<think> so let me see"
    assert assemble_answer(pieces(text, [])).text == text
    cut_answer = assemble_answer(pieces(text, []), "length")
    assert (join_thinking(cut_answer), cut_answer.text) == ("so let me see", "")


def test_a_call_ends_the_thinking() -> None:
    batches: list[list[Delta]] = [[TextDelta("<think> I must look")], [CallDelta("1", 0, "read_file", "{}")]]
    answer = assemble_answer(batches, "tool_calls")
    assert (join_thinking(answer), answer.text, len(answer.requests)) == ("I must look", "", 1)
    later_answer = assemble_answer([batches[1], [TextDelta("<think>x</think>")]], "tool_calls")
    assert (later_answer.text, later_answer.thinking) == ("<think>x</think>", ())


def test_an_echo_of_thinking_that_came_as_such() -> None:
    native: list[Delta] = [ThinkingDelta("Hm, 42.")]
    answer = assemble_answer([native, *pieces("<think>\nHm, 42.\n</think>\n\nYes.", range(40))])
    assert (join_thinking(answer), answer.text) == ("Hm, 42.", "Yes.")
    other_answer = assemble_answer([native, *pieces("<think> Or 43?</think>Yes.", range(40))])
    assert (join_thinking(other_answer), other_answer.text) == ("Hm, 42.Or 43?", "Yes.")


def test_sealed_thinking_keeps_its_place_in_the_text() -> None:
    """A sealed block says how much text stood before it: text that was taken out does not count."""
    echo = "<think>\nHm.\n</think>\n\n"
    block = ThinkingBlock(Thinking("T", seal(SignedBlock(b'{"a":1}', len(echo) + 4, 0))))
    answer = assemble_answer([*pieces(echo + "Yes, 42.", [5]), [block]])
    assert answer.text == "Yes, 42."
    assert answer.thinking[-1].opaque == '[4,0,{"a":1}]'
    plain = '{"a": 1}'
    assert shift_position(plain, -3) == plain


# -- on every rung ----------------------------------------------------------------------------------------------------

ECHO = "<think>\nI could write <tool_call>{}</tool_call>.\n</think>\n\n"


@pytest.mark.parametrize("rung", ["native", "text", "plain"])
@pytest.mark.parametrize("tools", [TOOLS, ()])
@pytest.mark.parametrize("chunk", [0, 1, 7])
async def test_on_every_rung(rung: str, tools: tuple[()], chunk: int) -> None:
    model, _ = ladder(Turn((Say(f"{ECHO}It is 42."),), chunk=chunk))
    answer, _, texts = await ask(model, build_request(rung=rung, tools=tools))
    assert (answer.text, "".join(texts), answer.requests) == ("It is 42.", "It is 42.", ())
    assert join_thinking(answer) == "I could write <tool_call>{}</tool_call>."
    assert answer.thinking[0].model == model.info.ref


@pytest.mark.parametrize("rung", ["native", "text"])
async def test_a_call_behind_the_thinking(rung: str) -> None:
    model, _ = ladder(Turn((Say(f"{ECHO}I look.\n{CALL}"),), chunk=3))
    answer, _, _ = await ask(model, build_request(rung=rung))
    assert (answer.text.strip(), calls(answer)) == ("I look.", [("read_file", REQUEST, False)])
    model, _ = ladder((Think("Native."), Say("Well."), Call("read_file", path="a")))
    answer, _, _ = await ask(model, build_request(rung="native"))
    assert (join_thinking(answer), answer.text, len(answer.requests)) == ("Native.", "Well.", 1)


async def test_from_a_server() -> None:
    """An old server behind OpenAI's protocol, its stream split at every byte."""
    for split in (0, 1):
        with FakeOpenAI([Reply(text="<think>\nHm.\n</think>\n\nYes.", chunk_size=3, split=split)]) as fake:
            model = Ladder(OpenAIChat(ModelInfo("openai", "m"), base_url=fake.base_url))
            answer, _, texts = await ask(model, build_request(tools=()))
            await model.close()
        assert (answer.text, "".join(texts), join_thinking(answer)) == ("Yes.", "Yes.", "Hm.")
