"""Our own search program against ripgrep: random patterns on random files, some of them no UTF-8 (T-04)."""

import random
from pathlib import Path

import pytest

from tests.differential.texts import random_cases
from treadle.adapters.workspace.root import Root
from treadle.adapters.workspace.search.search import Engine, ripgrep
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
)


@pytest.mark.thorough(one_of=8)
def test_both_programs_find_the_same_lines(tmp_path: Path) -> None:
    program = ripgrep("/nowhere")
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
