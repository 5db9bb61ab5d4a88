"""The front matter of Markdown files, by a YAML parser. Many files are no valid YAML (`name: see: this`): a value
that the parser refuses is read as plain text. Every scalar is text, and aliases are refused."""

import itertools
import re
from collections.abc import Iterable

Value = str | list[str]

_FENCE = "---"
_KEY = re.compile(r"[A-Za-z_][\w.-]*\s*:(?=\s|$)", re.ASCII)


def split(text: str) -> tuple[dict[str, Value], str]:
    """The front matter by its keys, and the body. Without front matter everything is the body."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != _FENCE:
        return {}, text
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() in (_FENCE, "...")), 0)
    if not end:
        return {}, text
    return dict(_read_entries(lines[1:end])), "\n".join(lines[end + 1 :]).strip("\n")


def _read_entries(lines: list[str]) -> Iterable[tuple[str, Value]]:
    starts = [number for number, line in enumerate(lines) if _KEY.match(line)]
    for start, end in itertools.pairwise([*starts, len(lines)]):
        entry = "\n".join(lines[start:end])
        key, _, plain = entry.partition(":")
        yield key.strip().lower(), _parse_value(entry, plain)


def _parse_value(entry: str, plain: str) -> Value:
    import yaml  # most projects have no such file

    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(entry, Loader=yaml.BaseLoader)):
            raise yaml.YAMLError("aliases are refused")
        (value,) = yaml.load(entry, Loader=yaml.BaseLoader).values()
        return [_flatten(item) for item in value] if isinstance(value, list) else _flatten(value)
    except (yaml.YAMLError, AttributeError, ValueError, RecursionError):
        return " ".join(re.sub(r"\s+#.*", "", line).strip() for line in plain.split("\n")).strip()


def _flatten(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_flatten(each)}" for key, each in value.items())
    return ", ".join(map(_flatten, value)) if isinstance(value, list) else str(value).strip()


def words(value: Value | None) -> list[str]:
    """A list, or a text with commas between its parts."""
    parts = value.split(",") if isinstance(value, str) else value or []
    return [part.strip() for part in parts if part.strip()]


def line(value: Value | None) -> str:
    """One line of text."""
    text = value if isinstance(value, str) else ", ".join(value or [])
    return " ".join(text.split())
