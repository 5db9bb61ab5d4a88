"""What keeps a command in its place. A sandbox turns a command line into one that the operating system confines; it
starts nothing itself. How strong it is was tried out, not assumed (S-03)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal, assert_never

from treadle.errors import SandboxError
from treadle.protocol.content import Value
from treadle.protocol.options import SandboxChoice

Level = Literal["bubblewrap", "landlock", "sandbox-exec", "none"]
"""From the strongest to none. The level stands in every command's result and is never lowered silently."""

HIDING: tuple[Level, ...] = ("bubblewrap", "sandbox-exec")
"""The levels that can hide single files of the project."""

Demand = SandboxChoice
"""What a person may ask for: the strongest that holds, or this one and no other."""


IN_A_REPOSITORY = ("hooks", "config", "config.worktree", "commondir")
"""What git runs, or reads to learn what to run: whoever writes one of them runs code as the user, later and outside."""


class Direct(Value, tag="direct", frozen=True):
    """The root as it is: what a command writes is written."""


class Unwritable(Value, tag="unwritable", frozen=True):
    """The root can only be read."""

    live: bool = False
    """Whether what others write there must be seen, for as long as it runs. In a world it then stands in the namespace
    of the holder, which must not end before it; without, it sees the world as it is when it begins."""


class View(Value, tag="view", frozen=True):
    """A copy-on-write view: writes go to `upper` (empty, outside the root) and the root stays as it is (W-08). `work`
    is an empty folder beside it, for the kernel. A protected path that does not exist may come into being on a view:
    whoever makes the effect the project's own leaves it out."""

    upper: str
    work: str
    laid: bool = False
    """Whether whoever starts the command mounts the view at `LAID` beforehand; else the sandbox makes it."""


class FolderLayer(Value, frozen=True):
    """A copy-on-write layer over one folder of the root."""

    path: str
    upper: str
    work: str


class Live(Value, tag="live", frozen=True):
    """The root can only be read, and what others write there is seen at once, by inotify too; in some folders writing
    succeeds and goes to a layer (W-10)."""

    layers: tuple[FolderLayer, ...] = ()


LAID = "/dev/shm"
"""Where a view may be mounted: a folder that every Linux has, of which every command gets one of its own anyway, and
below which no folder lies that a sandbox covers."""

RootMount = Direct | Unwritable | View | Live


class WorldMount(Value, frozen=True):
    """What stands at the root's path for a command of a world (W-11): a copy of the project, or layers over it."""

    folder: str = ""
    """The copy."""
    layers: tuple[str, ...] = ()
    """What was changed, from the lowest to the world's own."""
    holder: str = ""
    """The socket of the process in whose namespace they are mounted over the root: for who writes to them."""


class PrivateHome(Value, frozen=True):
    """What a command sees instead of people's homes: empty folders of its own that end with it, and in them what is
    named here."""

    path: str
    """The user's own home."""
    covered: tuple[str, ...]
    """It, and the homes of others."""
    visible: tuple[str, ...] = ()
    """What can be read in them: the folders of tools."""
    caches: tuple[str, ...] = ()
    """As `visible`; where the sandbox can, writing there succeeds and is forgotten."""
    keys: tuple[str, ...] = ()
    """Not readable in what is visible."""
    variables: Mapping[str, str] = {}
    """Which folders tools are to look in."""
    gitconfig: str = ""
    """What stands in the user's git settings there."""


class NoNetwork(Value, tag="none", frozen=True):
    """Nothing: the command has a network of its own with nobody else in it."""


class AllHosts(Value, tag="all", frozen=True):
    """The network of the machine, as the user has it."""


PROXY_PORT = 3128
"""On 127.0.0.1 of the command's own network: there the proxy speaks HTTP and SOCKS5. The network is new for each
command, so the port is always free."""


class Hosts(Value, tag="hosts", frozen=True):
    """Some hosts, through a proxy outside the sandbox that lives as long as the command. A program that ignores the
    proxy reaches nothing. Only a sandbox with network namespaces can do this."""

    patterns: tuple[str, ...]
    """See `treadle.host_patterns`."""
    log: str
    """The file to which the proxy appends what was reached and what was refused, a line of JSON each."""


Network = NoNetwork | AllHosts | Hosts


def all_hosts(network: Network, level: Level) -> bool:
    """Whether the whole network is allowed, for sandboxes without network namespaces. SandboxError for some hosts only:
    without a network of its own, a command could pass the proxy by."""
    match network:
        case NoNetwork():
            return False
        case AllHosts():
            return True
        case Hosts():
            raise SandboxError(
                f"{level} cannot keep a command to named hosts, only bubblewrap can: allow all hosts or none"
            )
        case _:
            assert_never(network)


LINGER_S = 2.0
"""How long a process that outlives its command may take to end by itself: `> >(gzip > log.gz)` needs a moment."""


class Confinement(Value, frozen=True):
    """What a command may touch. Paths are absolute and without links."""

    root: str
    mount: RootMount = Direct()
    network: Network = NoNetwork()
    protected: tuple[str, ...] = ()
    """Not writable even below the root, and cannot be made where they do not exist (.git/hooks, .git/config …)."""
    hidden: tuple[str, ...] = ()
    """Not readable: Treadle's own data, key files."""
    home: PrivateHome | None = None
    """None: homes are as they are, but for what is hidden."""
    writable: tuple[str, ...] = ()
    """Writable folders outside the root, beside a private /tmp."""
    world: WorldMount | None = None
    """None: the root is what lies at its path."""
    terminal: bool = False
    """Whether the command has a terminal of its own, which it may then control; it is cut off from any other."""
    secrets: tuple[str, ...] = ()
    """Files below the root that look empty and cannot be written. Landlock cannot do this and does not try."""
    covered_sockets: tuple[str, ...] = ()
    """Those of `Sandbox.sockets_to_cover` that the caller covers itself before it runs the command line."""
    report_fd: int = 0
    """The descriptor for the names of processes that the command leaves running. They may take `LINGER_S` to end; then
    they are stopped, and `left=` and the name of each is written here, with a NUL behind it. 0: they are stopped at
    once, or as the sandbox does."""


class Sandbox(ABC):
    level: Level
    views: bool = False
    """Whether a copy-on-write view of the root works here."""
    lays: bool = False
    """Whether it takes a view that whoever starts the command has mounted (`View.laid`), which is quicker with many
    changes."""

    @abstractmethod
    def wrap(self, argv: Sequence[str], confinement: Confinement, cwd: str) -> list[str]:
        """The command line that runs `argv` in `cwd` so confined. SandboxError if this sandbox cannot do what is asked
        for: it never does less. Whoever runs it passes on no descriptor but the standard ones: what is open is open to
        the command, too."""

    def sockets_to_cover(self, confinement: Confinement) -> tuple[str, ...]:
        """Sockets of daemons that the sandbox covers one by one with a program of its own before the command. A caller
        that mounts the view itself (`View.laid`) covers them more quickly."""
        return ()

    def tidy(self) -> None:  # noqa: B027 - most put nothing anywhere
        """Remove what this sandbox had put into projects for commands that were killed with everything around them.
        What belongs to commands that run stays. Never fails."""
