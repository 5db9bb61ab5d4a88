"""Our own search program against ripgrep: random patterns on random files, some of them no UTF-8 (T-04)."""

import random
import unicodedata
from pathlib import Path

import pytest

from tests.differential.texts import random_cases
from tests.faults.chance import SOAK
from treadle.adapters.workspace.root import Root
from treadle.adapters.workspace.search.search import Engine, find_ripgrep
from treadle.errors import ToolError
from treadle.ports.workspace import Query

_CLASSES = ("alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper")
_WORDS = (
    "x",
    "Foo",
    "bar_1",
    "café",
    "Straße",
    "a-b",
    "]",
    "[",
    "12",
    "\t",
    " ",
    "é",
    "ÿ",
    "^",
    "€",
    "~",
    "&",
    "cafe\u0301",
    "x²",
    "½",
    "‿",
    "\u200d",
    "\x1c",
    "\x85",
    "\u2028",
    "\u212a",
    "\u017f",
    "Ⓐ",
)


@pytest.mark.thorough(one_of=8)
def test_both_programs_find_the_same_lines(tmp_path: Path) -> None:
    program = find_ripgrep("/nowhere")
    assert program is not None, "ripgrep comes with the requirements"
    names = ("a.txt", "b.py", "d/c.txt", "d/e.md")
    root = Root(str(tmp_path))
    (tmp_path / "d").mkdir()
    total = refused = 0
    for chance in random_cases(25, 1_000, "search"):
        for name in names:
            (tmp_path / name).write_bytes(_random_text(chance))
        literal = chance.random() < 0.2
        pattern = chance.choice(_WORDS) if literal else _random_pattern(chance)
        query = Query(
            pattern, chance.choice((".", ".", "d", "a.txt")), ignore_case=chance.random() < 0.3, literal=literal
        )
        answers = []
        for each in (program, None):
            try:
                search_result = Engine(root, each).search(query, None)
            except ToolError:
                answers.append(None)
                continue
            answers.append(
                [(file.path, [(line.number, line.text) for line in file.lines]) for file in search_result.files]
            )
        assert answers[0] == answers[1], (query, {name: (tmp_path / name).read_bytes() for name in names})
        total += bool(answers[0])
        refused += answers[0] is None
    assert total > 5
    assert not refused


_KNOWN = [chr(number) for number in range(0x20000) if unicodedata.ucd_3_2_0.category(chr(number)) not in ("Cn", "Cs")]
"""The characters of Unicode 3.2: both programs know them, whatever their version."""


@pytest.mark.parametrize(
    "pattern",
    [r":\w$", r":\W$", r":[\w-]$", r":[^\W]$", r":\b.", r":.\b$", r":\B", r":\<", r"\>$", r":\s$", r":[\s-]$", r":\S$"],
)
def test_both_programs_see_the_same_words_and_spaces(tmp_path: Path, pattern: str) -> None:
    letters = [letter for letter in _KNOWN if letter not in "\0\n\r"]
    (tmp_path / "a.txt").write_text("".join(f":{letter}\n" for letter in letters), newline="")
    lines = [
        _search(tmp_path, program, Query(pattern, most=len(letters))) for program in (find_ripgrep("/nowhere"), None)
    ]
    differences = {letters[number - 1] for number in lines[0] ^ lines[1]}
    assert not differences, sorted(map(ascii, differences))[:20]


@pytest.mark.thorough(one_of=8)
def test_both_programs_fold_the_same_cases_but_for_two_letters(tmp_path: Path) -> None:
    cased = [letter for letter in _KNOWN if letter.casefold() != letter or letter.upper() != letter]
    folding = [letter for letter in cased if letter not in "\u0130\u0131"]  # `re` takes both for an i
    (tmp_path / "a.txt").write_text("".join(f":{letter}\n" for letter in folding))
    for letter in folding[:: 1 if SOAK else 40]:
        query = Query(f":{letter}$", ignore_case=True)
        lines = [_search(tmp_path, program, query) for program in (find_ripgrep("/nowhere"), None)]
        assert lines[0] == lines[1], ascii(letter)


def _search(root: Path, program: str | None, query: Query) -> set[int]:
    return {line.number for file in Engine(Root(str(root)), program).search(query, None).files for line in file.lines}


def _random_text(chance: random.Random) -> bytes:
    lines = ["".join(chance.choices(_WORDS, k=chance.randint(0, 6))) for _ in range(chance.randint(0, 12))]
    newline = chance.choice(("\n", "\n", "\r\n"))
    text = newline.join(lines) + chance.choice(("", newline))
    encoding = chance.choice(("utf-8", "utf-8", "utf-8-sig", "cp1252", "utf-16"))
    return text.encode(encoding, "ignore")


def _random_pattern(chance: random.Random) -> str:
    atoms = [_random_atom(chance) for _ in range(chance.randint(1, 4))]
    pattern = "".join(atom + chance.choice(("", "", "", "?", "+", "{1,2}")) for atom in atoms)
    return chance.choice(("{}", "{}", "^{}", "{}$", r"\b{}", "(?:{}|Foo)", r"\<{}", r"{}\>")).format(pattern)


def _random_atom(chance: random.Random) -> str:
    match chance.choice(("word", "word", "class", "posix", "escape", "dot")):
        case "word":
            return chance.choice(("x", "Foo", "bar", "é", "caf", "1", "€"))
        case "class":
            return chance.choice(("[a-f]", "[^a-z]", "[]x]", "[^]]", r"[\w-]", r"[\]é]"))
        case "posix":
            names = "".join(
                f"[:{chance.choice(('', '', '^'))}{chance.choice(_CLASSES)}:]" for _ in range(chance.randint(1, 2))
            )
            return f"[{chance.choice(('', '', '^'))}{names}{chance.choice(('', '_', '.'))}]"
        case "escape":
            return chance.choice((r"\w", r"\W", r"\d", r"\s", r"\S", r"\.", r"\["))
        case _:
            return "."
