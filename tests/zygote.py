"""A program that has imported what the command line imports, and forks: its children become `python -m MODULE` with the
arguments, the environment, the folder and the files of a request, without the third of a second of processor time that
an interpreter and its imports take. They are children of the process that started this program, like all its own
processes, and end as any other does. `forked` asks for them; this file knows nothing of tests.

    python zygote.py SOCKET
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import pkgutil
import platform
import runpy
import signal
import socket
import sys
import tempfile
import threading
import time
from typing import Any, cast

PLAIN, SPEAKS = b".", b"+"
"""The first byte of a request."""
CLONE_PARENT = 0x8000
CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine(), -1)
"""The number of the system call; the one of `fork` cannot be told whose child it makes."""

ROOMS = (
    "adapters.models", "adapters.policy", "adapters.stores.postgres", "adapters.stores.sqlite", "adapters.tools",
    "adapters.workspace", "engine", "frontends.cli", "frontends.copilot", "frontends.server", "library.evaluation",
    "library.housekeeping", "library.mcp_hub", "library.replay", "library.subagents", "library.worlds",
)  # fmt: skip
"""Packages that are imported as a whole: commands use them. Slow packages that few commands use are left out."""
PROTOCOLS = ("frontends.acp", "adapters.mcp")
"""Packages that take a second each and that only the commands for editors and for MCP servers use: imported with the
first of these."""
MORE = (
    "concurrent.futures.thread", "jsonschema_rs", "platformdirs", "tomllib", "treadle.base.jsonrpc",
    "treadle.adapters.sandbox.places", "treadle.adapters.sandbox.probe", "treadle.adapters.sandbox.trial_folders",
    "treadle.library.skills.documents", "treadle.testing.faults",
    "tree_sitter_bash", "uvicorn.lifespan.off", "uvicorn.protocols.http.h11_impl",
    "uvicorn.protocols.websockets.websockets_sansio_impl",
)  # fmt: skip


def import_rooms(rooms: tuple[str, ...]) -> None:
    for room in rooms:
        package = importlib.import_module(f"treadle.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"treadle.{room}."):
            importlib.import_module(module.name)


def preload() -> None:
    import_rooms(ROOMS)
    for name in MORE:
        importlib.import_module(name)
    assert tempfile.tempdir is None, "a folder for temporary files was looked for before its time"


def fork_for_parent() -> int:
    """`os.fork`, but the child is a child of our parent."""
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = int(ctypes.PyDLL(None).syscall(CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0))
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return pid


def serve(line: socket.socket) -> list[int]:
    """Fork for every request, and return in the children the files of it, the request itself first. A request
    that comes with SPEAKS is for a command that needs the protocols."""
    speaks = False
    while True:
        try:
            message, fds, _, _ = socket.recv_fds(line, 1, 4)
        except KeyboardInterrupt:
            os._exit(130)
        if not message:
            os._exit(0)
        if message == SPEAKS and not speaks:
            import_rooms(PROTOCOLS)
            gc.collect()
            gc.freeze()
            speaks = True
        if (pid := fork_for_parent()) == 0:
            line.close()
            return fds
        for each in fds:
            os.close(each)
        line.sendall(pid.to_bytes(8, "big", signed=True))


def become(request: dict[str, Any], files: list[int]) -> None:
    """Be as a process that was just started like this."""
    if request["session"]:
        os.setsid()
    if request["group"] >= 0:
        os.setpgid(0, request["group"])
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    if request["terminal"]:
        take_terminal()
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    time.tzset()
    if (thread := threading.main_thread()).native_id != os.getpid():  # up to Python 3.11
        thread._set_native_id()  # type: ignore[attr-defined]
    folder = [] if "PYTHONSAFEPATH" in os.environ else [request["folder"]]
    sys.path[:2] = [*folder, *request["paths"]]  # in place of ours: this folder, and the sources
    sys.argv = ["-m", *request["arguments"]]
    for number, old in enumerate((sys.stdin, sys.stdout, sys.stderr)):
        name = old.name.strip("<>")
        stream = standard_stream(number, old)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def standard_stream(number: int, like: Any) -> io.TextIOWrapper:
    binary = open(number, "wb" if number else "rb", closefd=False)  # noqa: SIM115 - for as long as the process
    cast(Any, binary).raw.name = like.name
    lines = number == 2 or os.isatty(number)
    stream = io.TextIOWrapper(binary, like.encoding, like.errors, newline="\n", line_buffering=lines)
    cast(Any, stream).mode = "w" if number else "r"
    return stream


def take_terminal() -> None:
    """The terminal that is the standard input becomes the controlling one of this session."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def leave(code: int) -> None:
    """Do the visible part of an interpreter's end; to clear away all imported modules takes ten times as long
    as the fork."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):  # then it is for the interpreter to say
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code & 0xFF)


def main() -> None:
    preload()
    gc.collect()
    gc.freeze()
    fds = serve(socket.socket(fileno=int(sys.argv[1])))
    with open(fds[0], "rb") as file:
        request = json.load(file)
    become(request, fds[1:])
    try:
        runpy._run_module_as_main(request["module"])  # type: ignore[attr-defined]
    except SystemExit as end:
        if isinstance(end.code, int | None):
            leave(end.code or 0)
        raise


if __name__ == "__main__":
    main()
