"""Holds a world (W-11): mounts its layers over the project in namespaces of its own, and gives every process that can
reach its socket access to them: a descriptor of the top folder, or the namespaces themselves. A lock allows one holder
per world. Nothing is lost when it is killed: the written files are in the upper layer, and the next holder mounts it
again.

The holder ends when no process has been connected for a while and no other process is in its namespace, or on request
if no process is in it or about to enter it. As long as one is, the layers must not be mounted a second time: two mounts
of one upper layer do not see each other's changes.

The mount remembers which file it found beneath a name, so it goes on showing a file that was replaced by a rename in
the project. A remount drops that memory; one precedes every descriptor that is handed out."""

import _socket
import fcntl
import marshal
import os
import select
import sys
import time

from treadle.adapters.sandbox.launch.become import unshare_namespaces
from treadle.adapters.sandbox.launch.libc import mount, unshare
from treadle.adapters.sandbox.launch.processes import detach_streams, try_to

_NEW_MOUNTS = 0x20000
_NOSUID, _NODEV, _REMOUNT, _RECURSIVE, _PRIVATE = 2, 4, 0x20, 0x4000, 0x40000
_LOOK = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_BACKLOG = 64
_MOST = 16

READY, TAKEN = b"ready", b"taken"


def main(words: list[str]) -> None:
    """Says `ready` when it can be asked, `taken` if the world has a holder, else what is in the way."""
    spec = marshal.loads(bytes.fromhex(words[0]))
    try:
        lock = os.open(f"{spec['folder']}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return try_to(os.write, 1, TAKEN)
        if os.fork():  # leave the parent and its process group: the holder outlives the process that needed it first
            os._exit(0)
        os.setsid()
        os.chdir("/")
        listener, spaces = _listen(spec["folder"], spec["socket"]), _enter_namespaces()
        holder = Holder(listener, _mount_layers(spec), spaces, float(spec["idle_s"]))
    except OSError as error:
        return try_to(os.write, 1, f"{error.strerror or error}".encode())
    try_to(os.write, 1, READY)  # if its starter was killed, the next process that needs the world finds the socket
    detach_streams()
    holder.serve()


def _listen(folder: str, name: str) -> "_socket.socket":
    here = os.open(folder, _LOOK)
    if name in os.listdir(here):
        os.unlink(name, dir_fd=here)
    listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    listener.bind(f"/proc/self/fd/{here}/{name}")  # a path of any length
    listener.listen(_BACKLOG)
    os.close(here)
    return listener


def _mount_layers(spec: "dict[str, object]") -> int:
    """A descriptor of the top folder, with the layers mounted over the root."""
    mount("none", "/", "", _RECURSIVE | _PRIVATE, "")
    root = str(spec["root"])
    lowest = os.open(root, _LOOK)
    if os.fstat(lowest).st_dev != spec["device"] or os.fstat(lowest).st_ino != spec["inode"]:
        raise OSError(0, "another folder stands in the place of the project")
    above = [os.open(str(layer), _LOOK) for layer in list(spec["beneath"])]  # type: ignore[call-overload]
    upper, work = (os.open(f"{spec['view']}/{name}", _LOOK) for name in ("upper", "work"))
    lower = ":".join(f"/proc/self/fd/{fd}" for fd in (*reversed(above), lowest))
    options = f"userxattr,lowerdir={lower},upperdir=/proc/self/fd/{upper},workdir=/proc/self/fd/{work}"
    mount("overlay", root, "overlay", _NOSUID | _NODEV, options)
    for fd in (lowest, *above, upper, work):
        os.close(fd)
    return os.open(root, _LOOK)


def _enter_namespaces() -> "list[str]":
    """Which kinds there are now. Root needs none of users: files keep their owners."""
    if os.geteuid() == 0:
        try:
            unshare(_NEW_MOUNTS)
        except OSError:  # root of a container that may not mount
            pass
        else:
            return ["mnt"]
    unshare_namespaces()
    return ["user", "mnt"]  # the first gives the right to step into the other


class Holder:
    """`top` is the descriptor that is handed out; `kinds` are the namespaces."""

    def __init__(self, listener: "_socket.socket", top: int, kinds: "list[str]", idle_s: float) -> None:
        self._listener, self._top, self._idle_s = listener, top, idle_s
        self._spaces = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in kinds]
        self._lines: dict[int, _socket.socket] = {}
        self._entering: set[int] = set()  # lines of processes that have the namespaces and may not be inside yet
        self._space = os.stat("/proc/self/ns/mnt").st_ino
        self._look_anew()  # where that fails, there can be no world of layers

    def serve(self) -> None:
        poll = select.poll()
        poll.register(self._listener.fileno(), select.POLLIN)
        idle_since = time.monotonic()
        while self._lines or time.monotonic() - idle_since < self._idle_s or self._is_in_use():
            for number, _ in poll.poll(None if self._lines else int(self._idle_s * 1000)):
                if number == self._listener.fileno():
                    poll.register(self._accept(), select.POLLIN)
                elif not self._answer_line(number):
                    poll.unregister(number)
                    self._entering.discard(number)
                    self._lines.pop(number).close()
                    idle_since = time.monotonic()
        self._listener.close()

    def _accept(self) -> int:
        number, _ = self._listener._accept()  # type: ignore[attr-defined]  # what `socket.accept` wraps
        line = _socket.socket(fileno=number)
        self._lines[line.fileno()] = line
        return line.fileno()

    def _answer_line(self, number: int) -> bool:
        """Answer one request; True if the connection stays open."""
        line = self._lines[number]
        try:
            word = line.recv(_MOST)
            if word == b"top":
                self._look_anew()
                _send_descriptors(line, self._top)
            elif word == b"spaces":
                self._entering.add(number)
                _send_descriptors(line, *self._spaces)
            elif word == b"end":
                busy = bool(self._entering) or self._is_in_use()
                line.send(b"busy" if busy else b"ended")
                if not busy:
                    os._exit(0)
            return bool(word)
        except OSError:
            return False

    def _look_anew(self) -> None:
        mount("none", f"/proc/self/fd/{self._top}", "", _REMOUNT | _NOSUID | _NODEV, "")

    def _is_in_use(self) -> bool:
        """True if another process is in the namespace; for a sandbox, the process that waits for its end is."""
        for name in os.listdir("/proc"):
            try:
                other = name.isdigit() and int(name) != os.getpid()
                if other and os.stat(f"/proc/{name}/ns/mnt").st_ino == self._space:
                    return True
            except OSError:
                continue
        return False


def _send_descriptors(line: "_socket.socket", *descriptors: int) -> None:
    data = b"".join(fd.to_bytes(4, sys.byteorder) for fd in descriptors)
    line.sendmsg([b"here"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, data)])
