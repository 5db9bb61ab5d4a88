"""The folder of a copy-on-write view, seen from outside: `upper` holds the entries that a command wrote, in the format
of overlayfs. Owns that format; knows nothing of the project beneath. Links are never followed. If the command removed
the permissions of an entry, Treadle, which owns it, opens it. The mode that the command set is noted beside `upper`
first, so that a process after a crash still reads that mode.

The layer of a running command can be frozen (W-10): its changes at one moment, with copies of the new files. So the
effect that a person approves is the effect that is committed, while the command goes on writing. A frozen layer is a
folder with `frozen` (the effect and the record of the layer) and `content/N`, the bytes of the Nth change. It gets its
name when it is whole."""

import hashlib
import os
import shutil
import stat as st
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import IO

import msgspec
from msgspec.structs import replace

from treadle.adapters.workspace.history.apply import ContentSource
from treadle.adapters.workspace.history.states import Folders
from treadle.adapters.workspace.paths import entries
from treadle.adapters.workspace.paths.durable import write_at
from treadle.adapters.workspace.paths.entries import LIST, READ, explain, hold_fd
from treadle.base.file_locks import lock_file
from treadle.base.file_system import reach_faultpoint, replace_file
from treadle.base.types import make_id
from treadle.errors import ToolError
from treadle.ports.snapshots import Effect
from treadle.protocol.content import Value
from treadle.protocol.files import FileChange, FileState, decode_path

BEGAN = "began"
UPPER = "upper"
LASTING = "lasting"  # Marks a view that outlives its commit: that of a world (W-11)
COMMITTED = "committed"  # The record of the commits of the layer of a command that goes on (W-10)
_SKELETON = "skeleton"  # The folders that were made in the layer before the command began, with their permissions
_MODES = "modes"
_TOUCHED = "touched"
_ORIGIN = "user.overlay.origin"
_OPAQUE = "user.overlay.opaque"
_TRIES = 3
_FILE_OPENED, _FOLDER_OPENED = 0o600, 0o700  # The bits that are added to the mode of an entry that is closed to us
_LEAP_NS = 500_000_000  # The least step by which a clock is set back; less is a clock that is slowed down

_numbers = msgspec.json.Decoder(dict[str, int])


class LayerRecord(msgspec.Struct, frozen=True):
    """The entries of a layer when it was last committed, by path in the form of `encode_path`."""

    states: dict[str, FileState | None] = {}  # None: the layer says that nothing is there
    opaque: tuple[str, ...] = ()  # Folders through which nothing beneath shows, with a slash behind each


_record = msgspec.json.Decoder(LayerRecord)


class Upper(ContentSource):
    """`view` is the folder with `upper` and `began` in it. Paths are relative to the root, as the system gives them."""

    def __init__(self, view: str) -> None:
        self.view = view
        self._modes: dict[str, int] = {}
        with suppress(OSError), open(f"{view}/{_MODES}", "rb") as file:
            for note in file.read().split(b"\0")[:-1]:
                mode, _, path = note.partition(b" ")
                self._modes[os.fsdecode(path)] = int(mode, 8)

    @property
    def began_ns(self) -> int:
        """When the command began, by the clock that stamps files. A clock that was set back meanwhile has stamped what
        came later with earlier times: by so much the beginning is moved back. A third number in the stamp is an earlier
        beginning (see `WorldFolders.mend`)."""
        try:
            with _open_stamp(f"{self.view}/{BEGAN}") as file:
                stamp = os.fstat(file.fileno()).st_ctime_ns
                wall, steady, *since = (int(number) for number in file.read().split())
        except (OSError, ValueError) as error:
            raise ToolError("The changes of the command are lost: its copy of the project is gone.") from error
        stamp = min(stamp, *since) if since else stamp
        leap = (time.time_ns() - wall) - (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - steady)
        return stamp + leap if leap < -_LEAP_NS else stamp

    @property
    def committed(self) -> LayerRecord:
        """Before the first commit: the folders that the command did not make itself."""
        try:
            with open(f"{self.view}/{COMMITTED}", "rb") as file:
                return _record.decode(file.read())
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError) as error:
            raise ToolError("The changes of this command that were committed before are no longer known.") from error
        try:
            with open(f"{self.view}/{_SKELETON}", "rb") as file:
                modes = _numbers.decode(file.read())
        except FileNotFoundError:
            return LayerRecord()
        except (OSError, msgspec.MsgspecError) as error:
            raise ToolError("The folders of this command's layer are not known any more.") from error
        return LayerRecord({path: FileState("directory", mode) for path, mode in modes.items()})

    def note_committed(self, record: LayerRecord) -> None:
        replace_file(f"{self.view}/{COMMITTED}", msgspec.json.encode(record), sync=True)

    @property
    def lasting(self) -> bool:
        """True for the view of a world, False for that of a command."""
        return os.path.exists(f"{self.view}/{LASTING}")

    @contextmanager
    def open_top(self) -> Iterator[int]:
        try:
            fd = os.open(f"{self.view}/{UPPER}", LIST)
        except OSError as error:
            raise ToolError("The changes of the command are lost: its copy of the project is gone.") from error
        with hold_fd(fd):
            yield fd

    def get_mode(self, path: str, status: os.stat_result) -> int:
        """The permissions that the command left. A noted mode counts as long as the entry has the mode that we gave it:
        a command that goes on may have changed it since."""
        mode = st.S_IMODE(status.st_mode)
        noted = self._modes.get(path)
        return noted if noted is not None and mode in (noted | _FILE_OPENED, noted | _FOLDER_OPENED) else mode

    @contextmanager
    def open_folder(self, parent: int, name: str, path: str) -> Iterator[int]:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if not status.st_mode & st.S_IRUSR or not status.st_mode & st.S_IXUSR:
            self._open_up(parent, name, path, status, _FOLDER_OPENED)
        with hold_fd(os.open(name, LIST, dir_fd=parent)) as fd:
            yield fd

    def open_file(self, parent: int, name: str, path: str, status: os.stat_result) -> int:
        if not status.st_mode & st.S_IRUSR:
            self._open_up(parent, name, path, status, _FILE_OPENED)
        return os.open(name, READ, dir_fd=parent)

    def open(self, path: str, state: FileState) -> int:
        try:
            with Folders(f"{self.view}/{UPPER}") as folders:
                folder, name = folders.locate(path)
                return os.open(name, READ, dir_fd=folder)
        except OSError as error:
            raise explain(error, decode_path(path)) from error

    def lend(self) -> AbstractContextManager[Folders | None]:
        return nullcontext() if self.lasting else Folders(f"{self.view}/{UPPER}")

    def let_go(self, paths: Iterable[str]) -> None:
        with suppress(OSError), Folders(f"{self.view}/{UPPER}") as folders:
            for path in paths:
                folder, name = folders.locate(path)
                os.unlink(name, dir_fd=folder)

    def read_mtime_ns(self, path: str) -> int:
        with suppress(OSError), Folders(f"{self.view}/{UPPER}") as folders:
            status = folders.lstat(path)
            return 0 if status is None else status.st_mtime_ns
        return 0

    def list_touched_files(self) -> Iterator[tuple[str, int]]:
        with suppress(OSError, msgspec.MsgspecError), open(f"{self.view}/{_TOUCHED}", "rb") as file:
            yield from _numbers.decode(file.read()).items()

    def note_touched(self, touched: dict[str, int]) -> None:
        """Remember, for the commit, which files stay as they are but for their time."""
        if touched or os.path.exists(f"{self.view}/{_TOUCHED}"):
            replace_file(f"{self.view}/{_TOUCHED}", msgspec.json.encode(touched))

    def _open_up(self, parent: int, name: str, path: str, status: os.stat_result, more: int) -> None:
        mode = st.S_IMODE(status.st_mode)
        if self._modes.get(path) != mode:
            self._modes[path] = mode
            append = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            with hold_fd(os.open(f"{self.view}/{_MODES}", append, 0o600)) as fd:
                os.write(fd, b"%o %s\0" % (mode, os.fsencode(path)))
            reach_faultpoint("view.mode_noted")
        entries.chmod(parent, name, mode | more)


def _open_stamp(path: str) -> IO[str]:
    """A rebase may replace the link and remove the file to which it led while the link is followed: then once more."""
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            return open(path, encoding="ascii")
    return open(path, encoding="ascii")


def is_deleted(status: os.stat_result) -> bool:
    """True if an entry marks the removal of the lower one."""
    return st.S_ISCHR(status.st_mode) and status.st_rdev == 0


def is_opaque(fd: int) -> bool:
    """True if a folder hides the entries of the lower one."""
    return _read_attribute(fd, _OPAQUE) == b"y"


def is_copy(fd: int) -> bool:
    """True if a file was copied up from the lower folder to be written to. One with several hard links is unmarked."""
    return _read_attribute(fd, _ORIGIN) is not None


def _read_attribute(fd: int, name: str) -> bytes | None:
    with suppress(OSError):
        return os.getxattr(fd, name)
    return None


_BEGINNINGS = "beginnings"
_PATIENCE_S = 30.0
States = Mapping[str, FileState | None]


class _Beginning(Value, frozen=True):
    path: str
    state: FileState | None = None


_beginning_decoder = msgspec.json.Decoder(_Beginning)


class Beginnings:
    """The states of files before a world first changed them: a line of JSON each, the first of a path counts."""

    def __init__(self, view: str) -> None:
        self._file = f"{view}/{_BEGINNINGS}"

    def read_all(self) -> dict[str, FileState | None]:
        states: dict[str, FileState | None] = {}
        with suppress(FileNotFoundError), open(self._file, "rb") as file:
            for line in file:
                with suppress(msgspec.MsgspecError):  # cut off by a power cut: then it is not known
                    read = _beginning_decoder.decode(line)
                    states.setdefault(read.path, read.state)
        return states

    def add(self, states: States) -> None:
        """Paths that are known stay as they are."""
        with self._lock():
            known_states = self.read_all()
            if lines := _encode_lines({path: state for path, state in states.items() if path not in known_states}):
                fd = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
                with open(fd, "ab", buffering=0) as file:
                    file.write(lines)

    def update(self, states: States) -> None:
        with self._lock():
            replace_file(self._file, _encode_lines({**self.read_all(), **states}))

    def forget(self, paths: Collection[str]) -> None:
        with self._lock():
            replace_file(
                self._file, _encode_lines({path: state for path, state in self.read_all().items() if path not in paths})
            )

    def _lock(self) -> AbstractContextManager[None]:
        """Chats add lines while others rebase or commit."""
        return lock_file(f"{self._file}.lock", _PATIENCE_S)


def _encode_lines(states: States) -> bytes:
    return b"".join(msgspec.json.encode(_Beginning(path, state)) + b"\n" for path, state in states.items())


_FROZEN = "frozen"
_CONTENT = "content"
_ATTEMPTS = 20
_PAUSE_S = 0.05
_CHUNK = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_BUSY = "The command writes its files at this moment, so its changes cannot be taken. Try again, or stop it first."


class LayerReading(msgspec.Struct, frozen=True):
    """The layer of a view at one moment. `touched`: files that stay as they are but for this time, by path."""

    effect: Effect
    touched: dict[str, int]
    record: LayerRecord


LineCounter = Callable[[FileChange, str], FileChange]  # the change with the lines of a copy of its file


def is_frozen(view: str) -> bool:
    return os.path.exists(f"{view}/{_FROZEN}")


_reading_decoder = msgspec.json.Decoder(LayerReading)


def read_frozen(view: str) -> LayerReading:
    try:
        with open(f"{view}/{_FROZEN}", "rb") as file:
            return _reading_decoder.decode(file.read())
    except (OSError, msgspec.MsgspecError) as error:
        raise ToolError("The changes of the command are lost: its copy is gone.") from error


def freeze_layer(upper: Upper, read_layer: Callable[[], LayerReading], into: str, count_lines: LineCounter) -> None:
    """Take the layer as it is now into the folder `into`; harmless when that exists. ToolError if the command removes
    its files faster than they can be copied."""
    if os.path.exists(into):
        return
    os.makedirs(os.path.dirname(into), mode=0o700, exist_ok=True)
    for attempt in range(_ATTEMPTS):
        staging = f"{os.path.dirname(into)}/.{make_id('f')}"
        try:
            _copy_layer(upper, read_layer(), staging, count_lines)
            reach_faultpoint("view.frozen")
            with suppress(FileExistsError, OSError):  # another worker did the same
                os.rename(staging, into)
            return
        except ToolError:  # the command removed or replaced a file at this moment
            if attempt == _ATTEMPTS - 1:
                raise
            time.sleep(_PAUSE_S)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


class FrozenLayer(ContentSource):
    def __init__(self, view: str) -> None:
        self._view = view
        self._layer = read_frozen(view)
        self._numbers = {file.path: number for number, file in enumerate(self._layer.effect.files)}

    def open(self, path: str, state: FileState) -> int:
        try:
            return os.open(_make_content_path(self._view, self._numbers[path]), os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, KeyError) as error:
            raise ToolError("The changes of the command are lost: its copy is gone.") from error

    def read_mtime_ns(self, path: str) -> int:
        with suppress(OSError, KeyError):
            return os.stat(_make_content_path(self._view, self._numbers[path])).st_mtime_ns
        return 0

    def list_touched_files(self) -> Iterator[tuple[str, int]]:
        yield from self._layer.touched.items()


def _copy_layer(upper: Upper, layer: LayerReading, into: str, count_lines: LineCounter) -> None:
    """A file that the command has written to since it was read counts as it is copied, with the lines of the copy: the
    policy judges by them whether a file is overwritten."""
    os.makedirs(f"{into}/{_CONTENT}", mode=0o700)
    states, files = dict(layer.record.states), []
    for number, file in enumerate(layer.effect.files):
        if file.after is not None and file.after.kind == "file":
            states[file.path] = copied_state = _copy_file(
                upper, file.path, file.after, _make_content_path(into, number)
            )
            is_changed = copied_state.digest != file.after.digest
            file = replace(file, after=copied_state)
            file = count_lines(file, _make_content_path(into, number)) if is_changed else file
        files.append(file)
    effect, record = replace(layer.effect, files=tuple(files)), replace(layer.record, states=states)
    with open(f"{into}/{_FROZEN}", "wb") as goal:
        goal.write(msgspec.json.encode(LayerReading(effect, layer.touched, record)))


def _copy_file(upper: Upper, path: str, state: FileState, goal: str) -> FileState:
    digest, size = hashlib.sha256(), 0
    with hold_fd(upper.open(path, state)) as source, hold_fd(os.open(goal, _NEW, 0o600)) as copy:
        status = os.fstat(source)
        if not st.S_ISREG(status.st_mode):
            raise ToolError(_BUSY)
        while size < status.st_size and (block := os.read(source, min(_CHUNK, status.st_size - size))):
            digest.update(block)
            write_at(copy, block, size)
            size += len(block)
        os.utime(copy, ns=(status.st_mtime_ns, status.st_mtime_ns))
    return FileState("file", state.mode, digest.hexdigest(), size)


def _make_content_path(view: str, number: int) -> str:
    return f"{view}/{_CONTENT}/{number}"
