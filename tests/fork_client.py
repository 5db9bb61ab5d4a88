"""A program that stands in for `python -m MODULE` where another program starts it: the test process that listens at the
socket forks the module from its zygote, with the files, the environment and the folder of this process.

    python -I -S fork_client.py SOCKET MODULE ARGUMENT ...
"""

import json
import os
import socket
import sys


def main() -> int:
    path, *words = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        socket.send_fds(line, [b"."], [0, 1, 2])
        line.sendall(json.dumps({"words": words, "environment": dict(os.environ), "folder": os.getcwd()}).encode())
        line.shutdown(socket.SHUT_WR)
        return int(line.recv(16))


if __name__ == "__main__":
    sys.exit(main())
