"""Front matter as skills, commands and agents of other tools have it (E-03)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.library.skills.reading import OwnCommand, format_line, split_front_matter, split_words

FILE = """---
name: "pdf-forms"   # a comment is none inside quotes
description: >-
  Fill in forms.
  Use it for PDF files.
tools: [Read, 'Bash']
allowed-tools:
  - Grep
  - "Glob"
note: plain text: with a colon # and a comment
license:
metadata:
  author: ada
---

# Body
---
"""


def test_texts_lists_and_blocks() -> None:
    head, body = split_front_matter(FILE)
    assert head["description"] == "Fill in forms. Use it for PDF files."
    assert head["tools"] == ["Read", "Bash"]
    assert head["allowed-tools"] == ["Grep", "Glob"]
    assert head["note"] == "plain text: with a colon"
    assert (head["license"], format_line(head["metadata"])) == ("", "author: ada")
    assert body == "# Body\n---"


def test_yaml_as_other_agents_write_it() -> None:
    """Comments, lists over several lines, escapes; an anchor is no way to a large text."""
    head, _ = split_front_matter(
        '---\n# a comment\ntools: [read, # why\n  grep]\nmodel: x # and why\ntitle: "a \\u00e9 # b"\n'
        "list:\n- one # first\n# between\n- two\nbomb: [&a [x, x], *a]\n---\n"
    )
    assert head["tools"] == ["read", "grep"]
    assert head["model"] == "x"
    assert head["title"] == "a é # b"
    assert head["list"] == ["one", "two"]
    assert isinstance(head["bomb"], str)


@pytest.mark.parametrize(
    "front", ['name: a\n"tools": [read]', "  name: a\n  tools: [read]", "{name: a, tools: [read]}"]
)
def test_keys_are_those_of_yaml(front: str) -> None:  # E-03
    """A key in quotes or behind blanks is not lost: without `tools` an agent would have all of them."""
    assert split_front_matter(f"---\n{front}\n---\n")[0] == {"name": "a", "tools": ["read"]}


@pytest.mark.parametrize(
    ("text", "arguments", "expanded"),
    [
        ("$1 then $2", "don't can't", "don't then can't"),
        ("see $1", r"C:\new\table", r"see C:\new\table"),
        ("$1|$2", "'a b' \"c d\"", "a b|c d"),
        ("awk '{ print $0 }' $1", "file", "awk '{ print $0 }' file"),
        ("$10 $1", "a b c d e f g h i j", "j a"),
        ("$ARGUMENTSX $3.", "a b", "$ARGUMENTSX ."),
        ("Fix it.", "now", "Fix it.\n\nnow"),
    ],
)
def test_words_of_an_own_command(text: str, arguments: str, expanded: str) -> None:  # E-11
    assert OwnCommand("fix", "", text).expand(arguments) == expanded


@pytest.mark.parametrize("text", ["", "no front matter", "---\nname: x\nnever closed", "--- \n", "---\n---"])
def test_what_has_none_is_all_body_or_empty(text: str) -> None:
    head, body = split_front_matter(text)
    assert head == {}
    assert body in (text, "")


def test_windows_and_a_byte_order_mark() -> None:
    assert split_front_matter("\ufeff---\r\nname: x\r\n---\r\nbody\r\n") == ({"name": "x"}, "body")


@given(st.text(alphabet="-: \n|>[]'\"#abc,.{}&*", max_size=200))
def test_any_text_is_read(text: str) -> None:
    head, _ = split_front_matter(f"---\n{text}\n---\nbody")
    assert all(isinstance(split_words(value), list) and "\n" not in format_line(value) for value in head.values())
