"""Files of a project that hold secrets: hidden from commands and asked about before a tool reads them, until a person
allows it, by a rule for `read_file` and this file, or the model knows the content anyway (S-18, decision 0024). Where a
name is used for public files, too, the beginning of the file decides."""

import hashlib
import os
import re
import stat
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from treadle.adapters.policy.sensitive_files import escape_path, fold_case, is_literal, matches_path, resolve_names
from treadle.base.file_system import is_below
from treadle.base.inert import escape_unprintable
from treadle.diff.changes import CACHES
from treadle.protocol.permissions import Offer, Rule
from treadle.protocol.tools import READ_TOOL

_SECRET = re.compile(
    r"""
      \.env | \.env[.\-_](?!(?:example|sample|template|dist|defaults?|schema|test)(?:\.|\Z)).* | \.envrc | \.dev\.vars
    | id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?
    | master\.key
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
        re.compile(
            r"(?:credentials?|secrets?|service[-_]?account.*)\.(?:json|ya?ml|toml|ini|txt)"
            r"|(?!.*(?:example|sample|template|defaults?|test)).+\.env"
        ),
        re.compile(rb"(?i)(?:key|secret|token|passw\w*)[\"']?\s*[=:]\s*[\"']?[^\s\"'$]{4}"),
    ),
)
_SECRET_NAME = re.compile(
    "|".join(f"(?:{pattern.pattern})" for pattern in (_SECRET, *(each[0] for each in _SECRET_BY_CONTENT))), re.VERBOSE
)
_BACKUP = re.compile(r"(?:\.?#)?(?P<name>.+?)(?:\.(?:bak|backup|old|orig|save|sw[a-p])|~|#)*")  # copies of a file
_BUILT = frozenset(("dist", "build", "target"))  # they may hold copies of secrets, and are searched last
_INSTALLED = frozenset((*CACHES, ".git", ".hg", ".svn", ".jj", "site-packages", "vendor"))
"""Folders with installed files, which are not searched. Packages bring files with the names of secrets (settings of
their authors, keys for tests), which are public; and a hidden file keeps an installer from removing its folder."""
_SETTLED_NS = 1_000_000_000  # a folder that changed less than this long ago may change again without a new time
_MOST_ENTRIES = 20_000
_REMEMBERED_S = 2.0  # the answer about deep folders is kept so long; the root and its folders are always looked at
SEARCH_LIMITS = f"in installed packages (node_modules, .venv, vendor …) and beyond the first {_MOST_ENTRIES:,} entries"
"""Where secret files are not found."""
_HEAD = 16_384
_WORDS = re.compile(r"[\s;|&<>()'\"=,:@`]+")
_MOST_WORDS = 200
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _Listing(NamedTuple):
    """The relevant entries of a folder. Paths are relative to the project."""

    stamp: tuple[int, int, int]  # device, inode and time of change of the folder when it was listed
    entries: int
    folders: tuple[str, ...]
    built: tuple[str, ...]
    links: tuple[str, ...]
    files: tuple[str, ...]  # those with names of secrets


def find_secrets(root: str, top: int) -> tuple[str, ...]:
    """The secret files below an open folder, relative to it, the nearest first, built folders last; of a link its
    target. At most 20,000 entries are looked at; deep in the tree a new file is found after two seconds."""
    status = os.fstat(top)
    return _get_search(root, status.st_dev, status.st_ino).find(top)


@lru_cache(maxsize=16)
def _get_search(root: str, _device: int, _inode: int) -> "_SecretSearch":
    return _SecretSearch(root)


class _SecretSearch:
    """Searches one project again and again. A folder is listed anew if its time of change differs."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._listings: dict[str, _Listing] = {}
        self._shallow: dict[str, _Listing] = {}  # the root and its own folders, at the last search
        self._deep_secrets: tuple[str, ...] = ()
        self._until = 0.0
        self._lock = threading.Lock()

    def find(self, top: int) -> tuple[str, ...]:
        with self._lock:
            if time.monotonic() < self._until and (secrets := self._search_shallow(top)) is not None:
                return tuple(dict.fromkeys((*secrets, *self._deep_secrets)))
            return self._search_all(top)

    def _search_shallow(self, top: int) -> list[str] | None:
        """The secrets in the root and its own folders; None if they have other folders than at the last search."""
        secrets: list[str] = []
        for folder, old in self._shallow.items():
            listing = _list_folder(folder, top, self._listings.get(folder))
            if listing is None or (listing.folders, listing.built) != (old.folders, old.built):
                return None
            secrets += self._iterate_secrets(listing, top)
        return secrets

    def _iterate_secrets(self, listing: _Listing, top: int) -> Iterator[str]:
        real_root = os.path.realpath(self._root) if listing.links else ""
        for path in listing.links:  # where it leads, if that lies in the project
            real = os.path.realpath(os.path.join(real_root, path))
            if is_below(real, real_root) and _is_secret(os.path.basename(path), real):
                yield os.path.relpath(real, real_root)
        yield from (path for path in listing.files if _is_secret(os.path.basename(path), path, top))

    def _search_all(self, top: int) -> tuple[str, ...]:
        listings, self._listings, self._shallow = self._listings, {}, {}
        shallow_secrets: dict[str, None] = {}
        deep_secrets: dict[str, None] = {}
        folders, built, entries_left = deque([""]), deque[str](), _MOST_ENTRIES
        while (folders or built) and entries_left > 0:
            folder = (folders or built).popleft()
            listing = _list_folder(folder, top, listings.get(folder))
            if listing is None:
                continue
            if time.time_ns() - listing.stamp[2] > _SETTLED_NS:
                self._listings[folder] = listing
            entries_left -= listing.entries
            folders.extend(listing.folders)
            built.extend(listing.built)
            is_shallow = "/" not in folder
            if is_shallow:
                self._shallow[folder] = listing
            (shallow_secrets if is_shallow else deep_secrets).update(dict.fromkeys(self._iterate_secrets(listing, top)))
        self._deep_secrets = tuple(deep_secrets)
        self._until = time.monotonic() + _REMEMBERED_S
        return tuple(shallow_secrets | deep_secrets)


def _list_folder(folder: str, top: int, cached: _Listing | None) -> _Listing | None:
    try:
        if (
            cached is not None
            and _make_stamp(os.stat(folder or ".", dir_fd=top, follow_symlinks=False)) == cached.stamp
        ):
            return cached
        fd = os.open(folder or ".", _OPEN | os.O_DIRECTORY, dir_fd=top)
    except OSError:
        return None
    folders, built, links, files = list[str](), list[str](), list[str](), list[str]()
    count = 0
    try:
        stamp = _make_stamp(os.fstat(fd))
        with os.scandir(fd) as entries:
            for entry in entries:
                count += 1
                name = entry.name
                path = f"{folder}/{name}" if folder else name
                if entry.is_dir(follow_symlinks=False):
                    if name not in _INSTALLED:
                        (built if name in _BUILT else folders).append(path)
                elif any(map(_SECRET_NAME.fullmatch, _list_plain_names(name))):
                    (links if entry.is_symlink() else files).append(path)
    except OSError:
        return None
    finally:
        os.close(fd)
    return _Listing(stamp, count, tuple(folders), tuple(built), tuple(links), tuple(files))


def _make_stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_dev, status.st_ino, status.st_ctime_ns


def find_named_secrets(root: str, folder: str, words: Iterable[str]) -> tuple[str, ...]:
    """Those of these words that name a secret file, relative to the root. `folder` is where they are looked up."""
    paths = [os.path.join(folder, word) for word in words if word and "\0" not in word]
    inside = (
        name for path in paths for name in resolve_names(root, path) if name != ".." and not name.startswith("../")
    )
    secrets = [path for name in inside if _is_secret(os.path.basename(name), path := os.path.join(root, name))]
    return tuple(dict.fromkeys(os.path.relpath(os.path.realpath(path), os.path.realpath(root)) for path in secrets))


def split_words(command: str) -> list[str]:
    return [word for word in _WORDS.split(command) if word][:_MOST_WORDS]


def select_hidden(root: str, paths: Iterable[str], rules: Sequence[Rule], hashes: Mapping[str, str]) -> Iterator[str]:
    allowing = (rule for rule in rules if rule.pattern and rule.effect == "allow" and rule.tool == READ_TOOL)
    # A pattern that happens to include the file does not count: it must be named.
    patterns = [rule.pattern for rule in allowing if is_literal(rule.pattern)]
    for path in paths:
        if not any(matches_path(pattern, path) for pattern in patterns) and not _is_known(root, path, hashes):
            yield path


def explain(paths: Sequence[str]) -> tuple[str, tuple[Offer, ...], str]:
    """Why a person is asked about a call that names these files, the rules to offer, and what to do beforehand."""
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    reason = f"it names {paths[0]}{more}, which may hold secrets and is hidden from commands and tools"
    rules = [Rule("allow", READ_TOOL, escape_path(path)) for path in paths]
    covers = [escape_unprintable(f"reading {path}, by tools and by commands") for path in paths]
    offers = tuple(Offer(*each, "every other file that may hold secrets") for each in zip(rules, covers, strict=True))
    way_out = f"A person can allow it with: treadle rules add --allow {escape_path(paths[0])} --tool {READ_TOOL}."
    return escape_unprintable(reason), offers, escape_unprintable(way_out)


def _is_known(root: str, path: str, known_hashes: Mapping[str, str]) -> bool:
    with suppress(OSError, KeyError):
        digest = known_hashes[path]
        with open(os.path.join(root, path), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == digest
    return False


def _list_plain_names(name: str) -> tuple[str, ...]:
    """The name in small letters, and the names of the files that it may be a copy of: Vim puts a dot before them."""
    plain = fold_case(name)
    match = _BACKUP.fullmatch(plain)
    if match is None or match["name"] == plain:
        return (plain,)
    return plain, match["name"], match["name"].removeprefix(".")


def _is_secret(name: str, path: str, folder: int | None = None) -> bool:
    plain_names = _list_plain_names(name)
    if not any(map(_SECRET_NAME.fullmatch, plain_names)):
        return False
    by_any_content = any(map(_SECRET.fullmatch, plain_names))
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
        if by_any_content:
            return status.st_size > 0
        matching = (row[1] for row in _SECRET_BY_CONTENT if any(row[0].fullmatch(plain) for plain in plain_names))
        return next(matching).search(os.read(fd, _HEAD)) is not None
    finally:
        os.close(fd)
