"""Changes that are never made in a project, regardless of their author and of any approval (S-16, S-17): files with a
setuid, setgid or sticky bit, special files such as FIFOs, and files that git obeys. Pure; judges a change by its path
and by the file states before and after.

Git runs the programs that its configuration and its hooks name, as the user and outside of every sandbox, in each
folder that it takes for a repository. So in the project's own repository only git's own data may change, and no other
repository is created or changed: neither a `.git` at any depth, under any name that some file system takes for that,
nor a folder with the layout of a bare repository. The layout is judged on the tree as it would be afterwards."""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from treadle.protocol.files import FileChange, FileState, decode_path

OWN_FOLDER = ".treadle"
SPECIAL_BITS = "a file with a setuid, setgid or sticky bit is never made"
NO_FILE = "a FIFO, a socket or a device is never made"
TREADLES = "it is Treadle's own folder"
NESTED = "a repository inside the project is never made or changed: git would obey it"
OTHER_NAME = "a file system may take this name for .git"
NO_FOLDER = "only a folder may lie at .git"
OBEYED = "git would obey it: in .git only git's own data may change"
BARE = "git takes a folder with HEAD, objects and refs for a repository, and would obey it"
_SPECIAL_BITS = 0o7000
_IGNORABLE = "[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u206a-\u206f\ufeff]"  # some file systems ignore these in a name
_SHORT_NAME = r"git~\d+"
_OBEYED = frozenset(("hooks", "config", "config.worktree", "commondir", "gitdir", "info", "branches", "remotes"))
_FOLDERS = frozenset(("refs", "reftable", "logs", "rebase-merge", "rebase-apply", "sequencer"))
_BORROWED = frozenset(("alternates", "http-alternates"))
_COMMIT_GRAPHS = frozenset(("commit-graph", "commit-graphs"))
"""A cache of the history that git believes without a look at the commits: a forged one hides some of them."""
_WITHIN = frozenset(("modules", "worktrees"))  # repositories of submodules and worktrees, with the same data in them
_FILES = (
    r"(?:index|sharedindex\..+|HEAD|[A-Z]+(?:_[A-Z]+)*_HEAD|packed-refs|shallow|description|COMMIT_EDITMSG|TAG_EDITMSG"
    r"|(?:MERGE|SQUASH|BISECT)_[A-Z]+|AUTO_MERGE|gc\.log|gc\.pid)(?:\.lock|\.new)?"
)
_SHAPE = _OBEYED | _FOLDERS | _WITHIN | {"objects", "head", "index", "packed-refs", "shallow", "description"}


def explain_left_out(changes: Iterable[FileChange], exists: Callable[[str], bool]) -> dict[str, str]:
    """By recorded path: why this change is not made. `exists` looks at a path relative to the root."""
    changes = tuple(changes)
    bare = ResultingTree(changes, exists).find_git_directories()
    reasons = {}
    for change in changes:
        path = decode_path(change.path)
        reason = explain_never_committed(path, change.before, change.after)
        if not reason and change.after is not None:
            inner = (path[len(folder) :].partition("/")[0] for folder in bare if path.startswith(folder))
            reason = BARE if any(name.casefold() in _SHAPE for name in inner) else ""
        if reason:
            reasons[change.path] = reason
    return reasons


def explain_never_committed(path: str, old_state: FileState | None, new_state: FileState | None) -> str:
    """Return why this change of a path, relative to the root, is never made; empty if it may be. An existing file may
    be removed, except a file that git obeys in the project's own repository."""
    parts = path.split("/")
    if parts[0].casefold() == OWN_FOLDER:
        return TREADLES
    if new_state is not None and new_state.kind in ("fifo", "other"):
        return NO_FILE
    if new_state is not None and new_state.kind == "file" and new_state.mode & _SPECIAL_BITS:
        return SPECIAL_BITS
    at = next((number for number, part in enumerate(parts) if is_git_name(part)), None)
    if at is None:
        return ""
    if at == 0 and parts[0] == ".git":
        return _explain_git_change(parts[1:], new_state)
    return "" if new_state is None else NESTED if at else OTHER_NAME


@lru_cache(1 << 12)
def is_git_name(name: str) -> bool:
    """True if some file system takes this name for `.git`: in any case, as a short name, or with ignored characters."""
    if name.isascii() and "git" not in name.lower():
        return False
    plain = re.sub(_IGNORABLE, "", name).casefold().partition(":")[0].rstrip(". ")
    return any(each == ".git" or re.fullmatch(_SHORT_NAME, each) is not None for each in plain.split("\\"))


def _explain_git_change(parts: list[str], new_state: FileState | None) -> str:
    if new_state is None:
        return OBEYED if parts and parts[0] in _OBEYED - {"info"} else ""
    is_folder = new_state.kind == "directory"
    if not parts:
        return "" if is_folder else NO_FOLDER
    return "" if new_state.kind != "link" and _is_data(parts, folder=is_folder) else OBEYED


def _is_data(parts: list[str], *, folder: bool) -> bool:
    if any(is_git_name(part) for part in parts):
        return False
    first = parts[0]
    if len(parts) == 1 and (first == "objects" or first in _FOLDERS):
        return folder  # with a file in its place, git finds no repository
    if first == "objects":
        return parts[1] != "info" or not (_BORROWED | _COMMIT_GRAPHS).intersection(parts[2:3])
    if first in _FOLDERS:
        return True
    if first == "lfs":  # objects of Git LFS
        return not _OBEYED.intersection(parts)
    if first in _WITHIN:
        if _OBEYED.intersection(parts):
            return False
        return folder or any(_is_data(parts[depth:], folder=False) for depth in range(2, len(parts)))
    return len(parts) == 1 and not folder and re.fullmatch(_FILES, first) is not None


class ResultingTree:
    """The project as it would be with a set of changes made. `exists` looks into the project as it is. Letter case is
    ignored among the changes: some file systems ignore it."""

    def __init__(self, changes: Iterable[FileChange], exists: Callable[[str], bool]) -> None:
        self._exists = exists
        self._made, self._gone = set[str](), set[str]()
        self._new: set[str] = set()  # folders of which everything is among the changes
        self._touched: set[str] = set()  # folders in which something is made or changed at any depth; the root is empty
        for change in changes:
            path = decode_path(change.path)
            if change.after is None:
                self._gone.add(path.casefold())
                continue
            self._made.add(path.casefold())
            if change.after.kind == "directory" and (change.before is None or change.before.kind != "directory"):
                self._new.add(path)
            folder = path.rpartition("/")[0]
            while folder not in self._touched:
                self._touched.add(folder)
                folder = folder.rpartition("/")[0]
        self._made |= {folder.casefold() for folder in self._touched}

    def has_entry(self, folder: str, name: str) -> bool:
        path = f"{folder}/{name}" if folder else name
        if path.casefold() in self._made:
            return True
        return path.casefold() not in self._gone and folder not in self._new and self._exists(path)

    def find_git_directories(self) -> frozenset[str]:
        """The folders, with a slash behind each and the root as nothing, that hold a changed path at any depth and that
        git would take for repositories by their shape, regardless of the steps by which they got it."""
        folders = (folder for folder in self._touched if self._is_git_directory(folder))
        return frozenset(f"{folder}/" if folder else "" for folder in folders)

    def _is_git_directory(self, folder: str) -> bool:
        if any(is_git_name(part) for part in folder.split("/")):
            return False
        return self.has_entry(folder, "HEAD") and (
            self.has_entry(folder, "commondir")
            or (self.has_entry(folder, "objects") and self.has_entry(folder, "refs"))
        )
