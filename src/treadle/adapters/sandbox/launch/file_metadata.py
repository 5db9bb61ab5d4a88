"""Modes, owners and times of files, changed on behalf of a confined command. The command's own call never runs: its
arguments are read once, the file is opened here, and what was opened is judged and changed. So nothing that the command
does meanwhile can make another file of it."""

import errno
import os
import stat
from fcntl import ioctl
from time import time_ns

from treadle.base.file_system import is_below

_RECEIVE, _ANSWER, _STILL_ASKED = 0xC0502100, 0xC0182101, 0x40082102
_HERE = -100
_NO_FOLLOW, _EMPTY_PATH = 0x100, 0x1000
_LONGEST_PATH = 4096
_NOW, _OMIT = (1 << 30) - 1, (1 << 30) - 2


class _SystemCall:
    """One call of one thread: its number by name, its arguments, and the memory that they point into."""

    def __init__(self, notice: bytes, names: "dict[int, str]") -> None:
        self.id = notice[:8]
        self.pid = int.from_bytes(notice[8:12], "little")
        self.name = names.get(int.from_bytes(notice[16:20], "little"), "")
        self.arguments = [int.from_bytes(notice[at : at + 8], "little") for at in range(32, 80, 8)]

    def number(self, at: int) -> int:
        """A 32-bit argument with its sign."""
        low = self.arguments[at] & 0xFFFFFFFF
        return low - (1 << 32) if low >> 31 else low

    def memory(self, at: int, size: int) -> bytes:
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as file:
            return os.pread(file.fileno(), size, self.arguments[at])

    def words(self, at: int, count: int) -> list[int]:
        """Numbers of 64 bits in memory; none if nothing is pointed to."""
        raw = self.memory(at, 8 * count) if self.arguments[at] else b""
        return [int.from_bytes(raw[place : place + 8], "little", signed=True) for place in range(0, len(raw), 8)]

    def path(self, at: int) -> bytes:
        """A path in memory. The ways in which a process names itself are those of the caller, not of this one."""
        text = self.memory(at, _LONGEST_PATH).partition(b"\0")[0] if self.arguments[at] else b""
        for itself, place in ((b"/proc/self/", b""), (b"/proc/thread-self/", b""), (b"/dev/fd/", b"fd/")):
            if text.startswith(itself):
                return b"/proc/%d/" % self.pid + place + text[len(itself) :]
        return text


class MetadataServer:
    """Answers the system calls that the filter passes on. A path may be changed if it is beneath one of `allowed` and
    beneath none of `protected_paths`; all others are refused. `names` are the names of those system calls, by number.
    """

    def __init__(self, listener: int, names: "dict[int, str]", allowed: list[str], protected_paths: list[str]) -> None:
        self._listener = listener
        self._names = names
        self._allowed = allowed
        self._kept = protected_paths

    def serve(self) -> None:
        """Answer one call. A failure is an error of that call only."""
        notice = bytearray(80)
        try:
            ioctl(self._listener, _RECEIVE, notice)
        except OSError:  # the caller is gone
            return
        system_call = _SystemCall(bytes(notice), self._names)
        code = 0
        try:
            fd = self._open(system_call)
            try:
                _change(system_call, f"/proc/self/fd/{fd}", self._judged(fd))
            finally:
                os.close(fd)
        except OSError as error:
            code = error.errno or errno.EPERM
        answer = system_call.id + bytes(8) + (-code).to_bytes(4, "little", signed=True) + bytes(4)
        try:
            ioctl(self._listener, _ANSWER, answer)
        except OSError as error:
            if error.errno != errno.ENOENT:  # the caller is gone
                raise

    def _open(self, system_call: _SystemCall) -> int:
        """The file that is meant, opened as the caller would have opened it."""
        name = system_call.name
        if name in ("fchmod", "fchown"):
            return self._open_descriptor(system_call)
        if name in ("chmod", "chown", "lchown", "utime", "utimes"):
            return self._open_path(system_call, _HERE, system_call.path(0), _NO_FOLLOW if name == "lchown" else 0)
        flags = {"fchmodat2": 3, "utimensat": 3, "fchownat": 4}.get(name)
        path = system_call.path(1)
        bits = system_call.number(flags) if flags else 0
        if not path:
            if not bits & _EMPTY_PATH and (system_call.arguments[1] or name not in ("utimensat", "futimesat")):
                raise OSError(errno.ENOENT, "")
            return self._open_descriptor(system_call)
        return self._open_path(system_call, system_call.number(0), path, bits)

    def _open_path(self, system_call: _SystemCall, folder: int, path: bytes, flags: int) -> int:
        start = "cwd" if folder == _HERE else f"fd/{folder}"
        base = os.open(f"/proc/{system_call.pid}/{start}", os.O_PATH | os.O_CLOEXEC)
        try:
            self._still(system_call)
            follow = os.O_NOFOLLOW if flags & _NO_FOLLOW else 0
            return os.open(path, os.O_PATH | os.O_CLOEXEC | follow, dir_fd=base)
        finally:
            os.close(base)

    def _open_descriptor(self, system_call: _SystemCall) -> int:
        fd = os.open(f"/proc/{system_call.pid}/fd/{system_call.number(0)}", os.O_PATH | os.O_CLOEXEC)
        self._still(system_call)
        return fd

    def _still(self, system_call: _SystemCall) -> None:
        """The caller is still the one that asked, so what was read under its number was its own."""
        ioctl(self._listener, _STILL_ASKED, system_call.id)

    def _judged(self, fd: int) -> os.stat_result:
        """By the kernel's path of the opened file, and only for the user's own: this process may have more rights."""
        place = os.readlink(f"/proc/self/fd/{fd}")
        allowed = any(is_below(place, each) for each in self._allowed)
        status = os.fstat(fd)
        if not allowed or any(is_below(place, each) for each in self._kept) or status.st_uid != os.geteuid():
            raise OSError(errno.EPERM, "")
        return status


def _change(system_call: _SystemCall, path: str, status: os.stat_result) -> None:
    """Do what is asked to the file at `path`, which leads to the opened file itself."""
    match system_call.name:
        case "chmod" | "fchmod":
            _set_mode(path, status, system_call.number(1))
        case "fchmodat" | "fchmodat2":
            _set_mode(path, status, system_call.number(2))
        case "chown" | "lchown" | "fchown":
            _set_owner(path, status, system_call.number(1), system_call.number(2))
        case "fchownat":
            _set_owner(path, status, system_call.number(2), system_call.number(3))
        case "utimensat":
            _set_times(path, status, system_call.words(2, 4), 1)
        case "futimesat":
            _set_times(path, status, system_call.words(2, 4), 1000)
        case "utimes":
            _set_times(path, status, system_call.words(1, 4), 1000)
        case "utime":
            seconds = system_call.words(1, 2)
            _set_times(path, status, [seconds[0], 0, seconds[1], 0] if seconds else [], 1000)
        case _:
            raise OSError(errno.ENOSYS, "")


def _set_mode(path: str, status: os.stat_result, mode: int) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.EOPNOTSUPP, "")
    if mode & (stat.S_ISUID | stat.S_ISGID) and not stat.S_ISDIR(status.st_mode):
        raise OSError(errno.EPERM, "")  # a program that would run with this user's rights, for everyone
    os.chmod(path, mode & 0o7777)


def _set_owner(path: str, status: os.stat_result, user: int, group: int) -> None:
    if user not in (-1, status.st_uid) or group not in (-1, status.st_gid, os.getegid(), *os.getgroups()):
        raise OSError(errno.EPERM, "")
    os.chown(path, user, group)


def _set_times(path: str, status: os.stat_result, words: list[int], unit: int) -> None:
    """Two pairs of seconds and parts of a second, each of so many nanoseconds; none: now."""
    if not words:
        os.utime(path)
        return
    moments = []
    for second, part, old_time in ((*words[:2], status.st_atime_ns), (*words[2:4], status.st_mtime_ns)):
        if unit == 1 and part in (_OMIT, _NOW):
            moments.append(old_time if part == _OMIT else time_ns())
        else:
            moments.append(second * 1_000_000_000 + part * unit)
    os.utime(path, ns=(moments[0], moments[1]))
