"""Markdown on a terminal, as it comes in pieces."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from treadle.frontends.cli.prose import Prose
from treadle.frontends.presentation.styled import Line

TEXT = """# A **title** with `code`

A paragraph with **two words** and `x = **kw`, whose end has to be wrapped at the edge and not within words.
2**3 is no emphasis, nor is **kwargs.

- an item that is long enough to be wrapped with its lines below each other
  1. one
> said

| name | what |
|---|---|
| a `b` | c |

```python
def f():
    return "a very long line of code that is never broken by anybody, however long it is"
```
the `end
"""


def render_prose(pieces: list[str], width: int = 40, *, markup: bool = True) -> str:
    out: list[str] = []

    def write(line: Line) -> None:
        for text, colours in line:
            out.append(f"<{'+'.join(colours)}:{text}>" if colours and markup and text else text)

    prose = Prose(write, lambda: width, markup=markup)
    for piece in pieces:
        prose.feed(piece)
    prose.end()
    return "".join(out)


def test_how_it_looks() -> None:
    lines = render_prose([TEXT]).split("\n")
    assert lines[0] == "<bold+cyan:A> <bold+cyan:title> <bold+cyan:with> <bold+cyan:code>"
    assert lines[2] == "A paragraph with <bold:two> <bold:words> and <cyan:x> <cyan:=> <cyan:**kw>,"
    assert "2**3 is no emphasis, nor is **kwargs." in lines
    assert "<cyan:•> an item that is long enough to be" in lines
    assert "  wrapped with its lines below each" in lines
    assert "  <cyan:1.> one" in lines
    assert "<dim:│ ><dim:said>" in lines
    table = lines.index("<bold:name │ what>")
    assert lines[table + 1 : table + 3] == ["<dim:─────┼─────>", "a b  │ c"]
    assert "<cyan:def> <bold:f>():" in lines
    assert any("never broken by anybody" in line for line in lines)
    assert lines[-2:] == ["the `end", ""]


def test_without_colours_every_letter_stays() -> None:
    output = render_prose([TEXT], markup=False)
    assert output.split() == TEXT.split()
    assert all(len(line) <= 40 or "return" in line for line in output.split("\n"))


@given(st.lists(st.integers(1, len(TEXT) - 1), max_size=40))
def test_it_does_not_matter_in_which_pieces_it_comes(cuts: list[int]) -> None:
    places = [0, *sorted(set(cuts)), len(TEXT)]
    pieces = [TEXT[start:end] for start, end in pairwise(places)]
    assert render_prose(pieces) == render_prose([TEXT])


@given(st.text("ab *`#|-\n1.>~", max_size=60), st.integers(1, 60))
def test_nothing_breaks_it_and_no_word_is_lost(text: str, position: int) -> None:
    assert render_prose([text[:position], text[position:]]) == render_prose([text])
    assert render_prose([text], markup=False).split() == text.split()
