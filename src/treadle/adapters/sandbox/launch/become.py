"""Programs that change one thing about their own process and become the command.

A copy-on-write view of the project can be mounted before bubblewrap starts, in a mount namespace of our own. bubblewrap
can mount one, too, but not with `volatile` (no need to survive a power cut): without it the kernel syncs each file that
it copies up, which takes longer than all the rest."""

import errno
import marshal
import os
import sys
from _collections_abc import Iterable

from treadle.adapters.sandbox.launch.libc import mount, unshare

_NEW_USER, _NEW_MOUNTS = 0x10000000, 0x00020000
_NOSUID_NODEV, _BIND, _PRIVATE = 0x2 | 0x4, 0x1000, 0x4000 | 0x40000
_UNREACHABLE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)
CANNOT = 125


def take_terminal(words: list[str]) -> None:
    """Make an open terminal the one that controls this session, as at a login."""
    from fcntl import ioctl

    spec = marshal.loads(bytes.fromhex(words[0]))
    ioctl(spec["terminal"], spec["take"], 0)
    os.execvp(words[1], words[1:])


def refuse_abstract_sockets(words: list[str]) -> None:
    """Cut off abstract sockets outside: they belong to the network, and a command that has the machine's network would
    reach them. Landlock refuses them (Linux 6.12)."""
    from treadle.adapters.sandbox.launch.system import Ruleset

    abstract_sockets, size = 1, 24
    Ruleset(0, 0, abstract_sockets, size).enforce()
    os.execvp(words[1], words[1:])


def enter_world(words: list[str]) -> None:
    """Step into the namespaces of a world's holder, where its layers are mounted over the project (W-11), then into the
    directory. Without a holder only the latter."""
    import _socket

    from treadle.adapters.sandbox.launch import system

    spec = marshal.loads(bytes.fromhex(words[0]))
    try:
        if spec["holder"]:
            # The connection stays open until this process is inside: the holder ends only if no process is.
            line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
            folder = os.open(os.path.dirname(spec["holder"]), os.O_RDONLY | os.O_DIRECTORY)
            line.connect(f"/proc/self/fd/{folder}/{os.path.basename(spec['holder'])}")  # a path of any length
            os.close(folder)
            line.send(b"spaces")
            _, handed, _, _ = line.recvmsg(16, _socket.CMSG_SPACE(8))
            data = handed[0][2] if handed else b""
            spaces = [int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, len(data), 4)]
            if not spaces:
                raise OSError(5, "its holder gives nothing")
            for space in spaces:
                system.join(space)
                os.close(space)
            line.close()
        os.chdir(spec["cwd"])
        os.execvp(words[1], words[1:])
    except OSError as error:
        print(f"treadle: the command could not enter its world and did not run: {error}", file=sys.stderr, flush=True)
        os._exit(CANNOT)


def lay(words: list[str]) -> None:
    spec = marshal.loads(bytes.fromhex(words[0]))
    try:
        lay_view(spec["root"], spec["upper"], spec["work"], spec["place"])
        os.execvp(words[1], words[1:])
    except OSError as error:
        sys.stderr.write(f"the view of the project cannot be made: {error.strerror}\n")
        os._exit(CANNOT)


def cover(words: list[str]) -> None:
    """Cover sockets by their path, in a mount namespace of its own, and become the sandbox. bubblewrap can cover them,
    too, but a socket that vanishes meanwhile would keep it from starting: here one that is gone is passed over. `at`:
    where bubblewrap takes more mounts, for kernels that give namespaces to it alone (setuid)."""
    spec, line = marshal.loads(bytes.fromhex(words[0])), words[1:]
    try:
        unshare_namespaces()
    except OSError:
        paths = [path for path in spec["paths"] if os.path.lexists(path)]
        line[spec["at"] : spec["at"]] = [word for path in paths for word in ("--ro-bind", "/dev/null", path)]
    else:
        try:
            make_mounts_private()
            cover_sockets(spec["paths"])
        except OSError as error:
            sys.stderr.write(f"treadle: sockets outside the project cannot be covered: {error.strerror}\n")
            os._exit(CANNOT)
    os.execvp(line[0], line)


def lay_view(root: str, upper: str, work: str, place: str) -> None:
    """Mount a view of the root at `place`, for this process and all that it starts. Users stay who they are, and the
    next program that is executed has no more rights than before."""
    unshare_namespaces()
    make_mounts_private()
    options = (
        f"userxattr,volatile,lowerdir={_escape_path(root)},upperdir={_escape_path(upper)},workdir={_escape_path(work)}"
    )
    mount("overlay", place, "overlay", _NOSUID_NODEV, options)


def cover_sockets(paths: "Iterable[str]") -> None:
    """Put a device that cannot be connected to in the place of each. A socket that is gone is passed over."""
    for path in paths:
        try:
            mount("/dev/null", path, "", _BIND, "")
        except OSError as error:
            if error.errno not in _UNREACHABLE:
                raise


def make_mounts_private() -> None:
    """No mount that is made from now on is seen outside this namespace."""
    mount("none", "/", "", _PRIVATE, "")


def unshare_namespaces() -> None:
    """Have users and mounts of our own; users stay who they are."""
    user, group = os.geteuid(), os.getegid()
    unshare(_NEW_USER | _NEW_MOUNTS)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "wb", buffering=0) as file:
            file.write(text.encode())


def _escape_path(path: str) -> str:
    for sign in "\\,:":
        path = path.replace(sign, f"\\{sign}")
    return path
