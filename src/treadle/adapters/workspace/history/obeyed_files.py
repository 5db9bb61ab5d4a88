"""The files of a project that git runs or reads although they lie beside `.git` (S-16, S-23): those that its
configuration names, such as by `core.hooksPath`, with the files that it includes; and the targets of links among its
hooks."""

import os
import re
from collections.abc import Iterable, Iterator

from treadle.adapters.workspace.root import Root
from treadle.base.file_system import is_below
from treadle.errors import ToolError
from treadle.protocol.files import FileChange, decode_path

_PREFIX = ".git/"
_LARGEST_TEXT = 16 << 20
_MOST_CONFIGURATIONS = 20
_MOST_HOOKS = 1_000
_NAMING = re.compile(
    rb"^[ \t]*(?:hooksPath|path|fsmonitor|pager|editor|askPass|sshCommand|gitProxy|alternateRefsCommand|attributesFile"
    rb"|textconv|command|clean|smudge|process|driver|helper|program|cmd|[\w-]+[ \t]*=[ \t]*\"?!)[ \t]*=?[ \t]*(.*)$",
    re.IGNORECASE | re.MULTILINE,
)
"""Settings of git whose values name programs, or files with further settings; and aliases that run something."""
_USER_CONFIGURATIONS = ("~/.gitconfig", "~/.config/git/config")


def find_obeyed_files(root: Root, files: Iterable[FileChange]) -> Iterator[str]:
    """Changed files that git runs or reads: each as the end of a sentence that begins with `it`."""
    files = [file for file in files if file.after is not None and not file.path.startswith(_PREFIX)]
    if not files:
        return
    named_paths = _named_by_project(root) | _named_by_user()
    linked_paths = _linked_hooks(root.path, named_paths)
    for file in files:
        path = decode_path(file.path)
        above = {path, *(path[:at] for at, letter in enumerate(path) if letter == "/")}
        if above & named_paths:
            yield f"changes {path}, which git runs or reads because its configuration names it"
        elif above & linked_paths:
            yield f"changes {path}, which git runs because a hook is a link to it"


def _named_by_project(root: Root) -> set[str]:
    """The paths that the configuration of the repository names, and the files that it includes from the project."""
    pending, texts = [f"{_PREFIX}config", f"{_PREFIX}config.worktree"], dict[str, bytes]()
    named_paths: set[str] = set()
    while pending and len(texts) < _MOST_CONFIGURATIONS:
        configuration = pending.pop(0)
        if configuration in texts:
            continue
        try:
            texts[configuration] = root.read_bytes(configuration, _LARGEST_TEXT)
        except ToolError:
            continue
        words = _words_of_values(texts[configuration])
        bases = {"", ".git", os.path.dirname(configuration)}
        paths = {os.path.normpath(os.path.join(base, word)) for word in words for base in bases}
        named_paths |= paths
        pending += sorted(path for path in paths if _is_configuration(root.path, path))
    return named_paths


def _is_configuration(root: str, path: str) -> bool:
    """True for a file of the project that may be an included configuration, and not a large program."""
    return not os.path.isabs(path) and not path.startswith("..") and os.path.isfile(os.path.join(root, path))


def _named_by_user() -> set[str]:
    """Relative paths in the user's own configuration hold in every project. A word without a slash is a program of the
    search path, unless it is the folder of hooks."""
    named_paths: set[str] = set()
    for name in _USER_CONFIGURATIONS:
        try:
            with open(os.path.expanduser(name), "rb") as file:
                data = file.read(_LARGEST_TEXT)
        except OSError:
            continue
        words = [word for word in _words_of_values(data) if "/" in word]
        words += [
            os.fsdecode(value).strip('"') for value in re.findall(rb"(?im)^[ \t]*hooksPath[ \t]*=[ \t]*(\S+)", data)
        ]
        named_paths |= {os.path.normpath(word) for word in words if word[:1] not in "/~"}
    return named_paths


def _words_of_values(data: bytes) -> list[str]:
    values = _NAMING.findall(data)
    return [os.fsdecode(word) for value in values for word in re.split(rb"[\s\"';|&]+", value) if word]


def _linked_hooks(root: str, named_paths: Iterable[str]) -> set[str]:
    """Where links among the hooks lead, relative to the project. Projects link their hooks to scripts that they
    track."""
    top = os.path.realpath(root)
    targets: set[str] = set()
    for folder in {f"{_PREFIX}hooks", *named_paths} - {"."}:
        path = os.path.join(top, folder)
        if os.path.islink(path):
            targets.add(os.path.realpath(path))
        try:
            with os.scandir(path) as entries:
                links = [
                    entry.path for _, entry in zip(range(_MOST_HOOKS), entries, strict=False) if entry.is_symlink()
                ]
        except OSError:
            continue
        targets.update(os.path.realpath(link) for link in links)
    return {os.path.relpath(target, top) for target in targets if target != top and is_below(target, top)}
