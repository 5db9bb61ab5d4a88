"""Covers sockets by their path, in a mount namespace of its own, and becomes the sandbox. bubblewrap can cover a path,
too, but a socket that vanishes meanwhile would keep it from starting: here one that is gone is passed over."""

import marshal
import os
import sys

from treadle.adapters.sandbox.launch.overlay import CANNOT, cover_sockets, make_mounts_private, own_namespaces


def main(words: list[str]) -> None:
    """`at`: where bubblewrap takes more mounts, for kernels that give namespaces to it alone (setuid)."""
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
