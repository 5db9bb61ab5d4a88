"""A copy-on-write view of the project, mounted before bubblewrap starts, in a mount namespace of our own. bubblewrap
can mount one, too, but not with `volatile` (no need to survive a power cut): without it the kernel syncs each file that
it copies up, which takes longer than all the rest. As a program: mounts the view and becomes the command."""

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


def main(words: list[str]) -> None:
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
        own_namespaces()
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
    own_namespaces()
    make_mounts_private()
    options = f"userxattr,volatile,lowerdir={_escaped(root)},upperdir={_escaped(upper)},workdir={_escaped(work)}"
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


def own_namespaces() -> None:
    """Have users and mounts of our own; users stay who they are."""
    user, group = os.geteuid(), os.getegid()
    unshare(_NEW_USER | _NEW_MOUNTS)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "wb", buffering=0) as file:
            file.write(text.encode())


def _escaped(path: str) -> str:
    for sign in "\\,:":
        path = path.replace(sign, f"\\{sign}")
    return path
