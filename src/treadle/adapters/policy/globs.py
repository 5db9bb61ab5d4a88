"""Names of files by pattern: `*` and `?` within one name, `**` across folders, `[…]` and `{a,b}`. A pattern without a
slash matches the last name at any depth. Case and the two Unicode spellings of a letter make no difference, because on
many disks they make none either."""

import re
import unicodedata
from functools import lru_cache

WILD = re.compile(r"[*?\[\]{}\\]")


def matches(pattern: str, path: str) -> bool:
    """True if the pattern matches the path, which is relative to the root and uses `/`."""
    return _compiled(pattern).fullmatch(folded(path)) is not None


def folded(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def literal(path: str) -> str:
    """The pattern that matches this path and no other."""
    escaped = WILD.sub(lambda match: f"\\{match[0]}", path)
    return escaped if "/" in escaped else f"/{escaped}"


def is_literal(pattern: str) -> bool:
    return WILD.search(re.sub(r"\\.", "", pattern)) is None


@lru_cache(maxsize=1_024)
def _compiled(pattern: str) -> re.Pattern[str]:
    text = folded(pattern).removeprefix("./")
    anywhere = "/" not in text.rstrip("/")
    text = text.lstrip("/")
    if text.endswith("/"):
        text += "**"
    prefix = "(?:.*/)?" if anywhere else ""
    try:
        return re.compile(prefix + _translated(text), re.DOTALL)
    except re.error:  # such as [z-a]: then every character stands for itself
        return re.compile(prefix + re.escape(text), re.DOTALL)


def _translated(text: str) -> str:
    pieces: list[str] = []
    index = depth = 0
    while index < len(text):
        letter = text[index]
        if text.startswith("**/", index):
            pieces.append("(?:.*/)?")
            index += 2
        elif text.startswith("**", index):
            pieces.append(".*")
            index += 1
        elif letter == "*":
            pieces.append("[^/]*")
        elif letter == "?":
            pieces.append("[^/]")
        elif letter == "[" and (end := text.find("]", index + 2)) > 0:
            inside = text[index + 1 : end].replace("\\", r"\\").replace("[", r"\[")
            pieces.append(f"(?!/)[{'^' + inside[1:] if inside[0] in '!^' else inside}]")
            index = end
        elif letter == "{" and "}" in text[index:]:
            pieces.append("(?:")
            depth += 1
        elif letter == "}" and depth:
            pieces.append(")")
            depth -= 1
        elif letter == "," and depth:
            pieces.append("|")
        elif letter == "\\" and index + 1 < len(text):
            index += 1
            pieces.append(re.escape(text[index]))
        else:
            pieces.append(re.escape(letter))
        index += 1
    return "".join(pieces) + ")" * depth
