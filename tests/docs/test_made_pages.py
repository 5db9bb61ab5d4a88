"""Pages that are made from the code are what the code says, and the glossary knows the words."""

import inspect
import re
from pathlib import Path
from typing import get_args

import pytest

from scripts import reference, state_table
from treadle import errors
from treadle.errors import ModelErrorKind, RefusalCode, TreadleError
from treadle.protocol import commands, events
from treadle.protocol.views import STATUSES

ROOT = Path(__file__).parents[2]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").lower()


@pytest.mark.thorough(one_of=8)
def test_the_reference_is_up_to_date() -> None:
    assert reference.find_outdated_pages() == [], "run: make docs"


def test_the_state_table_is_up_to_date() -> None:
    assert state_table.main(["--check"]) == 0, "run: make docs"


@pytest.mark.thorough(one_of=8)
def test_a_page_that_differs_is_noticed(tmp_path: Path) -> None:
    for name, make in reference.PAGES.items():
        (tmp_path / name).write_text(make(), encoding="utf-8")
    assert reference.find_outdated_pages(tmp_path) == []
    (tmp_path / "errors.md").write_text("old", encoding="utf-8")
    (tmp_path / "events.md").unlink()
    assert reference.find_outdated_pages(tmp_path) == ["events.md", "errors.md"]


@pytest.mark.thorough(one_of=8)
def test_every_event_has_a_heading_and_a_sentence() -> None:
    page = reference.events_page()
    for name, kind in (events.RECORDED | events.LIVE).items():
        assert f"\n### {name}\n" in page
        assert reference.doc(kind).endswith((".", ")")), f"{kind.__name__} has no docstring"


def test_every_error_stands_in_the_tree_with_its_code() -> None:
    tree = errors.__doc__ or ""
    for _, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, TreadleError) and kind is not TreadleError:
            code = r"\(see codes\)" if kind is errors.Refused else kind.code
            assert re.search(rf"─ {kind.__name__} +{code} ", tree), f"{kind.__name__} is not in the tree"


def test_every_code_is_explained_and_used() -> None:
    assert set(errors.REFUSALS) == set(get_args(RefusalCode))
    assert set(errors.MODEL_ERRORS) == set(get_args(ModelErrorKind))
    rules = (ROOT / "src" / "treadle" / "chat").glob("*.py")
    source = "".join(file.read_text(encoding="utf-8") for file in rules)
    assert [code for code in errors.REFUSALS if f'"{code}"' not in source] == []


WORDS = """
    chat run turn call action event delta lease epoch checkpoint entry transcript intent outcome tenure fold step
    command refusal snapshot queue steering compaction store model tool policy worker seq state status
"""


@pytest.mark.parametrize("word", re.findall(r"\w+", WORDS))
def test_the_glossary_has_the_word(word: str) -> None:
    assert f"| **{word}**" in GLOSSARY


def test_the_glossary_names_every_status() -> None:
    assert [status for status in STATUSES if status not in GLOSSARY] == []
    assert len(get_args(commands.Command)) > 10
