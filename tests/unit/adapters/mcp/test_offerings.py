"""Slash commands that are prompts of a server (E-01)."""

import pytest

from treadle.errors import InvalidInput
from treadle.library.mcp_hub.offerings import Prompt

TIDY = Prompt("odd", "tidy", "", ("how", "what"), ("how",))


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("well", {"how": "well"}),
        ("well the shelf", {"how": "well", "what": "the shelf"}),
        ("'very well' shelf", {"how": "very well", "what": "shelf"}),
        ("what=shelf how=well", {"what": "shelf", "how": "well"}),
        ("a=b it's", {"how": "a=b", "what": "it's"}),
    ],
)
def test_words_are_the_arguments_of_a_prompt(words: str, arguments: dict[str, str]) -> None:
    assert TIDY.parse_arguments(words) == arguments


def test_what_is_missing_is_said() -> None:
    assert TIDY.hint == "how [what]"
    assert Prompt("odd", "plain").parse_arguments("whatever") == {}
    with pytest.raises(InvalidInput, match="/odd:tidy needs how"):
        TIDY.parse_arguments("what=shelf")
