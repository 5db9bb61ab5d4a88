"""The severity of a shell command, judged by its text alone (S-04): nothing is run, and no file is read. Words that are
not literal are unknown; their effect is judged elsewhere, on a view. A text that cannot be parsed is high."""

import posixpath
import re
from functools import lru_cache

from treadle.adapters.policy.shell.model import (
    MESSAGES,
    RANK,
    Finding,
    Part,
    Rating,
    mask_unknown,
    parse_names,
    select_worst,
)
from treadle.adapters.policy.shell.places import ruin
from treadle.adapters.policy.shell.walk import Record, Scope, ShellMemory, TooMuch, Walker
from treadle.base.file_system import is_below

__all__ = ["Finding", "Part", "classify", "find_outside_words", "parse_expanded_parts", "parse_parts"]

_MOST_CHARS = 200_000
_MOST_ROUNDS = 3  # how often a value may hold a variable itself
_SYSTEM = re.compile(
    r"/(usr|bin|sbin|lib|lib32|lib64|libx32|opt|nix/store|snap|System|Library/Developer|Applications)(/|$)"
    r"|/dev/(null|zero|full|random|urandom|tty|stdin|stdout|stderr|fd(/\d+)?)$"
    r"|/etc/(os-release|lsb-release|debian_version|hosts|hostname|localtime|timezone|ssl/certs|ssl/cert\.pem"
    r"|ssl/openssl\.cnf|ca-certificates|pki/tls|pki/ca-trust|alternatives|mime\.types|services|protocols|nsswitch\.conf|ld\.so\.)"
    r"|/proc/(cpuinfo|meminfo|version|loadavg|uptime|stat|filesystems|self/status)$"
)
_SPEAKS = parse_names("echo printf : true false exit return sleep seq expr trap eval")
_SCRIPTS = parse_names("grep egrep fgrep rg ag ack sed gsed awk gawk mawk jq tr perl")
_SCRIPT_FOLLOWS = ("-e", "--expression", "-f", "--file", "--regexp")
_PIECES = re.compile(r"[\s'\"`(),;<>|&{}\[\]]+")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\ue002]")


def classify(command: str) -> Finding:
    record = _read(command)
    ratings = [*record.notes, *(Rating(part.severity, reason) for part in record.parts for reason in part.reasons)]
    reasons = tuple(dict.fromkeys(each.reason for each in sorted(ratings, key=lambda each: -RANK[each.severity])))
    network = any(part.network for part in record.parts) or any(note.network for note in record.notes)
    return Finding(select_worst(each.severity for each in ratings), reasons, network)


def parse_parts(command: str) -> tuple[Part, ...]:
    """Each simple command that would run, nested ones too; of an unreadable text also one that no rule covers."""
    record = _read(command)
    worries = [note for note in record.notes if note.severity != "none"]
    if not worries:
        return tuple(record.parts)
    severity = select_worst(note.severity for note in worries)
    reasons = tuple(dict.fromkeys(note.reason for note in worries))
    return (*record.parts, Part("", (), unknown=True, severity=severity, reasons=reasons))


def parse_expanded_parts(command: str) -> tuple[Part, ...]:
    """The parts with the command's own variables filled in; empty if it sets none. Never to allow a command by."""
    text = command
    for _ in range(_MOST_ROUNDS):
        values = dict(_read(text).variables)
        expanded_text = _VARIABLE.sub(lambda match: values.get(match[1] or match[2], match[0]), text)  # noqa: B023
        if expanded_text == text or len(expanded_text) > _MOST_CHARS:
            break
        text = expanded_text
    return parse_parts(text) if text != command else ()


def find_outside_words(command: str, root: str) -> tuple[str, ...]:
    """The words that leave the project (S-15): by `..`, or absolute, except below the root and places of programs."""
    record = _read(command)
    words = record.words
    if record.failed:  # not all of its words are known: every piece of the text is looked at
        words = [*words, *(("", piece) for piece in _PIECES.split(command))]
    outside_paths: list[str] = []
    previous, due = ("", ""), False
    for program, word in words:
        # the first word of grep and its like that is no option, and any behind -e, is a pattern or a script
        due = previous[0] != program or previous[1] in _SCRIPT_FOLLOWS or (due and previous[1].startswith("-"))
        message = previous[0] == "git" and previous[1] in MESSAGES
        script = program in _SCRIPTS and due and not word.startswith("-")
        previous = (program, word)
        if program in _SPEAKS or message:
            continue
        pieces = word.split(":") if program == "=" else _split_word(word)
        if script:  # the files that it names
            pieces = [*re.findall(r"\"([^\"]*)\"", word), *re.findall(r"(?:^|[;{}\s\d$/])[rRwW]\s+(\S+)", word)]
        outside_paths += [mask_unknown(piece) for piece in pieces if _is_outside(piece, root)]
    return tuple(dict.fromkeys(outside_paths))


def _split_word(word: str) -> list[str]:
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


def _is_outside(piece: str, root: str) -> bool:
    if ".." in piece.split("/") or piece == "~" or piece.startswith("~/"):
        return True
    if not piece.startswith("/") or (piece.startswith("//") and not piece.strip("/")):
        return False
    path = posixpath.normpath("/" + piece.lstrip("/"))
    return not is_below(path, posixpath.normpath(root)) and not _SYSTEM.match(path)


@lru_cache(maxsize=256)
def _read(command: str) -> Record:
    record = Record()
    if _UNSEEN.search(command):
        record.note("high", "it holds characters that cannot be seen")
        command = _UNSEEN.sub("", command.replace("\r\n", "\n"))
    try:
        if len(command) > _MOST_CHARS:
            raise TooMuch("it is longer than is looked at")
        Walker(record, ShellMemory(), Scope()).walk_text(command)
    except (TooMuch, RecursionError) as problem:
        record.fail(f"it cannot be followed to its end: {problem}")
    if record.failed or record.unseen:
        record.notes += ruin(command)
    # Parts that are dangerous only together: printing the environment and using the network.
    shows = any("environment" in reason for part in record.parts for reason in part.reasons)
    if shows and any(part.network for part in record.parts):
        record.note("high", "may send the environment, with its secrets, over the network")
    return record
