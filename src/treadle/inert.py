"""Making text harmless for whoever looks at it (S-12). Whatever models, tools and file names contain, nothing that a
terminal would obey, and nothing that hides or reorders text, gets through; it is shown as an escape instead. `inert` is
for screens, where scripts and emoji should look right; `printable` is stricter, for what is recorded or compared."""

import re

_LIVELY = (
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"  # format characters
    "\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, line ends, text direction
    "\ud800-\udfff\ue000-\uf8ff"  # half characters, private use
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff\U000f0000-\U0010ffff"  # tags and private use: text that nobody sees
    "]"
)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def inert(text: str) -> str:
    """Text of several lines. Line ends of Windows become plain ones; joiners within words and emoji stay."""
    return re.sub(_LIVELY, lambda found: _escaped(found[0]), text.replace("\r\n", "\n"))


def printable(text: str, keep: str = "\n\t") -> str:
    """Every character that is not printable as an escape, joiners and spaces other than the plain one too."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escaped(c) for c in text)


def inert_line(text: str, width: int = 0) -> str:
    """Text for one line: line ends and tabs are escaped too, and what does not fit into `width` is cut."""
    line = inert(text).replace("\n", "\\n").replace("\t", "\\t")
    return f"{line[: width - 1]}…" if 0 < width < len(line) else line


def fence(text: str) -> str:
    """Text as a block of Markdown that it cannot close."""
    mark = "`" * max((len(found) + 1 for found in re.findall(r"^\s*(`{3,})", text, re.MULTILINE)), default=3)
    return f"{mark}\n{text.rstrip()}\n{mark}"
