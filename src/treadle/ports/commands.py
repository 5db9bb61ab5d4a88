"""Commands that outlive the worker that started them (D-02). Each runs under a small supervisor process and has a
folder: the command, the output so far, the supervisor, and the exit. Any worker on the machine can adopt it."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from treadle.base.types import CallKey, ChatId
from treadle.ports.sandbox import Level
from treadle.protocol.content import Shell, Value
from treadle.protocol.tool_events import CommandEnding


class Limits(Value, frozen=True):
    """The resources that a command and its child processes may use. `file`, `cpu_s` and `open_files` apply to each
    process. 0: unlimited. Sizes are in bytes."""

    processes: int = 2048  # processes and threads
    memory: int = 8 << 30
    disk: int = 4 << 30  # Bytes that it may write on its view. It is also ended if the disk is nearly full.
    file: int = 4 << 30
    cpu_s: int = 36_000
    open_files: int = 65_536


UNLIMITED = Limits(0, 0, 0, 0, 0, 0)


class Allowance(Value, frozen=True):
    """Access that the user grants to commands beside the built-in lists. No chat and no project can extend it."""

    env: tuple[str, ...] = ()  # names of variables, as patterns (`APP_*`); secrets are never passed on (M-13)
    visible: tuple[str, ...] = ()  # paths in the user's home, relative to it or absolute, that commands may read
    limits: Limits = Limits()
    job_idle_s: float = 28_800.0  # until a background command without output and queries ends; 0: unlimited (S-14)


class CommandSpec(Value, frozen=True):
    """The command to run. `argv` is already confined; nothing about it is decided here."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    timeout_s: float = 120.0  # 0: unlimited (background processes)
    idle_s: float = 0.0  # seconds it may live without output and without queries; 0: unlimited
    pty: bool = False
    background: bool = False
    input: bool = False  # True if its standard input can be written
    output_cap: int = 1 << 30  # the bytes of output that are stored: if there are more, the beginning and the end
    state_fd: int = 0
    """The descriptor to which the shell writes its final folder and exported variables (T-14); 0: none. The data is
    kept only if the command ended by itself."""
    state_cap: int = 1 << 20  # the bytes of state that are stored
    title: str = ""  # the command in one line, for lists
    line: str = ""  # the whole command line, by which the policy judges what it changed
    shell: Mapping[str, object] | None = None  # the shell in which it begins, as plain data; None: unknown
    view: str = ""  # the root that it sees as a copy-on-write view, made with it (`Commands.locate_view`); empty: none
    layers: tuple[str, ...] = ()  # folders of that root to which alone the view belongs; empty: all of it
    lays: str = ""  # where that view is to be mounted before `argv` runs; empty: `argv` sees to it
    covered_sockets: tuple[str, ...] = ()  # sockets to cover when that view is mounted
    limits: Limits = UNLIMITED
    sandbox: Level = "none"  # the sandbox in `argv`: its own processes outlive the command and tidy up after it


class CommandExit(Value, frozen=True):
    ending: CommandEnding
    code: int = 0  # the exit code; -N if signal N ended it
    left_behind: bool = False  # True if child processes were still alive when the command ended, and were killed
    size: int = 0  # the number of bytes and of lines written, stored or not
    lines: int = 0
    error: str = ""  # why it could not be started, what it used up, or why some of its output was not kept

    @property
    def exceeded(self) -> bool:
        return self.ending == "exceeded"


class Output(Value, frozen=True):
    """A piece of output from `offset` on (later where the middle was not kept). `size`: how much was written in all."""

    data: bytes
    offset: int
    size: int


class KnownCommand(Value, frozen=True):
    call: CallKey
    running: bool
    background: bool = False
    title: str = ""
    began_ms: int = 0
    ended_ms: int = 0


class Command(Protocol):
    @property
    def folder(self) -> str: ...

    @property
    def line(self) -> str:
        """The command line; of commands of earlier versions their title."""

    @property
    def begins_in(self) -> Shell | None:
        """The shell in which it was started; None: not known."""

    @property
    def present(self) -> bool:
        """True if it was started since the machine booted. Otherwise its output may be incomplete."""

    @property
    def durable(self) -> bool:
        """True if its exit and its output are on disk, safe from a power failure."""

    async def wait(self, timeout_s: float | None = None) -> CommandExit | None:
        """How it ended; None if it has not after `timeout_s`. Leaving the wait stops nothing."""

    def read(self, offset: int, limit: int) -> Output:
        """At most `limit` bytes from `offset` on, as far as written. A negative offset counts from the end. Blocks."""

    def touch(self) -> None:
        """Record a query: the command is not idle. Blocks for a moment."""

    def locate_new_output(self, token: str, end: int | None = None) -> tuple[int, int]:
        """From where to where the output is new since this was last asked with another token; asked again with the same
        one, it begins where it began. `end`: only what stands before it counts as seen. A `touch`. Blocks."""

    def is_first_token(self, token: str) -> bool:
        """True for the first token ever asked with, always: for what is to be told once. Blocks for a moment."""

    def read_shell_state(self) -> bytes:
        """Return the data from `state_fd`; empty if the command did not end by itself."""

    async def write(self, data: bytes, *, token: str, end: bool = False) -> None:
        """Write to its standard input; `end` closes the input afterwards. ToolError if it takes no input or has ended.
        Data with a token that was already used is not written again."""

    async def stop(self) -> CommandExit:
        """End it with everything it started, and wait until that is gone. Harmless when it has ended."""


class Commands(Protocol):
    """All supervised commands of this machine and this Treadle home. A call may have several, one after the other:
    attempts have the call's key with a tilde and more behind it."""

    @property
    def place(self) -> str:
        """This machine since it was switched on, a colon, this home: a command started here is found here, or lost."""

    def locate_network_log(self, chat: ChatId, call: CallKey) -> str:
        """The file of what the command reached, which goes with it; see `treadle.ports.sandbox.Hosts`."""

    def locate_view(self, chat: ChatId, call: CallKey) -> str:
        """The folder of the view that the command of this call has, or would have: with `upper` and `work` in it, and
        `began`, written when the command starts. It goes with the command."""

    async def start(self, chat: ChatId, call: CallKey, job: CommandSpec) -> Command:
        """Start a command, once: when the call has one already, that one is given back."""

    async def find(self, chat: ChatId, call: CallKey) -> Command | None: ...

    def is_key_used(self, chat: ChatId, call: CallKey) -> bool:
        """True if this key was ever used: by a command that ran, was to run, or was cancelled. Blocks for a moment."""

    async def prevent(self, chat: ChatId, call: CallKey) -> None:
        """See to it that the call's command is not running and never will: stopped if it was started, and never started
        if it was not, not even by a worker that has been asleep."""

    async def list_commands(self, chat: ChatId) -> Sequence[KnownCommand]:
        """The commands of this chat, oldest first, without those that were forgotten."""

    async def list_running(self, chat: ChatId) -> Sequence[CallKey]: ...

    async def forget(self, chat: ChatId, call: CallKey) -> None:
        """Remove what is kept of an ended command whose result is recorded; that it was started stays known."""
