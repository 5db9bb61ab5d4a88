"""Confinement of commands. A sandbox converts a command line into one that the operating system confines; it starts
nothing itself. Its strength was tested, not assumed (S-03)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal, assert_never

from treadle.errors import SandboxError
from treadle.protocol.content import Value
from treadle.protocol.options import SandboxChoice

Level = Literal["bubblewrap", "landlock", "sandbox-exec", "none"]
"""From the strongest to none. The level stands in every command's result and is never lowered silently."""

HIDING: tuple[Level, ...] = ("bubblewrap", "sandbox-exec")  # the levels that can hide single files of the project
Demand = SandboxChoice  # a person's choice: the strongest sandbox that works, or exactly this one
IN_A_REPOSITORY = ("hooks", "config", "config.worktree", "commondir")
"""Files that git runs or that name programs for it: their writer can later run code outside of the sandbox."""


class Direct(Value, tag="direct", frozen=True):
    """The root itself: writes of the command take effect."""


class Unwritable(Value, tag="unwritable", frozen=True):
    """The root can only be read."""

    live: bool = False
    """True if the command must see concurrent writes of others. In a world it then runs in the namespace of the holder,
    which must not end before it; otherwise it sees the world as of its start."""


class View(Value, tag="view", frozen=True):
    """A copy-on-write view: writes go to `upper` (empty, outside the root) and the root is not changed (W-08). `work`
    is an empty folder beside it, for the kernel. A protected path that does not exist can be created on a view; the
    commit leaves it out."""

    upper: str
    work: str
    is_premounted: bool = False  # True if the starter of the command mounts the view at `LAID` beforehand


class FolderLayer(Value, frozen=True):
    path: str
    upper: str
    work: str


class Live(Value, tag="live", frozen=True):
    """The root is read-only and shows writes of others at once; writes to some folders go to a layer (W-10)."""

    layers: tuple[FolderLayer, ...] = ()


LAID = "/dev/shm"
"""Where a view may be mounted: a folder that every Linux has, of which every command gets one of its own anyway, and
below which no folder lies that a sandbox covers."""

RootMount = Direct | Unwritable | View | Live


class WorldMount(Value, frozen=True):
    """The mount at the root's path for a command of a world (W-11): a copy of the project, or layers over it."""

    folder: str = ""  # the copy
    layers: tuple[str, ...] = ()  # the folders with the changes, from the lowest to the world's own
    holder: str = ""  # the socket of the process that mounted the layers, for commands that write to them


class PrivateHome(Value, frozen=True):
    """The replacement of the homes of users: empty folders, removed with the command, with only these contents."""

    path: str  # the home of the user
    covered: tuple[str, ...]  # the home of the user, and the homes of other users
    visible: tuple[str, ...] = ()  # readable paths in the homes: the folders of tools
    caches: tuple[str, ...] = ()  # as `visible`; if the sandbox supports it, writes there succeed and are discarded
    keys: tuple[str, ...] = ()  # unreadable paths among the visible ones
    variables: Mapping[str, str] = {}  # variables that tell tools which folders to use
    gitconfig: str = ""  # the content of the user's git settings there


class NoNetwork(Value, tag="none", frozen=True):
    """No access: the command has a network namespace of its own, with no other host."""


class AllHosts(Value, tag="all", frozen=True):
    """The network of the machine, as the user has it."""


PROXY_PORT = 3128
"""On 127.0.0.1 of the command's own network: there the proxy speaks HTTP and SOCKS5. The network is new for each
command, so the port is always free."""


class Hosts(Value, tag="hosts", frozen=True):
    """Some hosts, through a proxy outside the sandbox that lives as long as the command. A program that ignores the
    proxy reaches nothing. Only a sandbox with network namespaces can do this."""

    patterns: tuple[str, ...]  # see `treadle.base.host_patterns`
    log: str  # the file to which the proxy appends what was reached and what was refused, a line of JSON each


Network = NoNetwork | AllHosts | Hosts


def allows_all_hosts(network: Network, level: Level) -> bool:
    """True if the whole network is allowed, for sandboxes without network namespaces. SandboxError if only some hosts
    are: without a namespace of its own, a command could bypass the proxy."""
    match network:
        case NoNetwork():
            return False
        case AllHosts():
            return True
        case Hosts():
            text = "cannot keep a command to named hosts, only bubblewrap can: allow all hosts or none"
            raise SandboxError(f"{level} {text}")
        case _:
            assert_never(network)


LINGER_S = 2.0  # a process that outlives its command may take so long to end: `> >(gzip > log.gz)` needs a moment


class Confinement(Value, frozen=True):
    """The resources that a command may access. Paths are absolute and without links."""

    root: str
    mount: RootMount = Direct()
    network: Network = NoNetwork()
    protected: tuple[str, ...] = ()  # not writable even below the root, nor to be made (.git/hooks, .git/config …)
    hidden_paths: tuple[str, ...] = ()  # not readable: Treadle's own data, key files
    home: PrivateHome | None = None  # None: homes are as they are, but for what is hidden
    writable: tuple[str, ...] = ()  # writable folders outside the root, beside a private /tmp
    world: WorldMount | None = None  # None: the root is what lies at its path
    terminal: bool = False  # True if the command has a terminal of its own, which it may control; it has no other
    secrets: tuple[str, ...] = ()  # files below the root that look empty and cannot be written; not with Landlock
    covered_sockets: tuple[str, ...] = ()  # those of `Sandbox.list_sockets_to_cover` that the caller covers beforehand
    report_fd: int = 0
    """The descriptor for the names of processes that the command leaves running. They may take `LINGER_S` to end; then
    they are stopped, and `left=` and the name of each is written here, with a NUL behind it. 0: they are stopped at
    once, or as the sandbox does."""


class Sandbox(ABC):
    level: Level
    views: bool = False  # True if a copy-on-write view of the root works here
    lays: bool = False
    """True if the sandbox accepts a view that the starter of the command has mounted (`View.is_premounted`), which is
    faster with many changes."""

    @abstractmethod
    def wrap(self, argv: Sequence[str], confinement: Confinement, cwd: str) -> list[str]:
        """Return the command line that runs `argv` in `cwd` with this confinement. SandboxError if this sandbox cannot
        provide all of it: it never provides less. The caller must pass on only the standard descriptors, because the
        command can use every open one."""

    def list_sockets_to_cover(self, confinement: Confinement) -> tuple[str, ...]:
        """Sockets of daemons that the sandbox covers one by one with a program of its own before the command. A caller
        that mounts the view itself (`View.laid`) covers them more quickly."""
        return ()

    def tidy(self) -> None:  # noqa: B027 - most put nothing anywhere
        """Remove the files that this sandbox created in projects for commands that were killed together with their
        supervisors. Files of running commands stay. Never fails."""
