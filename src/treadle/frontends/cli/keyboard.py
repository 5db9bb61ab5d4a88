"""The keys of the terminal, one at a time and without Enter, and lines where a sentence is asked for. If standard input
is a pipe, the terminal itself is asked. The terminal is left as it was found."""

import asyncio
import os
import signal
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from treadle.base.inert import ERASE_LETTER, join_inert, make_inert, write_inert

ESCAPE = "\x1b"
END = "\x04"  # Ctrl-D
_LONGEST = 65_536
_MODES = 3  # where in the attributes of a terminal its local modes are


def is_person_there() -> bool:
    """True if a person can see the output and answer."""
    from treadle.frontends.cli.piped import is_piped
    from treadle.frontends.cli.terminal import is_terminal

    if not is_terminal(sys.stdout, sys.stderr):
        return False
    if is_terminal(sys.stdin) or not is_piped():
        return is_terminal(sys.stdin)
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


class Keyboard:
    """Keys come singly and unseen while it is entered; Ctrl-C still sends its signal. May be entered again inside."""

    _entered: "Keyboard | None" = None

    def __init__(self) -> None:
        self._own = not sys.stdin.isatty()
        self._fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY) if self._own else sys.stdin.fileno()
        self._before: list[int | list[bytes | int]] | None = None

    def __enter__(self) -> Self:
        if Keyboard._entered is None:
            Keyboard._entered = self
            with suppress(termios.error):
                self._before = termios.tcgetattr(self._fd)
            self._enter_key_mode()
            with suppress(RuntimeError, ValueError):  # after Ctrl-Z the shell has set the terminal in its own way
                asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, self._enter_key_mode)
        return self

    def __exit__(self, *_: object) -> None:
        if Keyboard._entered is self:
            Keyboard._entered = None
            with suppress(RuntimeError, ValueError):
                asyncio.get_running_loop().remove_signal_handler(signal.SIGCONT)
            self.restore()
        if self._own:
            os.close(self._fd)

    @classmethod
    def restore_now(cls) -> None:
        """Restore the terminal at once, for an exit without clean-up."""
        if cls._entered is not None:
            cls._entered.restore()

    def restore(self) -> None:
        if self._before is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._fd, termios.TCSANOW, self._before)

    def _enter_key_mode(self) -> None:
        if self._before is not None:
            with suppress(termios.error):
                now = termios.tcgetattr(self._fd)
                now[_MODES] &= ~(termios.ICANON | termios.ECHO)
                termios.tcsetattr(self._fd, termios.TCSANOW, now)

    def forget(self) -> None:
        """Discard keys that were typed before the question."""
        with suppress(termios.error):
            termios.tcflush(self._fd, termios.TCIFLUSH)

    async def read_key(self) -> str:
        """A key, with a digit or Enter that came with it; Ctrl-D at the end of input; empty for other keys and text."""
        typed = await self._read_keys() or END
        if typed in (ESCAPE, END):
            return typed
        word = typed.strip()
        return word if len(word) == 1 or (len(word) == 2 and word[1].isdecimal()) else ""

    async def read_line(self) -> str | None:
        """A line, seen while it is typed; None at the end of input."""
        holder = Keyboard._entered or self
        holder.restore()
        try:
            typed = await self._read_keys()
        finally:
            if Keyboard._entered is not None:
                holder._enter_key_mode()
        return typed.strip() if typed is not None else None

    async def edit_line(self, text: str) -> str | None:
        """This line as it is changed at its end: letters, Backspace, Ctrl-W a word, Ctrl-U all. None after Esc."""
        write_inert(sys.stderr, make_inert(text))
        while (typed := await self._read_keys()) is not None and typed not in (ESCAPE, END):
            for letter in typed if typed[0] != ESCAPE else "":
                shortened = _KEEP[letter](text) if letter in _KEEP else text
                if letter in "\r\n":
                    return text.strip()
                write_inert(sys.stderr, join_inert([ERASE_LETTER] * (len(text) - len(shortened))))
                text = shortened
                if letter.isprintable():
                    text += letter
                    write_inert(sys.stderr, make_inert(letter))
        return None

    async def _read_keys(self) -> str | None:
        """Waits without a thread, so that Ctrl-C ends it at once."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._fd, lambda: None if ready.done() else ready.set_result(None))
        try:
            await ready
            data = os.read(self._fd, _LONGEST)
        except OSError:  # the terminal is gone
            return None
        finally:
            loop.remove_reader(self._fd)
        return data.decode(errors="replace") if data else None


_KEEP: dict[str, Callable[[str], str]] = {  # keys that take something away, and what is left of a line then
    **dict.fromkeys("\x7f\b", lambda text: text[:-1]),
    **{"\x15": lambda text: "", "\x17": lambda text: text.rstrip().rpartition(" ")[0]},
}
