"""Attempts to escape from a sandbox, made for real from the inside: a function each, by the names in `report`. Each one
runs in a process of its own and prints what it reached as a line; the process that started it examines the effects
outside. Outside a sandbox most of them succeed, and touch only the targets that were set up for them: folders, the
addresses of listeners, a process to attack, a terminal (`probe`)."""

import ctypes
import marshal
import os
import socket
import stat
import sys
import time
from _collections_abc import Callable, Iterator
from fcntl import ioctl
from types import SimpleNamespace as Targets

from treadle.adapters.sandbox.launch.processes import close_descriptors
from treadle.adapters.sandbox.launch.system import check_return_value, make_system_call

_LIBC = ctypes.CDLL(None, use_errno=True)
_REMOUNT_BIND, _PRIVATE = 0x1020, 0x44000
_NEW_USER, _NEW_NET, _NEW_MOUNTS = 0x10000000, 0x40000000, 0x00020000
_TIOCSTI = 0x5412
_PTRACE_SEIZE = 0x4206
_IO_URING_SETUP = 425
_KEYCTL = {"x86_64": 250, "aarch64": 219}


def _append(path: str) -> None:
    with open(path, "ab") as file:
        file.write(b"changed")


def chmod_outside(targets: Targets) -> None:
    """By name and by descriptor: one may be closed and the other open."""
    path = f"{targets.outside}/chmod_outside"
    try:
        os.chmod(path, 0o777)
    except OSError:
        fd = os.open(path, os.O_RDONLY)
        os.fchmod(fd, 0o777)


def through_link(targets: Targets) -> None:
    os.symlink(f"{targets.outside}/through_link", link := f"{targets.root}/link")
    _append(link)


def through_hard_link(targets: Targets) -> None:
    os.link(f"{targets.outside}/through_hard_link", link := f"{targets.root}/hard-link")
    _append(link)


def through_proc(targets: Targets) -> None:
    """By the root folder of a process outside, or of the first process."""
    try:
        _append(f"/proc/{targets.victim}/root{targets.outside}/through_proc")
    except OSError:
        _append(f"/proc/1/root{targets.outside}/through_proc")


def write_kernel(_targets: Targets) -> None:
    """Any file below /proc and /sys that is not a process's own: settings of the whole machine, of which some name
    programs that the kernel runs. It is only opened."""
    for path in _iterate_kernel_files():
        try:
            return os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC))
        except OSError:
            continue
    raise OSError(0, "none can be opened for writing")


def _iterate_kernel_files() -> Iterator[str]:
    try:
        tops = [f"/proc/{name}" for name in os.listdir("/proc") if not name.isdigit()]
    except OSError:
        tops = []
    for top in (*tops, "/sys"):
        if os.path.islink(top):  # of the process that asks
            continue
        if not os.path.isdir(top):
            yield top
        for folder, _, names in os.walk(top):
            for name in names:
                yield f"{folder}/{name}"


def _expect_marker(path: str, targets: Targets, reason: str) -> None:
    with open(path, "rb") as file:
        if targets.marker not in file.read():
            raise OSError(0, reason)


def read_home(targets: Targets) -> None:
    with open(f"{targets.home}/notes", "rb") as file:
        file.read()


def match_key(targets: Targets) -> None:
    """By names, in each folder of the home: as `cat ~/.*/id_*` does."""
    for folder in os.listdir(targets.home):
        place = f"{targets.home}/{folder}"
        for name in os.listdir(place) if os.path.isdir(place) else ():
            if name.startswith("id_"):
                with open(f"{place}/{name}", "rb") as file:
                    if targets.marker in file.read():
                        return
    raise OSError(0, "nothing matches")


def create_protected(targets: Targets) -> None:
    hooks = f"{targets.root}/missing/.git/hooks"
    os.makedirs(hooks, exist_ok=True)
    _append(f"{hooks}/pre-commit")


def change_protected(targets: Targets) -> None:
    config = f"{targets.root}/existing/.git/config"
    try:
        _append(config)
    except OSError:
        _append(f"{config}.lock")
        os.rename(f"{config}.lock", config)


def move_protected(targets: Targets) -> None:
    """Put another folder in the place of the one with the protected path."""
    git = f"{targets.root}/moved/.git"
    os.rename(git, f"{git}.away")
    os.makedirs(f"{git}/hooks")
    _append(f"{git}/hooks/pre-commit")


def connect_tcp(targets: Targets) -> None:
    with socket.create_connection(("127.0.0.1", targets.tcp), 5) as connection:
        connection.sendall(b"out")


def send_udp(targets: Targets) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"out", ("127.0.0.1", targets.udp))


def _connect(address: "str | bytes") -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        connection.sendall(b"out")


def remount(targets: Targets) -> None:
    """Make the read-only world writable; where it is writable already, mount something, unseen by others if may be."""
    if os.statvfs("/").f_flag & os.ST_RDONLY:
        check_return_value(_LIBC.mount(None, b"/", None, ctypes.c_ulong(_REMOUNT_BIND), None))
        return
    if _LIBC.unshare(ctypes.c_int(_NEW_MOUNTS)) == 0:
        check_return_value(_LIBC.mount(None, b"/", None, ctypes.c_ulong(_PRIVATE), None))
    place = f"{targets.root}/mounted".encode()
    os.mkdir(place)
    check_return_value(_LIBC.mount(b"tmpfs", place, b"tmpfs", ctypes.c_ulong(0), None))
    check_return_value(_LIBC.umount2(place, 2))


def set_user_id(targets: Targets) -> None:
    """By a change of its mode, and by the mode that it is made with."""
    program = f"{targets.root}/program"
    _append(program)
    try:
        os.chmod(program, 0o4755)
    except OSError:
        os.umask(0)
        os.close(os.open(f"{program}.new", os.O_CREAT | os.O_WRONLY, 0o4755))


def kill_process(targets: Targets) -> None:
    if targets.victim in (os.getpid(), os.getppid()):
        raise OSError(0, "it is not to be seen")
    os.kill(targets.victim, 15)


def survive(targets: Targets) -> None:
    """A daemon that answers when asked, long after everything else has ended. Like any daemon it closes all descriptors
    that it inherited: the asking process may wait for their end of file first."""
    if os.fork():
        return
    try:
        os.setsid()
        if os.fork() == 0:
            close_descriptors(targets.asks, targets.tells)
            os.read(targets.asks, 1)
            time.sleep(2)  # a process that is about to be killed is dead by then
            os.write(targets.tells, b"alive")
    finally:
        os._exit(0)


ATTEMPTS: dict[str, Callable[[Targets], object]] = {
    "write_outside": lambda targets: _append(f"{targets.outside}/write_outside"),
    "create_outside": lambda targets: _append(f"{targets.outside}/create_outside.new"),
    "delete_outside": lambda targets: os.unlink(f"{targets.outside}/delete_outside"),
    "truncate_outside": lambda targets: os.truncate(f"{targets.outside}/truncate_outside", 0),
    "touch_outside": lambda targets: os.utime(f"{targets.outside}/touch_outside", (1, 1)),
    "attribute_outside": lambda targets: os.setxattr(
        f"{targets.outside}/attribute_outside", "user.treadle", b"changed"
    ),
    "read_hidden": lambda targets: _expect_marker(targets.hidden, targets, "it is empty"),
    "read_environment": lambda targets: _expect_marker(
        f"/proc/{targets.victim}/environ", targets, "it is another process"
    ),
    "connect_unix": lambda targets: _connect(targets.socket),
    "connect_young": lambda targets: _connect(targets.young),
    "connect_abstract": lambda targets: _connect(targets.abstract),
    "new_namespace": lambda _: check_return_value(_LIBC.unshare(ctypes.c_int(_NEW_USER | _NEW_NET))),
    "make_device": lambda targets: os.mknod(
        f"{targets.root}/disk", stat.S_IFBLK | 0o600, os.stat(targets.outside).st_dev
    ),
    "trace_process": lambda targets: check_return_value(
        _LIBC.ptrace(ctypes.c_long(_PTRACE_SEIZE), ctypes.c_long(targets.victim), None, None)
    ),
    "type_into_terminal": lambda targets: ioctl(targets.terminal, _TIOCSTI, b"x"),
    "use_io_uring": lambda _: os.close(make_system_call(_IO_URING_SETUP, ctypes.c_uint(1), bytes(120))),
    "read_keyring": lambda _: make_system_call(
        _KEYCTL[os.uname().machine], ctypes.c_long(0), ctypes.c_long(-3), ctypes.c_long(1)
    ),
}
_LONGER = (
    chmod_outside, through_link, through_hard_link, through_proc, write_kernel, read_home, match_key, create_protected,
    change_protected, move_protected, connect_tcp, send_udp, remount, set_user_id, kill_process, survive,
)  # fmt: skip
ATTEMPTS |= {attempt.__name__: attempt for attempt in _LONGER}


def _run_attempt(attempt: Callable[[Targets], object], targets: Targets) -> str:
    """In a process of its own, so that no attempt spoils another: `reached`, or why not."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            attempt(targets)
            os.write(writer, b"reached")
        except OSError as error:
            os.write(writer, (error.strerror or "refused").encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        report = pipe.read()  # up to its end: then a daemon is on its own, too
    os.waitpid(pid, 0)
    return report.decode() or "the process was ended"


def main(words: list[str]) -> None:
    targets = Targets(**marshal.loads(bytes.fromhex(words[0])))
    for name in targets.names:
        print(f"{name}\t{_run_attempt(ATTEMPTS[name], targets)}", flush=True)
    sys.exit(0)
