"""Runs a program that only reads and writes what it found, hands on its output piece by piece, and ends it when its
time is up or nobody wants the answer any more. Blocks; memory does not grow with the output."""

import os
import selectors
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

import msgspec

from treadle.errors import ToolError

_PIECE = 1 << 18
_POLL_S = 0.05
_KEPT_ERRORS = 8_000

Ending = Literal["exited", "timed_out", "stopped"]


class Ran(msgspec.Struct, frozen=True):
    ending: Ending
    code: int
    errors: str


def run(
    argv: Sequence[str],
    feed: Callable[[bytes], None],
    *,
    directory: int = -1,
    path: str = "/",
    stdin: int = -1,
    keep: Sequence[int] = (),
    env: Mapping[str, str],
    timeout_s: float,
    stop: threading.Event | None,
) -> Ran:
    """Run in a directory that is held open (`path` is its name where descriptors have none), or on an open file."""
    until = time.monotonic() + timeout_s
    with _started(argv, _name_of(directory, path), stdin, keep, env) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        errors = bytearray()
        with selectors.DefaultSelector() as waiting:
            waiting.register(process.stdout, selectors.EVENT_READ, feed)
            waiting.register(process.stderr, selectors.EVENT_READ, errors.extend)
            while waiting.get_map():
                if stop is not None and stop.is_set():
                    return Ran("stopped", 0, "")
                left = until - time.monotonic()
                if left <= 0:
                    return Ran("timed_out", 0, "")
                for key, _ in waiting.select(min(left, _POLL_S)):
                    data = os.read(key.fd, _PIECE)
                    if data:
                        key.data(data)
                    else:
                        waiting.unregister(key.fileobj)
                del errors[_KEPT_ERRORS:]
        return Ran("exited", process.wait(), errors.decode(errors="replace"))


@contextmanager
def _started(
    argv: Sequence[str], cwd: str, stdin: int, keep: Sequence[int], env: Mapping[str, str]
) -> Iterator["subprocess.Popen[bytes]"]:
    """The program, which is gone at the end of the block whatever happened in it."""
    try:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            stdin=subprocess.DEVNULL if stdin < 0 else stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=keep,
            env=dict(env),
        )
    except (OSError, ValueError) as error:
        raise ToolError(f"{argv[0]} could not be started: {error}.") from error
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def _name_of(directory: int, path: str) -> str:
    """A name that means the held directory itself, whatever its path means by now."""
    if directory < 0:
        return "/"
    name = f"/proc/self/fd/{directory}"
    return name if os.path.isdir(name) else path
