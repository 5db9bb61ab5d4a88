"""The front matter of Markdown files: the part of YAML that such files use (texts, quoted or over several lines, lists,
one level of keys), read without a YAML library. What is beyond that is taken as text, never as anything else."""

import re

Value = str | list[str]

_FENCE = "---"
_KEY = re.compile(r"([A-Za-z_][\w.-]*)\s*:(?:\s+(.*))?$")
_BLOCK = re.compile(r"[|>][+-]?\d?$")


def split(text: str) -> tuple[dict[str, Value], str]:
    """The front matter by its keys, and the body. Without front matter everything is the body."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != _FENCE:
        return {}, text
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() in (_FENCE, "...")), 0)
    if not end:
        return {}, text
    return _read(lines[1:end]), "\n".join(lines[end + 1 :]).strip("\n")


def _read(lines: list[str]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    at = 0
    while at < len(lines):
        match = _KEY.match(lines[at])
        at += 1
        if match is None:
            continue
        below = at
        while below < len(lines) and (not lines[below].strip() or lines[below][0] in " \t-"):
            below += 1
        found[match[1].lower()] = _value((match[2] or "").strip(), lines[at:below])
        at = below
    return found


def _value(head: str, below: list[str]) -> Value:
    items = [line.strip() for line in below if line.strip()]
    if _BLOCK.match(head):
        return "\n".join(items) if head[0] == "|" else " ".join(items)
    if not head and items and all(item.startswith("-") for item in items):
        return [_text(item[1:].strip()) for item in items]
    if head.startswith("[") and head.endswith("]"):
        return [_text(item.strip()) for item in head[1:-1].split(",") if item.strip()]
    return _text(" ".join([head, *items]).strip())


def _text(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        inner = text[1:-1]
        return inner.replace("''", "'") if text[0] == "'" else inner.replace('\\"', '"').replace("\\n", "\n")
    return re.sub(r"\s+#.*$", "", text)


def words(value: Value | None) -> list[str]:
    """A list, or a text with commas between its parts."""
    parts = value.split(",") if isinstance(value, str) else value or []
    return [part.strip() for part in parts if part.strip()]


def line(value: Value | None) -> str:
    """One line of text."""
    text = value if isinstance(value, str) else ", ".join(value or [])
    return " ".join(text.split())
