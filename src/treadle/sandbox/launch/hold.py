"""Places on which a sandbox mounts something so that nobody can make it: empty folders and files, there while commands
run and gone afterwards. Several commands may hold the same place; the last one removes it. What a killed holder left is
removed by the next one."""

import fcntl
import marshal
import os
import sys

from treadle.sandbox.launch.ending import BROKEN_PIPE, end_as, end_descendants, pass_signals_to
from treadle.sandbox.launch.system import adopt_orphans

CANNOT = 125
SMALL = 2
"""Bytes of the largest file that is ever made here; who finds more has somebody else's file."""


class Holder:
    """`notes` is a folder with one small file for each held place: its path and the number of what was made there.
    Whoever holds the place has the file locked."""

    def __init__(self, notes: str) -> None:
        self._notes = notes
        self._held: list[tuple[int, str]] = []

    def hold(self, name: str, place: str, content: bytes | None) -> None:
        while True:
            note = os.open(f"{self._notes}/{name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(note, fcntl.LOCK_EX)
            if self._is_current(note, name):
                _make(note, place, content)
            fcntl.flock(note, fcntl.LOCK_SH)  # between the two somebody may have removed it
            if self._is_current(note, name) and _number(place):
                self._held.append((note, name))
                return
            os.close(note)

    def release(self) -> None:
        for note, name in self._held:
            self._forget(note, name)
            os.close(note)
        self._held = []

    def sweep(self) -> None:
        """Remove what nobody holds any more."""
        for name in os.listdir(self._notes):
            try:
                note = os.open(f"{self._notes}/{name}", os.O_RDWR | os.O_CLOEXEC)
            except OSError:
                continue
            self._forget(note, name)
            os.close(note)

    def _forget(self, note: int, name: str) -> None:
        try:
            fcntl.flock(note, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # somebody else holds it
            return
        if self._is_current(note, name):
            number, place = _read(note)
            if number and _number(place) == number:
                _remove(place)
            os.unlink(f"{self._notes}/{name}")

    def _is_current(self, note: int, name: str) -> bool:
        """Whether the open note is the one that lies there, and not one that was removed meanwhile."""
        return _number(f"{self._notes}/{name}") == os.fstat(note).st_ino


def _number(path: str) -> int:
    try:
        return os.lstat(path).st_ino
    except OSError:
        return 0


def _make(note: int, place: str, content: bytes | None) -> None:
    try:
        if content is None:
            os.mkdir(place, 0o755)
        else:
            with open(place, "xb") as file:
                file.write(content)
    except FileExistsError:
        if os.fstat(note).st_size:
            return
        number = 0  # somebody else's: held as it is, and never removed
    else:
        number = _number(place)
    os.ftruncate(note, 0)
    os.pwrite(note, f"{number}\n{place}".encode(errors="surrogateescape"), 0)


def _remove(place: str) -> None:
    try:
        if os.path.isdir(place):
            os.rmdir(place)
        elif os.path.getsize(place) <= SMALL:
            os.unlink(place)
    except OSError:  # no longer empty: not ours any more
        return


def _read(note: int) -> tuple[int, str]:
    number, _, place = os.pread(note, 1 << 16, 0).decode(errors="surrogateescape").partition("\n")
    return int(number or 0), place


def main(words: list[str]) -> None:
    told = marshal.loads(bytes.fromhex(words[0]))
    holder = Holder(told["notes"])
    try:
        holder.sweep()
        for name, place, content in told["places"]:
            holder.hold(name, place, content)
        adopt_orphans()
        pid = os.posix_spawnp(words[1], words[1:], os.environ, setsigdef=[BROKEN_PIPE])
    except OSError as error:
        print(f"treadle: the command could not be confined and did not run: {error}", file=sys.stderr, flush=True)
        holder.release()
        os._exit(CANNOT)
    pass_signals_to(pid)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    end_descendants()  # nothing of the command may live when its places become free
    holder.release()
    end_as(code)
