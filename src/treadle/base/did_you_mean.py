"""Suggestions for misspelt names."""

from collections.abc import Collection, Iterable


def did_you_mean(name: str, known_names: Iterable[str], prefix: str = "") -> str:
    """The near name as the end of a sentence; empty if none is near. The prefix that all of them have tells nothing."""
    from difflib import get_close_matches  # for the few who misspell

    close_matches = get_close_matches(name.removeprefix(prefix), [each.removeprefix(prefix) for each in known_names], 1)
    return f"; did you mean {prefix + close_matches[0]!r}?" if close_matches else ""


def unknown_names(kind: str, names: Iterable[str], known_names: Collection[str]) -> str:
    """A sentence about those that are not known, with the near ones; empty if all are."""
    odd = sorted(set(names) - set(known_names))
    if not odd:
        return ""
    parts = [f"there is no {kind} {name!r}{did_you_mean(name, known_names) or '.'}" for name in odd]
    return " ".join(part[0].upper() + part[1:] for part in parts)
