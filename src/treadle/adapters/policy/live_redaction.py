"""Redaction of secrets in streamed text: text that may be the beginning of a secret is held back until more arrives.
Knows only how secrets begin; the redactor decides."""

import re
from collections.abc import Callable, Sequence

_LONGEST_HELD = 20_000
_SHORTEST_START = 4
_KEPT = 64
_TAIL = 400
"""How far back the beginning of a token is looked for."""
_BEGINS = re.compile(
    r"(?:(?<![A-Za-z0-9_\-])(?:sk-|[sr]k_|whsec_|gh[pousr]_|github_pat_|gl(?:pat|dt|rt)-|AKIA|ASIA|AIza|ya29\.|xox|xapp-"
    r"|npm_|pypi-|hf_|dckr_pat_|SG\.|eyJ)[A-Za-z0-9_\-.]*"
    r"|(?i:bearer|basic)[ ]+[^\s]*|[A-Za-z][A-Za-z0-9+.\-]*://[^\s/]*|[A-Z][A-Z0-9_]*=[^\s]*"
    r"|[\w.\-]*(?i:passw(?:or)?d|passphrase|secret|token|api[_\-]?key)"
    r"(?:=|[\"']?[ \t]*:[ \t]*)[\"']?[^\s\"']*[\"']?[ \t]*)$"
)
_KEY_BEGINS = "-----BEGIN "
_KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]*-----")


class LiveText:
    """One stream of text. Text that is still held at the end is not shown live, but is in the result. The text shown
    last is checked again together with the next piece: a secret may begin in its last letters."""

    def __init__(self, redact: Callable[[str], str], values: Sequence[str]) -> None:
        self._redact = redact
        self._values = values
        self._shown = ""
        self._held = ""

    def __call__(self, piece: str) -> str:
        text = self._shown + self._held + piece
        length = finished_length(text, self._values)
        if length <= len(self._shown):
            self._held += piece
            return ""
        clean = self._redact(text[:length])
        news = clean[_alike(self._shown, clean) :]
        self._held = text[length:]
        self._shown = (self._shown + news)[-_KEPT:]
        return news


def finished_length(text: str, values: Sequence[str]) -> int:
    """How much of a text that may go on can be shown: behind it may be the beginning of a secret."""
    length = len(text)
    key = text.rfind(_KEY_BEGINS)
    if key >= 0 and not _KEY_ENDS.search(text, key):
        length = key
    tail = max(0, len(text) - _TAIL)
    if (match := _BEGINS.search(text, tail)) is not None:
        length = min(length, match.start())
    for value in values:
        length = min(length, len(text) - _overlap(text, value))
    return length if len(text) - length <= _LONGEST_HELD else len(text)


def _alike(one: str, second: str) -> int:
    """How many letters two texts have in common at their beginning."""
    pairs = enumerate(zip(one, second, strict=False))
    return next((number for number, (a, b) in pairs if a != b), min(len(one), len(second)))


def _overlap(text: str, value: str) -> int:
    """How many letters at the end of the text are the beginning of the value."""
    for length in range(min(len(text), len(value) - 1), _SHORTEST_START - 1, -1):
        if text.endswith(value[:length]):
            return length
    return 0
