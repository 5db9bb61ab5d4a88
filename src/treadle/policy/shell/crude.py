"""The last look at a text that could not be followed: idioms of destruction, found without any grammar."""

import re

from treadle.policy.shell.model import Found

_QUOTES = re.compile(r"[\\'\"]|\$(?=['\"])")
_SEPARATORS = re.compile(r"\$\{?IFS\}?|[,\t\n]")
_RUIN = (
    (r"\brm\b(?:\s+\S+){0,6}\s+(?:/|~|\$\{?HOME\}?|\.\.)(?:[/*.\s;&|)}`]|$)", "looks as if it deletes everything"),
    (r"\bmkfs(?:\.\w+)?\b", "looks as if it makes a file system"),
    (r"(?:\bof=|>\s*)/dev/(?:[shv]d|nvme|mmcblk|disk|mapper)", "looks as if it writes to a disk"),
    (r"\b(?:shred|wipefs|blkdiscard)\b.{0,200}\s/dev/", "looks as if it erases a disk"),
    (r"([^\s(){}|&;]{1,40})\s*\(\)\s*\{.{0,200}?\1\s*\|\s*\1", "looks like a fork bomb"),
    (r">\s*/etc/(?:passwd|shadow|sudoers)", "looks as if it overwrites the accounts"),
    (r"\bfind\s+(?:/|~|\$HOME)\s.{0,200}-delete", "looks as if it deletes everything"),
)
_COMPILED = tuple((re.compile(pattern, re.DOTALL), reason) for pattern, reason in _RUIN)
_MOST = 50_000


def crude(text: str) -> list[Found]:
    plain = _SEPARATORS.sub(" ", _QUOTES.sub("", text[:_MOST]))
    return [Found("critical", reason) for pattern, reason in _COMPILED if pattern.search(plain)]
