"""Words that lead out of the project (S-15), by their text: `..` among a path's names, absolute paths elsewhere."""

import posixpath
import re

from treadle.file_system import is_below
from treadle.policy.shell.model import shown

_SYSTEM = re.compile(
    r"/(usr|bin|sbin|lib|lib32|lib64|libx32|opt|nix/store|snap|System|Library/Developer|Applications)(/|$)"
    r"|/dev/(null|zero|full|random|urandom|tty|stdin|stdout|stderr|fd(/\d+)?)$"
    r"|/etc/(os-release|lsb-release|debian_version|hosts|hostname|localtime|timezone|ssl/certs|ssl/cert\.pem"
    r"|ssl/openssl\.cnf|ca-certificates|pki/tls|pki/ca-trust|alternatives|mime\.types|services|protocols|nsswitch\.conf|ld\.so\.)"
    r"|/proc/(cpuinfo|meminfo|version|loadavg|uptime|stat|filesystems|self/status)$"
)
_SPEAKS = frozenset(("echo", "printf", ":", "true", "false", "exit", "return", "sleep", "seq", "expr", "trap", "eval"))
_MESSAGES = frozenset(("-m", "--message", "-am"))
_SCRIPTS = frozenset(
    ("grep", "egrep", "fgrep", "rg", "ag", "ack", "sed", "gsed", "awk", "gawk", "mawk", "jq", "tr", "perl")
)
_PIECES = re.compile(r"[\s'\"`(),;<>|&{}\[\]]+")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def leading_out(command: str, words: tuple[tuple[str, str], ...], failed: bool, root: str, cwd: str) -> tuple[str, ...]:
    if failed:  # not all of its words are known: every piece of the text is looked at
        words = (*words, *(("", piece) for piece in _PIECES.split(command)))
    found = []
    for at, (program, word) in enumerate(words):
        if program in _SPEAKS or (words[at - 1][1] in _MESSAGES and words[at - 1][0] == "git"):
            continue
        if program in _SCRIPTS and _is_script(at, words):
            found += [piece for piece in _files_in_script(word) if _leads_out(piece, root, cwd)]
            continue
        pieces = word.split(":") if program == "=" else _pieces(word)
        found += [shown(piece) for piece in pieces if _leads_out(piece, root, cwd)]
    return tuple(dict.fromkeys(found))


def _is_script(at: int, words: tuple[tuple[str, str], ...]) -> bool:
    """Whether it is the program's first word that is no option: a pattern or a script."""
    program, word = words[at]
    if word.startswith("-"):
        return False
    before = at - 1
    while before >= 0 and words[before][0] == program and words[before][1].startswith("-"):
        if words[before][1] in ("-e", "--expression", "-f", "--file", "--regexp"):
            return True
        before -= 1
    return before < 0 or words[before][0] != program


def _files_in_script(text: str) -> list[str]:
    quoted = re.findall(r"\"([^\"]*)\"", text)
    written = re.findall(r"(?:^|[;{}\s\d$/])[rRwW]\s+(\S+)", text)
    return [*quoted, *written]


def _pieces(word: str) -> list[str]:
    """The word itself, and the paths that stand inside it: behind `=`, `:` or `@`, or in a longer text."""
    if _ADDRESS.match(word):
        return [word[7:]] if word.startswith("file://") else []
    pieces = [word]
    if re.search(r"\s|['\"(]", word):
        pieces += [piece for piece in _PIECES.split(word) if piece.strip("/")]  # alone, a slash divides
    if word.startswith("-") and "/" in word and "=" not in word:
        pieces.append(word[word.index("/") :] if "../" not in word else word[word.index("..") :])
    for piece in list(pieces):
        if not _ADDRESS.search(piece):
            pieces += re.split(r"[=:@]", piece)[1:]
            pieces += [piece[len(piece.split("=")[0]) + 1 :]] if "=" in piece else []
    return pieces


def _leads_out(piece: str, root: str, cwd: str) -> bool:
    if not piece or (piece.startswith("//") and not piece.strip("/")):
        return False
    if piece == ".." or ".." in piece.split("/"):
        return True
    if piece.startswith("~"):
        return piece == "~" or piece.startswith("~/")
    if not piece.startswith("/"):
        return False
    path = posixpath.normpath("/" + piece.lstrip("/"))
    base = posixpath.normpath(root)
    return not is_below(path, base) and not _SYSTEM.match(path)
