"""Mount points for paths that do not exist and must not be created: empty folders and files, present while commands run
and removed afterwards. Several commands may hold the same place; the last one removes it. Remains of a killed holder
are removed by the next one."""

import fcntl
import marshal
import os
import sys

from treadle.adapters.sandbox.launch import processes

CANNOT = 125
ALIVE_FD = 8  # Kept open by the sandbox's first process, which is the last to die
PENDING = -1  # Instead of an inode number: the writer was killed before it could record what it made, if anything
SMALL = 2  # Bytes of the largest file that is ever made here; a larger file was not made here


class Holder:
    """`notes` is a folder with one small file for each held place: its path and the inode number of the file or folder
    made there. A process that holds the place has a shared lock on that small file; a process that makes or removes a
    place has an exclusive lock on the folder, for a moment."""

    def __init__(self, notes: str) -> None:
        self._notes = notes
        self._held: list[tuple[str, int]] = []

    def hold(self, name: str, place: str, content: bytes | None) -> None:
        folder = self._lock()
        try:
            note = os.open(f"{self._notes}/{name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(note, fcntl.LOCK_SH)
            self._held.append((name, note))
            number, _ = _read(note)
            if number <= 0 or _read_inode(place) != number:
                _make(note, place, content)
        finally:
            os.close(folder)

    def release(self) -> None:
        folder = self._lock()
        for name, note in self._held:
            self._forget(name, note)
        self._held = []
        os.close(folder)

    def sweep(self) -> None:
        folder = self._lock()
        for name in os.listdir(self._notes):
            self._forget(name, os.open(f"{self._notes}/{name}", os.O_RDWR | os.O_CLOEXEC))
        os.close(folder)

    def _lock(self) -> int:
        folder = os.open(self._notes, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(folder, fcntl.LOCK_EX)
        return folder

    def _forget(self, name: str, note: int) -> None:
        try:
            fcntl.flock(note, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another process holds it
            os.close(note)
            return
        number, place = _read(note)
        if number == PENDING or (number and _read_inode(place) == number):
            try:
                if os.path.isdir(place):
                    os.rmdir(place)
                elif os.path.getsize(place) <= SMALL:
                    os.unlink(place)
            except OSError:  # no longer empty: not ours any more
                pass
        os.unlink(f"{self._notes}/{name}")
        os.close(note)


def _read_inode(path: str) -> int:
    try:
        return os.lstat(path).st_ino
    except OSError:
        return 0


def _make(note: int, place: str, content: bytes | None) -> None:
    """Note that it will be made, make it, note its inode number: 0 for what existed already, which is never removed."""
    if os.path.lexists(place):
        _write(note, 0, place)
        return
    _write(note, PENDING, place)
    if content is None:
        os.mkdir(place, 0o755)
    else:
        with open(place, "xb") as file:
            file.write(content)
    _write(note, _read_inode(place), place)


def _write(note: int, number: int, place: str) -> None:
    os.ftruncate(note, 0)
    os.pwrite(note, f"{number}\n{place}".encode(errors="surrogateescape"), 0)


def _read(note: int) -> tuple[int, str]:
    number, _, place = os.pread(note, 1 << 16, 0).decode(errors="surrogateescape").partition("\n")
    return int(number or 0), place


def _open_life_pipe() -> int:
    """The reading end of a pipe that ends when the sandbox's first process has closed the other end."""
    alive, kept_open = os.pipe()
    if alive == ALIVE_FD:
        alive = os.dup(alive)
    if kept_open != ALIVE_FD:
        os.dup2(kept_open, ALIVE_FD)
        os.close(kept_open)
    os.set_inheritable(ALIVE_FD, True)
    return alive


def main(words: list[str]) -> None:
    spec = marshal.loads(bytes.fromhex(words[0]))
    holder = Holder(spec["notes"])
    alive, mask = _open_life_pipe(), processes.block_signals()
    try:
        holder.sweep()
        for name, place, content in spec["places"]:
            holder.hold(name, place, content)
        pid = os.posix_spawnp(words[1], words[1:], os.environ, setsigmask=mask, setsigdef=[processes.BROKEN_PIPE])
    except OSError as error:
        print(f"treadle: the command could not be confined and did not run: {error}", file=sys.stderr, flush=True)
        holder.release()
        os._exit(CANNOT)
    os.close(ALIVE_FD)
    processes.pass_signals_to(pid)
    code = processes.wait_for_command(pid)
    os.read(alive, 1)  # nothing of the command may live when its places become free
    holder.release()
    processes.end_as(code)
