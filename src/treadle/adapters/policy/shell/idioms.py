"""Idioms of destruction, found without any grammar: in texts that cannot be read, and in code given to a program."""

import re

from treadle.adapters.policy.shell.model import UNKNOWN, Rating

_QUOTES = re.compile(r"[\\'\"]|\$(?=['\"])")
_SEPARATORS = re.compile(rf"\$\{{?IFS\}}?|[,\t\n\[\]{UNKNOWN}]|\$@|\$\w*\*")
_RUIN = (
    (
        r"\brm\b(?=[^;|&]{0,200}(?:\s-\w*[rR]|--recursive))(?:\s+[^\s;|&]+){0,6}\s+"
        r"(?:/|~|\$\{?HOME\}?|\.\.)(?:[/*.\s;&|)}`]|$)",
        "looks as if it deletes everything",
    ),
    (r"\bmkfs(?:\.\w+)?\s", "looks as if it makes a file system"),
    (r"(?:\bof=|>\s*)/dev/(?:[shv]d|nvme|mmcblk|disk|mapper)", "looks as if it writes to a disk"),
    (r"\b(?:shred|wipefs|blkdiscard)\b.{0,200}\s/dev/", "looks as if it erases a disk"),
    (r"([^\s(){}|&;]{1,40})\s*\(\)\s*\{.{0,200}?\1\s*\|\s*\1", "looks like a fork bomb"),
    (r"\bfork\s*(?:\(\))?\s*(?:while|until)\b|(?:\bwhile\b|\bloop\b).{0,40}\bfork\b", "looks like a fork bomb"),
    (r">\s*/etc/(?:passwd|shadow|sudoers)", "looks as if it overwrites the accounts"),
    (r"\bfind\s+(?:/|~|\$HOME)\s.{0,200}-delete", "looks as if it deletes everything"),
    (
        r"\b(?:rmtree|rm_rf|rmSync|removeSync|rimraf)\b[\s(]{0,3}(?:/|~)(?:[\s);]|$)",
        "looks as if it deletes everything",
    ),
    (r"\bRemove-Item\b.{0,80}-Recurse.{0,80}\s[/~](?:\s|$)", "looks as if it deletes everything"),
)
_MOST = 50_000


def ruin(text: str) -> list[Rating]:
    """Return the destructive idioms in a text that may be run. A mention counts as the act."""
    plain = _SEPARATORS.sub(" ", _QUOTES.sub("", text[:_MOST]))
    return [Rating("critical", reason) for pattern, reason in _RUIN if re.search(pattern, plain, re.DOTALL)]
