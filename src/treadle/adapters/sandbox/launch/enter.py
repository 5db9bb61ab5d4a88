"""Becomes the command, where the layers of a world are mounted over the project (W-11): steps into the namespaces of
the world's holder, then into the directory. Without a holder only the latter."""

import _socket
import marshal
import os
import sys

from treadle.adapters.sandbox.launch import system


def main(words: list[str]) -> None:
    spec = marshal.loads(bytes.fromhex(words[0]))
    try:
        if spec["holder"]:
            _join(spec["holder"])
        os.chdir(spec["cwd"])
        os.execvp(words[1], words[1:])
    except OSError as error:
        print(f"treadle: the command could not enter its world and did not run: {error}", file=sys.stderr, flush=True)
        os._exit(system.CANNOT)


def _join(holder: str) -> None:
    """The connection stays open until this process is inside. A process inside keeps the namespace alive, and the
    holder checks for that before it ends."""
    line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    folder = os.open(os.path.dirname(holder), os.O_RDONLY | os.O_DIRECTORY)
    line.connect(f"/proc/self/fd/{folder}/{os.path.basename(holder)}")  # a path of any length
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
