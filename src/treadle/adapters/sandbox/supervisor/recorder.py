"""The output of a command on disk, exact up to a cap; of more, the beginning and the end. A piece is a file that is
named by where it begins, so that a reader needs no index and a killed writer leaves nothing wrong. And how the command
ended, written so that a full disk cannot prevent it and, at last, a power cut cannot take it."""

import os

from treadle.adapters.sandbox.supervisor.folder import EXIT, OUTPUT, SYNCED

_LEAST = 1 << 12
_EXIT_SIZE = 1024


class Recorder:
    """Half of the cap is for the beginning; the rest for the two newest of the pieces that follow it. A piece of
    output that cannot be written (no space) is dropped, and writing is tried again with the next."""

    def __init__(self, cap: int) -> None:
        self.size = 0
        self.trouble = ""
        self._newlines = 0
        self._open_line = False
        self._first = max(cap // 2, _LEAST)
        self._next = max(cap // 4, _LEAST)
        self._tail: list[int] = []
        self._file = -1
        self._room = 0

    @property
    def lines(self) -> int:
        return self._newlines + self._open_line

    def feed(self, data: bytes) -> None:
        self._newlines += data.count(b"\n")
        self._open_line = data[-1:] != b"\n"
        remaining = memoryview(data)
        while remaining:
            if not self._room:
                self._turn()
            now = remaining[: self._room]
            remaining = remaining[len(now) :]
            self._room -= len(now)
            self._write(now)
            self.size += len(now)

    def _turn(self) -> None:
        """Begin a new piece; the oldest of the tail goes."""
        self.close()
        self._room = self._next if self.size else self._first
        try:
            self._file = os.open(f"{OUTPUT}{self.size}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self.trouble = error.strerror or str(error)
            self._room = _LEAST
            return
        if self.size:
            self._tail.append(self.size)
        if len(self._tail) > 2:
            os.unlink(f"{OUTPUT}{self._tail.pop(0)}")

    def _write(self, data: memoryview) -> None:
        try:
            while data and self._file >= 0:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self.trouble = error.strerror or str(error)
            self._room = 0

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def reserve_exit() -> None:
    """Take the space for the end now: when the disk is full, it can still be written."""
    with open(f"{EXIT}.new", "wb") as file:
        file.write(b" " * _EXIT_SIZE)


def write_exit(ending: str, code: int, left_behind: bool, recorder: Recorder, error: str) -> None:
    recorder.close()
    error_text = (error or recorder.trouble).replace("\\", "/").replace('"', "'")
    text = (
        f'{{"ending": "{ending}", "code": {code}, "left_behind": {"true" if left_behind else "false"}, '
        f'"size": {recorder.size}, "lines": {recorder.lines}, "error": "{error_text}"}}'
    )
    with open(f"{EXIT}.new", "r+b") as file:
        file.write(text.encode().ljust(_EXIT_SIZE))
    os.replace(f"{EXIT}.new", EXIT)


def sync_exit(*, layer: bool = False) -> None:
    """Make the output and the end survive a power cut. `layer`: the files that the command wrote on its view must
    survive, too: they may be committed much later."""
    try:
        _sync(*(name for name in os.listdir(".") if name.startswith(OUTPUT)))
        if layer:
            os.sync()
        _sync(EXIT, ".")
        with open(SYNCED, "wb"):
            pass
    except OSError:
        pass  # a worker that finds no such mark after a power cut takes the command for lost


def _sync(*names: str) -> None:
    for name in names:
        file = os.open(name, os.O_RDONLY)
        os.fsync(file)
        os.close(file)
