"""Standard input: context for a task, something to apply or to import. Read to its end, up to a limit; a note tells the
user that the command waits, and Ctrl-C ends the wait."""

import os
import select
import signal
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from treadle.base.inert import print_note
from treadle.chat.intent import STANDARD_INPUT
from treadle.errors import InvalidInput

LIMIT = 400_000
"""Bytes of standard input that a message takes along: about 100,000 tokens, half of what many models can read."""
PATCH_LIMIT = 20_000_000
_PATIENCE_S = 2.0
_SOCKET_S = 5.0
_PIECE = 65_536


def is_piped() -> bool:
    """True if standard input has data: a pipe, a file or a socket; no terminal, and not /dev/null."""
    try:
        kind = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # closed
        return False
    return stat.S_ISFIFO(kind) or stat.S_ISREG(kind) or stat.S_ISSOCK(kind)


def read_text(limit: int, shorter: str, instead: str = "") -> str:
    """All of standard input. InvalidInput if it is longer than `limit` bytes (`shorter` says what to do then) or no
    text. `instead` says how to go without it."""
    return _check_text(_read_stdin(limit, instead), "standard input", limit, shorter)


def _read_stdin(limit: int, instead: str = "") -> bytes:
    """Read until a little more than `limit`. A silent socket is empty: programs that start others leave one open."""
    fd, data = sys.stdin.fileno(), bytearray()
    is_socket = stat.S_ISSOCK(os.fstat(fd).st_mode)
    began, has_warned = time.monotonic(), False
    with _let_ctrl_c_raise():
        while True:
            if select.select([fd], [], [], _PATIENCE_S)[0]:
                piece = os.read(fd, _PIECE)
                data += piece
                if not piece or len(data) > limit:
                    return bytes(data)
            elif is_socket and not data and time.monotonic() - began > _SOCKET_S:
                return b""
            elif not has_warned and not is_socket:
                has_warned = True
                print_note(f"treadle: waiting for standard input to end{instead}")


@contextmanager
def _let_ctrl_c_raise() -> Iterator[None]:
    """Let Ctrl-C raise at once. The handler of an event loop only sets a flag, which is not read during this wait."""
    old_handler = signal.getsignal(signal.SIGINT)
    if old_handler is None or old_handler == signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old_handler)


def read_bytes(file: str) -> bytes:
    try:
        return _read_stdin(sys.maxsize) if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror or error}") from error


def read_file(file: str, limit: int, shorter: str) -> str:
    try:
        with Path(file).open("rb") as stream:
            data = stream.read(limit + 1)
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror or error}") from error
    return _check_text(data, file, limit, shorter)


def _check_text(data: bytes, name: str, limit: int, shorter: str) -> str:
    if len(data) > limit:
        raise InvalidInput(f"{name} is longer than {limit:,} bytes; {shorter}")
    if b"\0" in data:
        raise InvalidInput(f"{name} is no text: it has NUL bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name} is no UTF-8 text: {error.reason} at byte {error.start:,}") from error


def append_context(prompt: str, piped_text: str) -> str:
    """The task, and below it what was piped in."""
    body = piped_text if piped_text.endswith("\n") else f"{piped_text}\n"
    return f"{prompt}\n\n<{STANDARD_INPUT}>\n{body}</{STANDARD_INPUT}>"
