"""The lists of guarded paths in a project and in a home, and the stand-ins for those that do not exist."""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from treadle.chat.change_rules import OWN_FOLDER
from treadle.ports.sandbox import IN_A_REPOSITORY

PROTECTED = (OWN_FOLDER,)

STAND_INS: Mapping[str, bytes] = {"config": b"", "config.worktree": b"", "commondir": b".\n"}
"""By name, the content of a file that is to git as if it were not there. All others are stood in for by a folder."""

SECRETS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".config/gcloud", ".config/gh", ".config/git/credentials", ".kube",
    ".docker/config.json", ".netrc", ".git-credentials", ".pypirc", ".cargo/credentials.toml", ".password-store",
    ".local/share/keyrings",
)  # fmt: skip
"""Keys and passwords, below the user's home folder."""


def protected(root: str) -> tuple[str, ...]:
    """The paths below a root that commands may not write, whether they exist or not."""
    git = os.path.join(root, ".git")
    repositories = (git, *_modules(os.path.join(git, "modules")))
    paths = [os.path.join(repository, name) for repository in repositories for name in IN_A_REPOSITORY]
    for worktree in _folders(os.path.join(git, "worktrees")):  # linked worktrees name their repository in a file
        named = (os.path.join(worktree, name) for name in ("commondir", "config.worktree"))
        paths += (path for path in named if os.path.lexists(path))
    return (*paths, *(os.path.join(root, name) for name in PROTECTED))


def find_hidden_paths(*own_folders: str, user_home: str | None = None) -> tuple[str, ...]:
    """The paths that commands may not read: Treadle's own folders, and the user's keys."""
    home = user_home or str(Path.home())
    paths = [*own_folders, *(os.path.join(home, name) for name in SECRETS)]
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths if os.path.lexists(path)))


def own_python() -> tuple[str, ...]:
    """Where this interpreter and Treadle itself lie."""
    return sys.prefix, sys.base_prefix, str(Path(__file__).resolve().parents[2])


def _modules(folder: str) -> Iterator[str]:
    """The repositories of submodules; their names may have slashes."""
    for child in _folders(folder):
        is_repository = os.path.lexists(os.path.join(child, "HEAD"))
        if is_repository:
            yield child
        yield from _modules(os.path.join(child, "modules") if is_repository else child)


def _folders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
