"""Files of a project that hold secrets: hidden from commands and asked about before a tool reads them, until a person
allows it or the model knows the content anyway (S-18, decision 0024).

A name says that a file may hold secrets; where the same name is used for public files (certificates, settings), the
beginning of the file decides. An approval is a rule that allows `read_file` for exactly this file."""

import hashlib
import os
import re
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from treadle.file_system import is_below
from treadle.inert import printable
from treadle.lines.changes import CACHES
from treadle.policy.globs import folded, is_literal, literal, matches
from treadle.policy.sensitive_files import names
from treadle.protocol.permissions import Offer, Rule
from treadle.protocol.tools import READ_TOOL

_SECRET = re.compile(
    r"""
      \.env | \.env\.(?!(?:example|sample|template|dist|defaults?|schema|test)(?:\.|\Z)).* | \.envrc
    | id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?
    | [._]netrc | \.(?:pypirc|git-credentials|htpasswd|pgpass|my\.cnf|vault-token|dockercfg)
    | .*\.(?:p12|pfx|jks|keystore|kdbx|ppk)
    """,
    re.VERBOSE,
)
_SECRET_BY_CONTENT = (
    (re.compile(r".*\.(?:pem|key|asc|gpg)"), re.compile(rb"PRIVATE KEY")),
    (
        re.compile(r"\.(?:npmrc|yarnrc|yarnrc\.yml)"),
        re.compile(rb"(?i)(?:_auth|_authToken|_password|npmAuth\w*)\s*[=:]\s*[^\s$]"),
    ),
    (
        re.compile(r"(?:credentials?|secrets?|service[-_]?account.*)\.(?:json|ya?ml|toml|ini|txt)"),
        re.compile(rb"(?i)(?:key|secret|token|passw\w*)[\"']?\s*[=:]\s*[\"']?[^\s\"'$]{4}"),
    ),
)
_PRUNED = frozenset((*CACHES, ".git", ".hg", ".svn", ".jj", "site-packages", "vendor", "dist", "build", "target"))
"""Folders with installed or built files; they are not searched."""
_MOST_ENTRIES = 20_000
_HEAD = 16_384
_WORDS = re.compile(r"[\s;|&<>()'\"=,:@`]+")
_MOST_WORDS = 200
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def find_secrets(root: str, top: int) -> tuple[str, ...]:
    """The secret files below an open folder, as paths relative to it, the nearest first; of a link the file it leads
    to. `root` is its path. At most 20,000 entries are looked at."""
    secrets: dict[str, None] = {}
    folders, entries_left = deque([""]), _MOST_ENTRIES
    while folders and entries_left > 0:
        folder = folders.popleft()
        try:
            fd = os.open(folder or ".", _OPEN | os.O_DIRECTORY, dir_fd=top)
        except OSError:
            continue
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    entries_left -= 1
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        folders.extend(() if entry.name in _PRUNED else (path,))
                    elif entry.is_symlink():
                        secrets.update(dict.fromkeys(_target(root, path)))
                    elif entry.is_file(follow_symlinks=False) and _is_secret(entry.name, entry.name, fd):
                        secrets[path] = None
        except OSError:
            pass
        finally:
            os.close(fd)
    return tuple(secrets)


def named_secrets(root: str, folder: str, words: Iterable[str]) -> tuple[str, ...]:
    """Those of these words that name a secret file, relative to the root. `folder` is where they are looked up."""
    secrets: dict[str, None] = {}
    for word in words:
        if not word or "\0" in word:
            continue
        for name in names(root, os.path.join(folder, word)):
            inside = name != ".." and not name.startswith("../")
            if inside and _is_secret(os.path.basename(name), os.path.join(root, name)):
                secrets[os.path.relpath(os.path.realpath(os.path.join(root, name)), os.path.realpath(root))] = None
    return tuple(secrets)


def words_of(command: str) -> list[str]:
    """The words of a command that may be names of files, however they are quoted or joined."""
    return [word for word in _WORDS.split(command) if word][:_MOST_WORDS]


def still_hidden(
    root: str, paths: Iterable[str], rules: Sequence[Rule], known_hashes: Mapping[str, str]
) -> Iterator[str]:
    """Those that no rule allows to be read and whose content the model does not know."""
    for path in paths:
        if not _is_allowed(path, rules) and not _is_known(root, path, known_hashes):
            yield path


def offers(paths: Sequence[str]) -> tuple[Offer, ...]:
    rules = (Rule("allow", READ_TOOL, literal(path)) for path in paths)
    return tuple(
        Offer(rule, printable(f"reading {path}, by tools and by commands"), "every other file that may hold secrets")
        for rule, path in zip(rules, paths, strict=True)
    )


def reason(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return printable(f"it names {paths[0]}{more}, which may hold secrets and is hidden from commands and tools")


def way_out(paths: Sequence[str]) -> str:
    return printable(f"A person can allow it with: treadle rules add --allow {literal(paths[0])} --tool {READ_TOOL}.")


def _is_allowed(path: str, rules: Iterable[Rule]) -> bool:
    """A pattern that happens to include the file does not count: it must be named."""
    return any(
        rule.effect == "allow" and rule.tool == READ_TOOL and is_literal(rule.pattern) and matches(rule.pattern, path)
        for rule in rules
        if rule.pattern
    )


def _is_known(root: str, path: str, known_hashes: Mapping[str, str]) -> bool:
    if path not in known_hashes:
        return False
    with suppress(OSError), open(os.path.join(root, path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == known_hashes[path]
    return False


def _target(root: str, path: str) -> Iterator[str]:
    """Where a link with the name of a secret leads, if that lies in the project."""
    if not _SECRET.fullmatch(folded(os.path.basename(path))):
        return
    real_root = os.path.realpath(root)
    real = os.path.realpath(os.path.join(real_root, path))
    if is_below(real, real_root) and os.path.isfile(real):
        yield os.path.relpath(real, real_root)


def _is_secret(name: str, path: str, folder: int | None = None) -> bool:
    """True if the path is a regular file that holds secrets, by its last name and its beginning."""
    plain = folded(name)
    content_pattern = next((content for pattern, content in _SECRET_BY_CONTENT if pattern.fullmatch(plain)), None)
    if content_pattern is None and not _SECRET.fullmatch(plain):
        return False
    try:
        if folder is None:
            path = os.path.realpath(path)
        fd = os.open(path, _OPEN, dir_fd=folder)
    except OSError:
        return False
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return False
        return status.st_size > 0 if content_pattern is None else content_pattern.search(os.read(fd, _HEAD)) is not None
    finally:
        os.close(fd)
