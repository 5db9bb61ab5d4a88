"""Trees of files for the tests of snapshots: said as values, made on disk, read back exactly, and compared."""

import os
import shutil
import stat as st
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import msgspec
from hypothesis import strategies

from treadle.adapters.workspace.history.content_store import ContentStore
from treadle.adapters.workspace.history.journal import Journals
from treadle.adapters.workspace.history.states import Folders, hold_file
from treadle.adapters.workspace.history.transaction import Transactions
from treadle.adapters.workspace.root import Root
from treadle.ports.snapshots import Effect, Plan
from treadle.protocol.files import DiffStat, FileChange, FileState, encode_path, make_file_change


class Node(msgspec.Struct, frozen=True):
    """A file, link, FIFO or folder."""

    kind: str
    mode: int = 0o644
    data: bytes = b""
    """A file's bytes, or where a link points."""
    inside: "dict[bytes, Node] | None" = None


MEMORY = "/dev/shm"
NAMES = [b"a", b"b", b"c", b"d e", b"new\nline", b"\xff\xfe", "ä".encode(), b"n" * 255, b".git", b"-rf"]
FILE_MODES = [0o644, 0o600, 0o755, 0o000, 0o444, 0o111, 0o711, 0o606]
FOLDER_MODES = [0o755, 0o700, 0o555, 0o000, 0o311, 0o1777, 0o400]


def nodes(modes: bool = True) -> strategies.SearchStrategy[dict[bytes, Node]]:
    """Random trees whose names overlap, so that two of them make every kind of change."""
    name = strategies.sampled_from(NAMES)
    mode = strategies.sampled_from(FILE_MODES if modes else [0o644])
    folder_mode = strategies.sampled_from(FOLDER_MODES if modes else [0o755])
    bits = strategies.sampled_from([b"", b"1", b"two\n", b"\r\n\0", b"x" * 5000])
    leaf = strategies.one_of(
        strategies.builds(lambda m, d: Node("file", m, d), mode, bits),
        strategies.sampled_from([Node("link", 0, target) for target in (b"a", b"nowhere", b"/etc/passwd", b"..")]),
        strategies.builds(lambda m: Node("fifo", m), mode),
    )
    node = strategies.recursive(
        leaf,
        lambda inner: strategies.builds(
            lambda m, i: Node("directory", m, inside=i),
            folder_mode,
            strategies.dictionaries(name, inner, max_size=4),
        ),
        max_leaves=12,
    )
    return strategies.dictionaries(name, node, max_size=6)


@contextmanager
def fast_folder() -> Iterator[Path]:
    """A folder in memory where that is possible: a sync there costs nothing."""
    folder = tempfile.mkdtemp(dir=MEMORY if os.access(MEMORY, os.W_OK) else None)
    try:
        yield Path(folder)
    finally:
        remove(Path(folder))


def remove(folder: Path) -> None:
    """Remove a folder with everything in it, for any modes."""
    subprocess.run(["chmod", "-R", "u+rwX", str(folder)], check=False, stderr=subprocess.DEVNULL)
    shutil.rmtree(folder)


def build(folder: Path, tree: dict[bytes, Node]) -> None:
    _build(os.fsencode(folder), tree)


def _build(folder: bytes, tree: dict[bytes, Node]) -> None:
    os.makedirs(folder, exist_ok=True)
    for name, node in tree.items():
        path = folder + b"/" + name
        if node.kind == "file":
            with open(path, "wb") as file:
                file.write(node.data)
        elif node.kind == "link":
            os.symlink(node.data, path)
            continue
        elif node.kind == "fifo":
            os.mkfifo(path)
        else:
            _build(path, node.inside or {})
        os.chmod(path, node.mode)


Picture = dict[str, tuple[str, int, str]]


def picture(folder: Path) -> Picture:
    """The exact content of a folder: by path the kind, the mode, and the bytes' hash or a link's target. Leaves all
    modes as they are."""
    with Folders(str(folder)) as folders:
        return {
            path: (state.kind, state.mode, state.digest or state.target)
            for path in _paths(folders, [])
            if (state := folders.read_state(path)) is not None
        }


def _paths(folders: Folders, parts: list[str]) -> Iterable[str]:
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folders.hold_folder(parts))
    try:
        names = sorted(os.listdir(fd))
    finally:
        os.close(fd)
    paths = []
    for name in names:
        path = [*parts, name]
        paths.append(encode_path("/".join(path)))
        stat = folders.lstat(paths[-1])
        if stat is not None and st.S_ISDIR(stat.st_mode):
            paths += _paths(folders, path)
    return paths


def states(folder: Path) -> dict[str, FileState]:
    with Folders(str(folder)) as folders:
        paths = _paths(folders, [])
        return {path: state for path in paths if (state := folders.read_state(path)) is not None}


def between(old: Path, new: Path) -> tuple[FileChange, ...]:
    """The changes that turn one tree into the other."""
    old_states, new_states = states(old), states(new)
    return tuple(
        make_file_change(path, old_states.get(path), new_states.get(path), DiffStat())
        for path in sorted({*old_states, *new_states})
        if old_states.get(path) != new_states.get(path)
    )


class FromFolder:
    """New bytes from another folder, as from the upper folder of a view."""

    TIME = 1_000_000_000_000_000_000

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open(self, path: str, state: FileState) -> int:
        with Folders(self._folder) as folders, hold_file(*folders.locate(path)) as fd:
            return os.dup(fd)

    def lend(self) -> AbstractContextManager[None]:
        return nullcontext()

    def let_go(self, paths: Iterable[str]) -> None:
        return None

    def read_mtime_ns(self, path: str) -> int:
        return self.TIME

    def list_touched_files(self) -> Iterable[tuple[str, int]]:
        return ()


class Bench:
    """A project, the tree that it shall become, and a home for what is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.goal = folder / "goal"
        self.home = folder / "home" / "snapshots"
        for each in (self.project, self.goal):
            each.mkdir(parents=True, exist_ok=True)

    @property
    def images(self) -> ContentStore:
        return ContentStore(self.home)

    @property
    def journals(self) -> Journals:
        return Journals(self.home / "journals")

    @property
    def transactions(self) -> Transactions:
        return Transactions(Root(str(self.project)), self.images, self.journals, lambda: "fingerprint")

    def commit(self, name: str = "c_1/1.0", files: tuple[FileChange, ...] | None = None) -> Effect:
        """Make the project what the goal is."""
        changes = between(self.project, self.goal) if files is None else files
        return self.transactions.commit(name, str(self.goal), lambda: Effect(changes), FromFolder)

    def discard(self, name: str = "c_1/1.0") -> Effect | None:
        return self.transactions.discard(name, FromFolder)

    def restore(self, name: str, files: Iterable[FileChange]) -> Effect:
        return self.transactions.restore(name, lambda: Plan(tuple(files)))

    def left_over(self) -> list[str]:
        """Paths that should not exist at the end."""
        stage = self.home / "stage"
        leftovers = [str(path) for path in stage.iterdir()] if stage.exists() else []
        leftovers += [str(path) for path in self.project.iterdir() if path.name.startswith(".treadle-")]
        return leftovers + self.images.list_unfinished_files()


def taken_back(effect: Effect) -> list[FileChange]:
    return [make_file_change(each.path, each.after, each.before, DiffStat()) for each in effect.files]
