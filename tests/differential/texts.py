"""Random texts with repeated lines, and random changes of them. A test prints TEST_SEED; setting it repeats the run."""

import random
from collections.abc import Iterator

from tests.faults.chance import SEED, SOAK

_WORDS = (
    ("a", "b", "}"),
    ("a", "b", "c", "d", "}", "", "x"),
    ("{", "}", "", "return", "    x", "\tx", "x  ", "é", "-- old", "++ new", "+", "-", "@@ -1 +1 @@", "\\ No newline"),
)


def random_cases(count: int, soak_count: int, salt: str) -> Iterator[random.Random]:
    """One generator of chance a case; more of them in a soak."""
    print(f"TEST_SEED={SEED}")
    for number in range(soak_count if SOAK else count):
        yield random.Random(f"{SEED} {salt} {number}")


def random_lines(chance: random.Random, most: int = 14) -> list[str]:
    """Few different lines, or a text with a numbered line here and there, as programs have them."""
    words = chance.choice(_WORDS)
    numbered = chance.choice((0.0, 0.0, 0.3, 0.6))
    return [
        f"line {number}" if chance.random() < numbered else chance.choice(words)
        for number in range(chance.randint(0, most))
    ]


def changed_lines(chance: random.Random, lines: list[str]) -> list[str]:
    """With one to three lines added, removed, replaced or copied, once or up to three times."""
    new = list(lines)
    for _ in range(chance.randint(1, 3)):
        at, size = chance.randint(0, len(new)), chance.randint(1, 3)
        match chance.choice(("add", "remove", "replace", "copy")):
            case "add":
                new[at:at] = random_lines(chance, size)
            case "remove":
                del new[at : at + size]
            case "replace":
                new[at : at + size] = random_lines(chance, size)
            case "copy":
                to = chance.choice((at, at + size, chance.randint(0, len(new))))
                new[to:to] = new[at : at + size]
    return new


def join_lines(lines: list[str], *, final_newline: bool = True, newline: str = "\n") -> bytes:
    text = newline.join(lines)
    return (text + newline if lines and final_newline else text).encode()
