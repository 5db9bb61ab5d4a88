"""The layer of a running command, frozen (W-10): its changes at one moment, with copies of the new files. So the effect
that a person approves is the effect that is committed, while the command goes on writing.

A frozen layer is a folder with `frozen` (the effect and the record of the layer) and `content/N`, the bytes of the Nth
change. It gets its name when it is whole."""

import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from treadle.adapters.workspace.history.apply import ContentSource
from treadle.adapters.workspace.history.overlay_upper import LayerRecord, Upper
from treadle.adapters.workspace.paths.entries import closing_fd
from treadle.base.file_system import faultpoint
from treadle.base.types import new_id
from treadle.errors import ToolError
from treadle.ports.snapshots import Effect
from treadle.protocol.files import FileChange, FileState

_NAME = "frozen"
_CONTENT = "content"
_ATTEMPTS = 20
_PAUSE_S = 0.05
_CHUNK = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_BUSY = "The command writes its files at this moment, so its changes cannot be taken. Try again, or stop it first."


class LayerReading(msgspec.Struct, frozen=True):
    """The layer of a view at one moment."""

    effect: Effect
    touched: dict[str, int]
    """Files that stay as they are but for this time, by path."""
    record: LayerRecord


def is_frozen(view: str) -> bool:
    return os.path.exists(f"{view}/{_NAME}")


def read(view: str) -> LayerReading:
    try:
        with open(f"{view}/{_NAME}", "rb") as file:
            return msgspec.json.decode(file.read(), type=LayerReading)
    except (OSError, msgspec.MsgspecError) as error:
        raise ToolError("The changes of the command are lost: its copy is gone.") from error


def freeze(
    upper: Upper,
    read_layer: Callable[[], LayerReading],
    into: str,
    count_lines: Callable[[FileChange, str], FileChange],
) -> None:
    """Take the layer as it is now into the folder `into`; harmless when that exists. ToolError if the command removes
    its files faster than they can be copied."""
    if os.path.exists(into):
        return
    os.makedirs(os.path.dirname(into), mode=0o700, exist_ok=True)
    for attempt in range(_ATTEMPTS):
        staging = f"{os.path.dirname(into)}/.{new_id('f')}"
        try:
            _copy_layer(upper, read_layer(), staging, count_lines)
            faultpoint("view.frozen")
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
        self._layer = read(view)
        self._numbers = {file.path: number for number, file in enumerate(self._layer.effect.files)}

    def open(self, path: str, state: FileState) -> int:
        try:
            return os.open(_content(self._view, self._numbers[path]), os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, KeyError) as error:
            raise ToolError("The changes of the command are lost: its copy is gone.") from error

    def mtime_ns(self, path: str) -> int:
        with suppress(OSError, KeyError):
            return os.stat(_content(self._view, self._numbers[path])).st_mtime_ns
        return 0

    def time_of(self, fd: int) -> int:
        return os.fstat(fd).st_mtime_ns

    def touched(self) -> Iterator[tuple[str, int]]:
        yield from self._layer.touched.items()


def _copy_layer(
    upper: Upper, layer: LayerReading, into: str, count_lines: Callable[[FileChange, str], FileChange]
) -> None:
    """A file that the command has written to since it was read counts as it is copied, with the lines of the copy: the
    policy judges by them whether a file is overwritten."""
    os.makedirs(f"{into}/{_CONTENT}", mode=0o700)
    states, files = dict(layer.record.states), []
    for number, file in enumerate(layer.effect.files):
        if file.after is not None and file.after.kind == "file":
            states[file.path] = copied_state = _copy_file(upper, file.path, file.after, _content(into, number))
            is_changed = copied_state.digest != file.after.digest
            file = replace(file, after=copied_state)
            file = count_lines(file, _content(into, number)) if is_changed else file
        files.append(file)
    effect, record = replace(layer.effect, files=tuple(files)), replace(layer.record, states=states)
    with open(f"{into}/{_NAME}", "wb") as goal:
        goal.write(msgspec.json.encode(LayerReading(effect, layer.touched, record)))


def _copy_file(upper: Upper, path: str, state: FileState, goal: str) -> FileState:
    digest, size = hashlib.sha256(), 0
    with closing_fd(upper.open(path, state)) as source, closing_fd(os.open(goal, _NEW, 0o600)) as copy:
        status = os.fstat(source)
        if not stat.S_ISREG(status.st_mode):
            raise ToolError(_BUSY)
        while size < status.st_size and (block := os.read(source, min(_CHUNK, status.st_size - size))):
            digest.update(block)
            size += len(block)
            view = memoryview(block)
            while view:
                view = view[os.write(copy, view) :]
        os.utime(copy, ns=(status.st_mtime_ns, status.st_mtime_ns))
    return FileState("file", state.mode, digest.hexdigest(), size)


def _content(view: str, number: int) -> str:
    return f"{view}/{_CONTENT}/{number}"
