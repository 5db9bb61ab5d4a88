"""Starting `python -m MODULE`, above all the command line, at the price of a fork. `Forked` is `subprocess.Popen`: the
process comes from the zygote of this process of the test run; where a test is about the start of an interpreter
itself, or a fork is not possible, an interpreter is started."""

import atexit
import inspect
import json
import os
import select
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests import fork_client, zygote
from tests.leftovers import SHARED

SOURCES = str(Path(treadle.__file__).parents[1])
ROOT = str(Path(__file__).parents[1])
ENVIRONMENT = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": SOURCES}
OURS = ENVIRONMENT | {"PYTHONPATH": f"{SOURCES}{os.pathsep}{ROOT}"}
"""Where programs of the tests are found, too."""
AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "GLIBC_", "TEXTUAL", "SSL", "OPENSSL")
"""How variables begin that are looked at when a process starts, or when something is imported."""
SPEAKING = {"acp", "copilot", "mcp"}
"""Commands that load the protocols of editors and of MCP servers, or often do."""
MCP_PROGRAMS = {"tests.conformance.mcp_client_program"}
"""Programs of the tests that load them."""
FOLLOWED = {"PYTHONPATH", "PYTHONSAFEPATH"}
"""Those of them that the zygote sees to."""


class Forked(subprocess.Popen[Any]):
    """As if started. `fresh` insists on an interpreter of its own; `terminal` makes the standard input its controlling
    terminal."""

    def __init__(self, args: Sequence[str], *, fresh: bool = False, terminal: bool = False, **more: Any) -> None:
        self._fresh = fresh
        if terminal:
            more |= {"start_new_session": True, "preexec_fn": zygote.take_terminal}
        super().__init__(args, **more)

    def _execute_child(self, *arguments: Any) -> None:
        """The step of `Popen` after all pipes are made."""
        call_arguments = SIGNATURE.bind(self, *arguments).arguments
        pid = 0 if self._fresh or not forkable(call_arguments) else ask(call_arguments)
        if not pid:
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        self.pid = pid
        self._child_created = True
        self._close_pipe_fds(*(call_arguments[name] for name in PIPES))  # type: ignore[attr-defined]


SIGNATURE = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")


def forkable(call_arguments: Mapping[str, Any]) -> bool:
    """True if a fork is as good as a start."""
    args, environment = call_arguments["args"], call_arguments["env"] or os.environ
    start_variables = {name for name in environment if name.startswith(AT_START)} - FOLLOWED
    odd = (
        call_arguments["pass_fds"]
        or call_arguments["shell"]
        or call_arguments["executable"]
        or not call_arguments["close_fds"]
    )
    another = any(call_arguments[name] is not None for name in ("uid", "gid", "gids")) or call_arguments["umask"] >= 0
    return (
        isinstance(args, list | tuple)
        and list(args[:2]) == [sys.executable, "-m"]
        and call_arguments["preexec_fn"] in (None, zygote.take_terminal)
        and not (odd or another)
        and {name: environment[name] for name in start_variables} == {"LANG": ENVIRONMENT["LANG"]}
        and environment.get("PYTHONPATH", "").split(os.pathsep)[0] == SOURCES
        and os.path.isdir(call_arguments["cwd"] or ".")
    )


def ask(call_arguments: Mapping[str, Any]) -> int:
    """The process that became of it; 0 if it cannot be had."""
    environment = {
        os.fsdecode(name): os.fsdecode(value) for name, value in (call_arguments["env"] or os.environ).items()
    }
    module, *arguments = map(os.fsdecode, call_arguments["args"][2:])
    request = {
        "module": module,
        "arguments": arguments,
        "environment": environment,
        "folder": os.path.abspath(os.fsdecode(call_arguments["cwd"] or ".")),
        "paths": environment["PYTHONPATH"].split(os.pathsep),
        "session": call_arguments["start_new_session"],
        "group": call_arguments["process_group"],
        "terminal": call_arguments["preexec_fn"] is not None,
    }
    files = (call_arguments["p2cread"], call_arguments["c2pwrite"], call_arguments["errwrite"])
    line = the_zygote()
    return (
        line.fork(request, [descriptor if file < 0 else file for descriptor, file in enumerate(files)]) if line else 0
    )


@contextmanager
def forking() -> Iterator[None]:
    """Let those fork, too, who start processes without our help, as asyncio does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", Forked)
        yield


@contextmanager
def fork_command(module: str) -> Iterator[str]:
    """A line for a shell that runs a module, for programs that start it by themselves."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        path = f"{folder}/fork.sock"
        listener.bind(path)
        listener.listen()
        thread = threading.Thread(target=_serve_clients, args=[listener])
        thread.start()
        try:
            yield shlex.join([sys.executable, "-I", "-S", fork_client.__file__, path, module])
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # ends the thread
            thread.join()


def _serve_clients(listener: socket.socket) -> None:
    """One client after the other, until the listener is shut down."""
    while True:
        try:
            line, _ = listener.accept()
        except OSError:
            return
        with line:
            _, files, _, _ = socket.recv_fds(line, 1, 3)
            with line.makefile("rb") as stream:
                request = json.load(stream)
            try:
                code = _run_to_end(line, request, files)
            finally:
                for file in files:
                    os.close(file)
            with suppress(OSError):
                line.sendall(b"%d" % code)


def _run_to_end(line: socket.socket, request: Mapping[str, Any], files: Sequence[int]) -> int:
    """The exit code as a shell reports it. The process ends with its client: a killed client closes the line."""
    streams: dict[str, Any] = dict(zip(("stdin", "stdout", "stderr"), files, strict=True))
    command = [sys.executable, "-m", *request["words"]]
    with Forked(command, env=request["environment"], cwd=request["folder"], **streams) as process:
        while process.poll() is None:
            hung_up = select.poll()
            hung_up.register(line, 0)  # POLLHUP alone
            if hung_up.poll(20):
                process.kill()
        code = process.returncode
    return code if code >= 0 else 128 - code


class Zygote:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            command = [sys.executable, zygote.__file__, str(number)]
            self._process = subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, pass_fds=[number])
        self.pid = self._process.pid

    def fork(self, request: Mapping[str, Any], files: Sequence[int]) -> int:
        module, command = request["module"], request["arguments"][:1]
        speaks = module in MCP_PROGRAMS or (module == "treadle" and not SPEAKING.isdisjoint(command))
        with os.fdopen(os.memfd_create("request"), "w+b") as paper:
            paper.write(json.dumps(request).encode())
            paper.seek(0)
            with self._lock:
                socket.send_fds(self._line, [zygote.SPEAKS if speaks else zygote.PLAIN], [paper.fileno(), *files])
                pid = int.from_bytes(self._line.recv(8), "big", signed=True)
        return max(0, pid)

    def close(self) -> None:
        self._line.close()
        self._process.wait()


@cache
def the_zygote() -> Zygote | None:
    """The one of this process; None where there cannot be one."""
    if zygote.CLONE < 0 or not sys.platform.startswith("linux"):
        return None
    new_zygote = Zygote()
    SHARED.add(new_zygote.pid)
    atexit.register(new_zygote.close)
    return new_zygote


def run(args: Sequence[str], *, input: str = "", timeout: float, **more: Any) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` with all that is said, as text."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with Forked(args, **pipes, text=True, **more) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(args, process.returncode, out, err)
