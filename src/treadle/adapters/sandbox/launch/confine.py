"""Runs one command under Landlock and a filter of system calls, and stays beside it: answers the filter's requests,
ends all processes that the command leaves behind, and restores protected paths.

Landlock can only allow access to a folder and not withdraw it for a path below, so protected paths are put back as they
were when the command has ended. That is reported, and what the command had put there is set aside, not lost.

Modes, owners and times of files are changed on behalf of the command. Its own call never runs: its arguments are read
once, the file is opened here, and what was opened is judged and changed. So nothing that the command does meanwhile can
make another file of it."""

import _socket  # the C module that `socket` wraps, without the imports of `socket`
import errno
import marshal
import os
import select
import stat
import sys
import time
from fcntl import ioctl
from time import time_ns

from treadle.adapters.sandbox.launch import processes, system
from treadle.adapters.sandbox.launch.libc import adopt_orphans
from treadle.adapters.sandbox.launch.processes import end_as, end_descendants, list_descendants
from treadle.adapters.sandbox.launch.protected_paths import ProtectedPaths
from treadle.adapters.sandbox.launch.system import CANNOT, Ruleset
from treadle.base.file_system import is_below
from treadle.base.process_folders import make_folder_prefix

_RECEIVE, _ANSWER, _STILL_ASKED = 0xC0502100, 0xC0182101, 0x40082102
_HERE = -100
_NO_FOLLOW, _EMPTY_PATH = 0x100, 0x1000
_LONGEST_PATH = 4096
_NOW, _OMIT = (1 << 30) - 1, (1 << 30) - 2


class _SystemCall:
    """One call of one thread: its number by name, its arguments, and the memory that they point into."""

    def __init__(self, notice: bytes, names: "dict[int, str]") -> None:
        self.id, self.pid = notice[:8], int.from_bytes(notice[8:12], "little")
        self.name = names.get(int.from_bytes(notice[16:20], "little"), "")
        self.arguments = [int.from_bytes(notice[at : at + 8], "little") for at in range(32, 80, 8)]

    def get_number(self, at: int) -> int:
        """A 32-bit argument with its sign."""
        low = self.arguments[at] & 0xFFFFFFFF
        return low - (1 << 32) if low >> 31 else low

    def read_memory(self, at: int, size: int) -> bytes:
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as file:
            return os.pread(file.fileno(), size, self.arguments[at])

    def read_words(self, at: int, count: int) -> list[int]:
        """Numbers of 64 bits in memory; none if nothing is pointed to."""
        raw = self.read_memory(at, 8 * count) if self.arguments[at] else b""
        if len(raw) not in (0, 8 * count):
            raise OSError(errno.EFAULT, "")
        return [int.from_bytes(raw[place : place + 8], "little", signed=True) for place in range(0, len(raw), 8)]

    def read_path(self, at: int) -> bytes:
        """A path in memory. The ways in which a process names itself are those of the caller, not of this one."""
        text = self.read_memory(at, _LONGEST_PATH).partition(b"\0")[0] if self.arguments[at] else b""
        for itself, place in ((b"/proc/self/", b""), (b"/proc/thread-self/", b""), (b"/dev/fd/", b"fd/")):
            if text.startswith(itself):
                return b"/proc/%d/" % self.pid + place + text[len(itself) :]
        return text


class MetadataServer:
    """Answers the system calls that the filter passes on. A path may be changed if it is beneath one of `allowed` and
    beneath none of `protected_paths`; all others are refused. `names` are the names of those system calls, by number.
    """

    def __init__(self, listener: int, names: "dict[int, str]", allowed: list[str], protected_paths: list[str]) -> None:
        self._listener, self._names, self._allowed, self._kept = listener, names, allowed, protected_paths

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
                _change_file(system_call, f"/proc/self/fd/{fd}", self._check_file(fd))
            finally:
                os.close(fd)
        except OSError as error:
            code = error.errno or errno.EPERM
        except Exception:  # from numbers and addresses that the command chose
            code = errno.EFAULT
        answer = system_call.id + bytes(8) + (-code).to_bytes(4, "little", signed=True) + bytes(4)
        while True:
            try:
                ioctl(self._listener, _ANSWER, answer)
            except InterruptedError:
                continue
            except FileNotFoundError:  # the caller is gone
                pass
            return

    def _open(self, system_call: _SystemCall) -> int:
        """The file that is meant, opened as the caller would have opened it."""
        name = system_call.name
        if name in ("fchmod", "fchown"):
            return self._open_descriptor(system_call)
        if name in ("chmod", "chown", "lchown", "utime", "utimes"):
            return self._open_path(system_call, _HERE, system_call.read_path(0), _NO_FOLLOW if name == "lchown" else 0)
        flags = {"fchmodat2": 3, "utimensat": 3, "fchownat": 4}.get(name)
        path = system_call.read_path(1)
        bits = system_call.get_number(flags) if flags else 0
        if not path:
            if not bits & _EMPTY_PATH and (system_call.arguments[1] or name not in ("utimensat", "futimesat")):
                raise OSError(errno.ENOENT, "")
            return self._open_descriptor(system_call)
        return self._open_path(system_call, system_call.get_number(0), path, bits)

    def _open_path(self, system_call: _SystemCall, folder: int, path: bytes, flags: int) -> int:
        start = "cwd" if folder == _HERE else f"fd/{folder}"
        base = os.open(f"/proc/{system_call.pid}/{start}", os.O_PATH | os.O_CLOEXEC)
        try:
            self._check_caller(system_call)
            follow = os.O_NOFOLLOW if flags & _NO_FOLLOW else 0
            return os.open(path, os.O_PATH | os.O_CLOEXEC | follow, dir_fd=base)
        finally:
            os.close(base)

    def _open_descriptor(self, system_call: _SystemCall) -> int:
        fd = os.open(f"/proc/{system_call.pid}/fd/{system_call.get_number(0)}", os.O_PATH | os.O_CLOEXEC)
        self._check_caller(system_call)
        return fd

    def _check_caller(self, system_call: _SystemCall) -> None:
        """The caller is still the one that asked, so what was read under its number was its own."""
        ioctl(self._listener, _STILL_ASKED, system_call.id)

    def _check_file(self, fd: int) -> os.stat_result:
        """By the kernel's path of the opened file, and only for the user's own: this process may have more rights."""
        place = os.readlink(f"/proc/self/fd/{fd}")
        allowed = any(is_below(place, each) for each in self._allowed)
        status = os.fstat(fd)
        if not allowed or any(is_below(place, each) for each in self._kept) or status.st_uid != os.geteuid():
            raise OSError(errno.EPERM, "")
        return status


def _change_file(system_call: _SystemCall, path: str, status: os.stat_result) -> None:
    """Do what is asked to the file at `path`, which leads to the opened file itself."""
    number, words = system_call.get_number, system_call.read_words
    match system_call.name:
        case "chmod" | "fchmod":
            _set_mode(path, status, number(1))
        case "fchmodat" | "fchmodat2":
            _set_mode(path, status, number(2))
        case "chown" | "lchown" | "fchown":
            _set_owner(path, status, number(1), number(2))
        case "fchownat":
            _set_owner(path, status, number(2), number(3))
        case "utimensat" | "futimesat" as name:
            _set_times(path, status, words(2, 4), 1 if name == "utimensat" else 1000)
        case "utimes":
            _set_times(path, status, words(1, 4), 1000)
        case "utime":
            seconds = words(1, 2)
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
        return os.utime(path)
    moments = []
    for second, part, old_time in ((*words[:2], status.st_atime_ns), (*words[2:4], status.st_mtime_ns)):
        if unit == 1 and part in (_OMIT, _NOW):
            moments.append(old_time if part == _OMIT else time_ns())
        else:
            moments.append(second * 1_000_000_000 + part * unit)
    os.utime(path, ns=(moments[0], moments[1]))


NOT_FOUND = 127
_STEP_MS = 20
HOME = "home"  # In the command's private folder, where it has an empty home


class Spec:
    """The confinement, as `treadle.adapters.sandbox.landlock` encoded it, by name."""

    def __init__(self, word: str) -> None:
        fields = marshal.loads(bytes.fromhex(word))
        vars(self).update(fields)
        self.private = f"{fields['temporary']}/{make_folder_prefix()}{os.urandom(6).hex()}"

    def __getattr__(self, name: str):  # type: ignore[no-untyped-def]  # any field
        raise AttributeError(name)


def main(words: list[str]) -> None:
    spec, argv = Spec(words[0]), words[1:]
    try:
        protected = ProtectedPaths(spec.root, spec.kept)
        os.mkdir(spec.private, 0o700)
        if spec.gitconfig is not None:
            os.mkdir(f"{spec.private}/{HOME}", 0o700)
            with open(f"{spec.private}/{HOME}/.gitconfig", "wb") as file:
                file.write(spec.gitconfig)
        adopt_orphans()
        pid, here = _start_command(spec, argv)
    except Exception as error:
        _print_message(f"the command could not be confined and did not run: {error}")
        os._exit(CANNOT)
    messages = []
    try:
        code = _see_through(spec, pid, here)
    except Exception as error:  # from here on the command has run, so that protected paths are always put back
        messages, code = [f"the command was ended, because the process beside it failed: {error!r}"], CANNOT
    try:
        end_descendants()
    finally:
        restored_messages, is_restored = protected.restore(spec.aside)
    for message in messages + restored_messages:
        _print_message(message)
    _remove(spec.private)
    end_as(code if is_restored else CANNOT)


def _print_message(message: str) -> None:
    try:
        print(f"treadle: {message}", file=sys.stderr, flush=True)
    except OSError:  # its reader is gone
        return


def _start_command(spec: Spec, argv: list[str]) -> "tuple[int, _socket.socket]":
    """The command's process, and the socket over which it sends the descriptor of its filter."""
    here, there = _socket.socketpair()
    parent, mask = os.getpid(), processes.block_signals()
    pid = os.fork()
    if pid == 0:
        _become(spec, argv, parent, mask, there)
    there.close()
    return pid, here


def _see_through(spec: Spec, pid: int, here: _socket.socket) -> int:
    """The command's exit code; -N if signal N ended it."""
    processes.pass_signals_to(pid)
    _, extra, _, _ = here.recvmsg(1, _socket.CMSG_LEN(4))
    here.close()
    if not extra:
        return processes.wait_for_command(pid)
    listener = int.from_bytes(extra[0][2][:4], sys.byteorder)
    metadata = MetadataServer(listener, spec.chores, [spec.root, spec.private, *spec.writable], spec.kept)
    _attend(pid, listener, metadata)
    code = processes.wait_for_command(pid)
    if spec.report_fd:
        _linger(spec, listener, metadata)
    os.close(listener)
    return code


def _linger(spec: Spec, listener: int, metadata: MetadataServer) -> None:
    """Wait a moment for what the command left running, and report what still runs then."""
    until = time.monotonic() + spec.linger_s
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while time.monotonic() < until:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for _, event in poll.poll(_STEP_MS):
            if event & select.POLLIN:
                metadata.serve()
            else:
                poll.unregister(listener)
    for name in list_descendants().values():
        os.write(spec.report_fd, b"left=%b\0" % name)


def _become(spec: Spec, argv: list[str], parent: int, mask: "set[int]", there: _socket.socket) -> None:
    """In the child: give everything up, then become the command."""
    try:
        system.die_with_parent(parent)
        processes.enter_group()
        if not spec.terminal:
            os.setsid()
        ruleset = _make_ruleset(spec)
        os.environ["TMPDIR"] = spec.private
        if spec.gitconfig is not None:
            os.environ["HOME"] = f"{spec.private}/{HOME}"
        os.chdir(spec.cwd)
        system.give_up_privileges()
        ruleset.enforce()
        listener = system.load_filter(spec.filter)
        there.sendmsg([b"x"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, listener.to_bytes(4, sys.byteorder))])
        os.close(listener)
        processes.become_ordinary(mask)
        os.execvpe(argv[0], argv, os.environ)
    except OSError as error:
        print(f"treadle: {argv[0]} could not be started: {error}", file=sys.stderr, flush=True)
        os._exit(NOT_FOUND if error.errno == errno.ENOENT else CANNOT)


def _make_ruleset(spec: Spec) -> Ruleset:
    ruleset = Ruleset(*spec.handled)
    both = spec.read | spec.write
    closed_paths = {path.rstrip("/") for path in spec.hidden}
    readable_paths = _list_open_paths(
        closed_paths, ""
    )  # in as few rules as can be; and what is visible in the hidden paths
    for top in spec.visible:
        inside = {path for path in closed_paths if is_below(path, top) and path != top}
        readable_paths += _list_open_paths(inside, top) if inside else [top]
    for path in readable_paths:
        _allow(ruleset, spec, path, spec.read)
    for path in (*spec.devices, *spec.writable, spec.private):
        _allow(ruleset, spec, path, both)
    _allow(ruleset, spec, spec.root, both if spec.root_writable else spec.read)
    return ruleset


def _allow(ruleset: Ruleset, spec: Spec, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # gone, or not to be reached by this user anyway
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISLNK(mode):  # the target of a link has a rule of its own, or none
            ruleset.allow(fd, rights if stat.S_ISDIR(mode) else rights & spec.of_files)
    finally:
        os.close(fd)


def _list_open_paths(closed_paths: set[str], top: str) -> list[str]:
    """Return the paths below a folder, without the closed ones: the siblings of each closed path and of its parents."""
    open_folders: set[str] = set()
    for path in closed_paths:
        parts = path.split("/")
        open_folders.update("/".join(parts[:at]) for at in range(1, len(parts)))
    open_paths = []
    for folder in open_folders:
        if is_below(f"{folder}/", f"{top}/") and not any(is_below(folder, each) for each in closed_paths):
            try:
                paths = [f"{folder}/{name}" for name in os.listdir(folder or "/")]
            except OSError:
                continue
            open_paths += [path for path in paths if path not in closed_paths and path not in open_folders]
    return open_paths


def _attend(pid: int, listener: int, metadata: MetadataServer) -> None:
    pidfd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(listener, select.POLLIN)
    while pidfd not in (ready := dict(poll.poll())):
        if ready[listener] & select.POLLIN:
            metadata.serve()
        else:
            poll.unregister(listener)
    os.close(pidfd)


def _remove(folder: str) -> None:
    """The command's private folder, as far as it lets itself be removed; links in it are not followed. The next start
    of Treadle tries again."""
    try:
        for _, folders, files, fd in os.fwalk(folder, topdown=False, follow_symlinks=False):
            for name in (*files, *folders):
                try:
                    (os.rmdir if stat.S_ISDIR(os.lstat(name, dir_fd=fd).st_mode) else os.unlink)(name, dir_fd=fd)
                except OSError:
                    continue
        os.rmdir(folder)
    except (OSError, RecursionError):  # not empty, or too deep
        return
