"""Arguments as programs read them: options with and without values, clusters, `--`, abbreviated long names."""

from collections.abc import Iterable

import msgspec


class Options(msgspec.Struct, frozen=True):
    flags: tuple[str, ...]
    """Names without their dashes; those that take a value are here, too."""
    values: tuple[tuple[str, str], ...]
    operands: tuple[str, ...]

    def has(self, *names: str) -> bool:
        """True if one of the options was given. A long name also matches its prefix of three letters or more."""
        return any(
            flag == name or (len(name) > 3 and len(flag) >= 3 and name.startswith(flag))
            for name in names
            for flag in self.flags
        )

    def all(self, *names: str) -> list[str]:
        return [value for name, value in self.values if name in names]


def read(args: Iterable[str], valued: str = "", *, until_word: bool = False) -> Options:
    """`valued` names the options that take a value, separated by spaces; with `until_word` the first word that is no
    option ends them, and it and all that follows is the rest."""
    takes = frozenset(valued.split())
    flags: list[str] = []
    values: list[tuple[str, str]] = []
    operands: list[str] = []
    words = list(args)
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            operands += words[at:]
            break
        if word[:1] != "-" or word == "-":
            operands.append(word)
            if until_word:
                operands += words[at:]
                break
            continue
        at += _option(word, words[at : at + 1], takes, flags, values)
    return Options(tuple(flags), tuple(values), tuple(operands))


def _option(
    word: str, following: list[str], takes: frozenset[str], flags: list[str], values: list[tuple[str, str]]
) -> int:
    """Reads one word of options; returns how many of the following words are its value."""
    name, equals, value = word.lstrip("-").partition("=")
    if word.startswith("--") or (name in takes and len(name) > 1):
        flags.append(name)
        if equals:
            values.append((name, value))
        elif name in takes and following:
            values.append((name, following[0]))
            return 1
        return 0
    for at, letter in enumerate(word[1:], 1):
        flags.append(letter)
        if letter in takes:
            inline = word[at + 1 :]
            if inline or following:
                values.append((letter, inline or following[0]))
            return 0 if inline else 1
    return 0
