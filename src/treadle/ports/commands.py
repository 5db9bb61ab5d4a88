"""Commands that outlive the worker that started them (D-02). Each runs under a small supervisor process with a folder
of its own: what to run, the output so far, who runs it, how it ended. Any worker on the machine can adopt it."""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from treadle.protocol.content import Value
from treadle.types import CallKey, ChatId

Ending = Literal["exited", "timed_out", "stopped", "lost"]
"""lost: the supervisor died with its command; what the command did by then is not known."""


class Job(Value, frozen=True):
    """What to run. `argv` is already confined; nothing about it is decided here."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    timeout_s: float = 120.0
    """0: as long as it likes (background processes)."""
    pty: bool = False
    background: bool = False
    input: bool = False
    """Whether something may be written to its standard input."""
    output_cap: int = 1 << 30
    """How many bytes of output are kept: beyond that, the beginning and the end."""
    marker: str = ""
    """The file into which the shell writes where it ended and what it exported (T-14); empty: none."""


class Ended(Value, frozen=True):
    ending: Ending
    code: int = 0
    """The exit code; -N if signal N ended it."""
    left_behind: bool = False
    """Whether processes were still alive when the command ended, and were killed."""


class Output(Value, frozen=True):
    """A piece of what a command has written. `size` is how much there is in all, `kept` whether all of it was kept."""

    data: bytes
    offset: int
    size: int
    kept: bool = True


class Command(Protocol):
    """One command under its supervisor, running or ended."""

    @property
    def folder(self) -> str: ...

    async def wait(self, timeout_s: float | None = None) -> Ended | None:
        """How it ended; None if it has not after `timeout_s`. Leaving the wait stops nothing."""
        ...

    def read(self, offset: int, limit: int) -> Output: ...

    async def write(self, data: bytes) -> None:
        """To its standard input; ToolError if it takes none or has ended."""
        ...

    async def stop(self) -> Ended:
        """End it with everything it started, and wait until that is gone. Harmless when it has ended."""
        ...


class Commands(Protocol):
    """All supervised commands of this machine and this Treadle home."""

    async def start(self, chat: ChatId, call: CallKey, job: Job) -> Command:
        """Start a command, once: when the call has one already, that one is given back."""
        ...

    async def find(self, chat: ChatId, call: CallKey) -> Command | None:
        """The command of this call, if it was ever started."""
        ...

    async def running(self, chat: ChatId) -> Sequence[CallKey]:
        """The calls of this chat whose commands have not ended."""
        ...

    async def forget(self, chat: ChatId, call: CallKey) -> None:
        """Remove what is kept of a command that has ended and whose result is recorded."""
        ...
