"""Brace expansion, `{a,b}` and `{1..3}`: bash does it on the text of a word, before anything else."""

import re

_MOST = 64
_RANGE = re.compile(r"(-?\d{1,6})\.\.(-?\d{1,6})(?:\.\.(-?\d{1,6}))?|([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?\d{1,6}))?")


def expand_braces(word: str) -> list[str]:
    """The words it becomes, itself if it has nothing to expand; at most 64, and of more the first ones."""
    done: list[str] = []
    waiting = [word]
    while waiting and len(done) < _MOST:
        text = waiting.pop()
        found = _first(text)
        if found is None:
            done.append(text)
            continue
        start, end, choices = found
        waiting.extend(text[:start] + choice + text[end:] for choice in reversed(choices[:_MOST]))
    return done


def _first(text: str) -> tuple[int, int, list[str]] | None:
    at = 0
    while at < len(text):
        char = text[at]
        if char in "'\"`":
            at = _behind(text, at)
        elif char == "\\" or text.startswith("${", at):
            at += 2
        elif char == "{":
            found = _choices(text, at)
            if found is not None:
                return at, found[0], found[1]
            at += 1
        else:
            at += 1
    return None


def _choices(text: str, start: int) -> tuple[int, list[str]] | None:
    """The alternatives of the brace at `start` and the place behind it; None if it is only a brace."""
    depth, at, begin = 0, start + 1, start + 1
    choices: list[str] = []
    while at < len(text):
        char = text[at]
        if char in "'\"`":
            at = _behind(text, at)
            continue
        if char == "\\":
            at += 2
            continue
        if char == "{":
            depth += 1
        elif char == "}" and depth:
            depth -= 1
        elif char == "," and not depth:
            choices.append(text[begin:at])
            begin = at + 1
        elif char == "}":
            if choices:
                return at + 1, [*choices, text[begin:at]]
            series = _series(text[start + 1 : at])
            return (at + 1, series) if series else None
        at += 1
    return None


def _series(text: str) -> list[str]:
    match = _RANGE.fullmatch(text)
    if match is None:
        return []
    letters = match[4] is not None
    first, last = (ord(match[4]), ord(match[5])) if letters else (int(match[1]), int(match[2]))
    step = abs(int(match[6 if letters else 3] or 1)) or 1
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return [chr(n) if letters else str(n) for n in numbers[:_MOST]]


def _behind(text: str, at: int) -> int:
    quote = text[at]
    at += 1
    while at < len(text) and text[at] != quote:
        at += 2 if text[at] == "\\" and quote != "'" else 1
    return at + 1
