"""The corpus of what models write: each case at once, and in pieces of every size (P-01 to P-05)."""

import pytest

from tests.faults.chance import some
from tests.unit.adapters.models.text_calls.corpus import CASES, KNOWN, Case
from treadle.adapters.models.text_calls import Scanner, TextCall, detect_partial, extract, strip


def list_expected_calls(case: Case) -> list[TextCall]:
    return [TextCall(call[0], call[1], len(call) > 2 and bool(call[2])) for call in case.calls]


def test_the_corpus_is_large_and_its_titles_differ() -> None:
    assert len(CASES) >= 120
    assert len({case.title for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_calls_and_text_whole_and_in_pieces(case: Case) -> None:
    extraction = extract(case.text, tool_names=KNOWN)
    assert list(extraction.calls) == list_expected_calls(case)
    assert extraction.text == case.visible_text
    assert strip(case.text, KNOWN) == case.visible_text
    for size in (1, 2, 3, 7, 50):
        scanner = Scanner(KNOWN)
        shown_text = "".join(scanner.feed(case.text[at : at + size]) for at in range(0, len(case.text), size))
        ending = scanner.end()
        assert case.visible_text.startswith(shown_text)  # nothing is shown that is taken back later
        assert (list(ending.calls), shown_text + ending.text) == (list_expected_calls(case), case.visible_text)


@pytest.mark.parametrize("part", range(8))
def test_the_text_freezes_where_a_call_begins(part: int) -> None:
    for case in CASES[part::8]:
        freezes(case)


def freezes(case: Case) -> None:
    for end in some(range(len(case.text) + 1), 2, case.title):
        at = detect_partial(case.text[:end], KNOWN)
        if at is None:
            continue
        assert 0 <= at <= end
        scanner = Scanner(KNOWN)
        shown_text = scanner.feed(case.text[:end])
        assert case.visible_text.startswith(shown_text)
        if not scanner.end().calls and not case.calls:
            assert shown_text.rstrip() == case.text[:at].rstrip()


CHANNELLED = (
    "<|channel|>analysis<|message|>I call <tool_call>{}.<|end|>"  # thinking
    "<|start|>assistant<|channel|>final<|message|>Done.<|return|>"
)


def test_of_an_answer_in_channels_only_the_answer_is_shown() -> None:
    for size in (1, 2, 3, 7, 500):
        scanner = Scanner(KNOWN)
        shown_text = "".join(scanner.feed(CHANNELLED[at : at + size]) for at in range(0, len(CHANNELLED), size))
        ending = scanner.end()
        assert (ending.calls, shown_text + ending.text) == ((), "Done.")


@pytest.mark.parametrize("text", [">>>all\nI look.>>>read_file\n{}", "read_file\n{}"])
def test_without_known_names_nothing_is_addressed(text: str) -> None:
    scanner = Scanner()
    shown_text = "".join(map(scanner.feed, text))
    ending = scanner.end()
    assert (ending.calls, shown_text + ending.text) == ((), text)
