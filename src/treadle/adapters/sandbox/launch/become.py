"""Programs that change one thing about their own process and become the command."""

import marshal
import os
import sys


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
        os._exit(system.CANNOT)
