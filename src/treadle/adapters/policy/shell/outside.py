"""Words that lead out of the project (S-15), by their text: `..` among a path's names, absolute paths elsewhere."""

import posixpath
import re

from treadle.adapters.policy.shell.model import MESSAGES, mask_unknown, names
from treadle.base.file_system import is_below

_SYSTEM = re.compile(
    r"/(usr|bin|sbin|lib|lib32|lib64|libx32|opt|nix/store|snap|System|Library/Developer|Applications)(/|$)"
    r"|/dev/(null|zero|full|random|urandom|tty|stdin|stdout|stderr|fd(/\d+)?)$"
    r"|/etc/(os-release|lsb-release|debian_version|hosts|hostname|localtime|timezone|ssl/certs|ssl/cert\.pem"
    r"|ssl/openssl\.cnf|ca-certificates|pki/tls|pki/ca-trust|alternatives|mime\.types|services|protocols|nsswitch\.conf|ld\.so\.)"
    r"|/proc/(cpuinfo|meminfo|version|loadavg|uptime|stat|filesystems|self/status)$"
)
_SPEAKS = names("echo printf : true false exit return sleep seq expr trap eval")
_SCRIPTS = names("grep egrep fgrep rg ag ack sed gsed awk gawk mawk jq tr perl")
_SCRIPT_FOLLOWS = ("-e", "--expression", "-f", "--file", "--regexp")
_PIECES = re.compile(r"[\s'\"`(),;<>|&{}\[\]]+")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def leading_out(command: str, words: tuple[tuple[str, str], ...], failed: bool, root: str) -> tuple[str, ...]:
    if failed:  # not all of its words are known: every piece of the text is looked at
        words = (*words, *(("", piece) for piece in _PIECES.split(command)))
    outside_paths: list[str] = []
    previous, due = ("", ""), False
    for program, word in words:
        # the first word of grep and its like that is no option, and any behind -e, is a pattern or a script
        due = previous[0] != program or previous[1] in _SCRIPT_FOLLOWS or (due and previous[1].startswith("-"))
        message = previous[0] == "git" and previous[1] in MESSAGES
        script = program in _SCRIPTS and due and not word.startswith("-")
        previous = (program, word)
        if program not in _SPEAKS and not message:
            pieces = _files_in_script(word) if script else word.split(":") if program == "=" else _pieces(word)
            outside_paths += [mask_unknown(piece) for piece in pieces if _leads_out(piece, root)]
    return tuple(dict.fromkeys(outside_paths))


def _files_in_script(text: str) -> list[str]:
    return [*re.findall(r"\"([^\"]*)\"", text), *re.findall(r"(?:^|[;{}\s\d$/])[rRwW]\s+(\S+)", text)]


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


def _leads_out(piece: str, root: str) -> bool:
    if not piece or (piece.startswith("//") and not piece.strip("/")):
        return False
    if piece == ".." or ".." in piece.split("/"):
        return True
    if piece.startswith("~"):
        return piece == "~" or piece.startswith("~/")
    if not piece.startswith("/"):
        return False
    path = posixpath.normpath("/" + piece.lstrip("/"))
    return not is_below(path, posixpath.normpath(root)) and not _SYSTEM.match(path)
