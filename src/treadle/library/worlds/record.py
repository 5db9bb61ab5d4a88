"""The record of a world and its folder: `<data>/worlds/ID` with `world.json` and `view`, which is laid out like the
view of a command (`upper`, `work`, `began`), so that code that reads or commits the effect of one works with the other;
of a copy, it holds the `tree` instead. Beside them the holder has its `lock` and its `socket`, and `operation.lock`
keeps rebases, commits and drops of the world apart.

`began` is the stamp of the base: files beneath that changed later were changed by others. It is a file at first, then a
link to the latest `began.*`. A world whose stamp is lost gets one as old as the world (`mend`): files that changed
since then count as changed by others, and a rebase merges them."""

import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Literal

import msgspec
from msgspec.structs import replace

from treadle.adapters.sandbox.supervisor.removal import remove_tree
from treadle.adapters.workspace.history.capture import TREE
from treadle.adapters.workspace.history.overlay_upper import BEGAN, LASTING, UPPER, Upper
from treadle.base.file_locks import lock_file
from treadle.base.file_system import create_file, reach_faultpoint, replace_file
from treadle.base.types import make_id
from treadle.errors import NotFound, ToolError, WorldBusy
from treadle.protocol.content import Value
from treadle.protocol.options import Project

LayerKind = Literal["overlay", "copy"]

_ID = re.compile(r"world_[A-Za-z0-9_-]{1,64}")
_RECORD = "world.json"
_DROPPED = ".dropped-"
_TRIALS = "trials.json"
_TRIAL = "world_trial_"  # How the ids of worlds begin that are made to try whether layers can be mounted
_OPERATION = "operation.lock"
_UNCLAIMED = "unclaimed"  # Lies in a world that is opened for a new chat, until that chat is recorded
_PATIENCE_S = 30.0
_TICK_S = 0.001


class World(Value, frozen=True):
    id: str
    root: str
    root_id: str = ""
    parent: str = ""  # The world of which it is one; empty: of the project itself
    how: LayerKind = "overlay"
    why: str = ""  # Why it is a copy and nothing better
    owner: str = ""
    label: str = ""  # The purpose of the world, in a few words
    made_ms: int = 0

    @property
    def project(self) -> Project:
        """Where chats of this world work."""
        return Project(self.root, self.root_id, self.id)

    @property
    def beneath(self) -> Project:
        """Where it is committed."""
        return Project(self.root, self.root_id, self.parent)


_decoder = msgspec.json.Decoder(World)


class WorldFolders:
    """The worlds of one home. Holds nothing open."""

    def __init__(self, data: str) -> None:
        self.folder = os.path.join(data, "worlds")

    def locate_world(self, id: str) -> str:
        if not _ID.fullmatch(id):
            raise _make_unknown_error(id)
        return os.path.join(self.folder, id)

    def get(self, id: str) -> World:
        """NotFound if there is none, or it was dropped."""
        try:
            with open(f"{self.locate_world(id)}/{_RECORD}", "rb") as file:
                return _decoder.decode(file.read())
        except (OSError, msgspec.MsgspecError) as error:
            raise _make_unknown_error(id) from error

    def iterate_worlds(self) -> Iterator[World]:
        """The oldest first, without those that are made to try something."""
        with suppress(FileNotFoundError):
            worlds = []
            for name in os.listdir(self.folder):
                with suppress(NotFound):
                    worlds += [] if name.startswith(_TRIAL) else [self.get(name)]
            yield from sorted(worlds, key=lambda world: (world.made_ms, world.id))

    def locate_view(self, world: World) -> str:
        return f"{self.locate_world(world.id)}/view"

    def list_ancestors(self, world: World) -> list[World]:
        """The worlds beneath it, the lowest first."""
        worlds: list[World] = []
        while world.parent:
            world = self.get(world.parent)
            worlds.insert(0, world)
        return worlds

    def make(self, world: World, fill: Callable[[str], None] = lambda _view: None, *, unclaimed: bool = False) -> World:
        """A new one with an empty layer, or with what fills it. It has its name when it is whole."""
        world = replace(world, id=world.id or make_id("world"), made_ms=time.time_ns() // 1_000_000)
        path = self.locate_world(world.id)
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        new_folder = f"{self.folder}/.{make_id('new')}"
        os.mkdir(new_folder, 0o700)
        try:
            _make_view(f"{new_folder}/view", world)
            fill(f"{new_folder}/view")
            create_file(f"{new_folder}/{_RECORD}", msgspec.json.encode(world))
            if unclaimed:
                create_file(f"{new_folder}/{_UNCLAIMED}", b"")
            reach_faultpoint("world.made")
            with suppress(OSError):  # another process has just made it
                os.rename(new_folder, path)
                return world
            return self.get(world.id)
        finally:
            remove_tree(new_folder)  # a copy may be large, and would have no owner

    def claim(self, id: str) -> None:
        """The chat for which the world was opened is recorded: from now on only people remove the world."""
        reach_faultpoint("world.before_claim")
        with suppress(FileNotFoundError):
            os.unlink(f"{self.locate_world(id)}/{_UNCLAIMED}")

    def list_unclaimed(self) -> set[str]:
        """The ids of worlds that were opened for new chats more than an hour ago and have not been claimed."""
        return {world.id for world in self.iterate_worlds() if _is_old(f"{self.locate_world(world.id)}/{_UNCLAIMED}")}

    def make_trial(self, root: str, root_id: str) -> World:
        """One that is swept an hour later if its process is killed."""
        return self.make(World(make_id(_TRIAL.rstrip("_")), root, root_id))

    def read_trials(self) -> dict[str, str]:
        """Where layers were tried, and what was in their way."""
        with suppress(OSError, msgspec.MsgspecError), open(f"{self.folder}/{_TRIALS}", "rb") as file:
            return msgspec.json.decode(file.read(), type=dict[str, str])
        return {}

    def keep_trials(self, trials: dict[str, str]) -> None:
        replace_file(f"{self.folder}/{_TRIALS}", msgspec.json.encode(trials))

    @contextmanager
    def lock_world(self, id: str, patience_s: float = _PATIENCE_S) -> Iterator[World]:
        """Keep other operations on a world (rebase, commit, drop) waiting. Mends the stamp first. NotFound if there is
        no such world, or it was dropped meanwhile; WorldBusy if another operation takes that long."""
        with ExitStack() as stack:
            try:
                stack.enter_context(lock_file(f"{self.locate_world(id)}/{_OPERATION}", patience_s))
            except FileNotFoundError as error:
                raise _make_unknown_error(id) from error
            except TimeoutError:
                other = f"Another process rebases, commits or drops the world {id} at this moment"
                raise WorldBusy(f"{other}. Nothing was done; try again.") from None
            world = self.get(id)
            if self.has_lost_stamp(world):
                self.mend(world)
            yield world

    def begin_anew(self, world: World, stamped: str) -> None:
        """From here on, changes beneath that are newer than this stamp count as foreign. Needs the world `alone`."""
        view, link = self.locate_view(world), f"{self.locate_view(world)}/.{stamped}"
        os.symlink(stamped, link)
        reach_faultpoint("world.before_new_beginning")
        os.replace(link, f"{view}/{BEGAN}")
        self._remove_stamps(view, stamped)

    @contextmanager
    def make_stamp(self, world: World) -> Iterator[str]:
        """The name of a new stamp, removed if it does not become the world's. Needs the world `alone`."""
        view, name = self.locate_view(world), make_id(f"{BEGAN}.")
        try:
            _write_stamp(f"{view}/{name}")
            _pass_tick(f"{view}/{name}")
            yield name
        finally:
            with suppress(OSError):
                self._remove_stamps(view, os.readlink(f"{view}/{BEGAN}") if os.path.islink(f"{view}/{BEGAN}") else "")

    def has_lost_stamp(self, world: World) -> bool:
        """True also for a stamp that cannot be read: a power cut may leave it empty."""
        view = self.locate_view(world)
        if world.how == "overlay" and os.path.isdir(f"{view}/{UPPER}"):
            try:
                _ = Upper(view).began_ns
            except ToolError:
                return True
        return False

    def mend(self, world: World) -> None:
        """Give a world whose stamp is lost one as old as the world. For the one that has the world `alone`."""
        view, name = self.locate_view(world), make_id(f"{BEGAN}.")
        _write_stamp(f"{view}/{name}", min(world.made_ms * 1_000_000, os.stat(f"{view}/{LASTING}").st_ctime_ns))
        self.begin_anew(world, name)

    def _remove_stamps(self, view: str, current: str) -> None:
        """Remove stamps that were replaced, and those of processes that died or were refused."""
        stamps = (name for name in os.listdir(view) if name.startswith((f"{BEGAN}.", f".{BEGAN}.")))
        for name in (name for name in stamps if name != current):
            os.unlink(f"{view}/{name}")

    def remove(self, world: World) -> None:
        """It is gone with one step; the rest is tidying."""
        dropped_folder = f"{self.folder}/{_DROPPED}{world.id}"
        remove_tree(dropped_folder)
        os.rename(self.locate_world(world.id), dropped_folder)
        reach_faultpoint("world.dropped")
        remove_tree(dropped_folder)

    def find_problems(self) -> Iterator[str]:
        with suppress(FileNotFoundError):
            worlds = {world.id: world for world in self.iterate_worlds()}
            for name in sorted(os.listdir(self.folder)):
                if _ID.fullmatch(name) and name not in worlds and not name.startswith(_TRIAL):
                    yield f"the world {name} cannot be read; its changes are in {self.folder}/{name}/view"
            for world in worlds.values():
                if world.parent and world.parent not in worlds:
                    yield f"the world {world.id} is one of {world.parent}, which is gone"
                if not os.path.isdir(f"{self.locate_view(world)}/{TREE if world.how == 'copy' else UPPER}"):
                    yield f"the world {world.id} has lost the files that were changed in it"
                if not os.path.isdir(world.root):
                    yield f"the project {world.root} of the world {world.id} is gone"

    def sweep(self) -> int:
        """Remove what processes that died left half made or half removed; how many there were."""
        count = 0
        with suppress(FileNotFoundError):
            for name in os.listdir(self.folder):
                path = f"{self.folder}/{name}"
                if name.startswith(_DROPPED) or (name.startswith((".", _TRIAL)) and _is_old(path)):
                    remove_tree(path)
                    count += 1
        return count


def _make_view(view: str, world: World) -> None:
    """Make an empty view. Its top has the permissions of the root: they are visible to commands in the world."""
    os.mkdir(view, 0o700)
    if world.how == "overlay":
        for name in (UPPER, "work"):
            os.mkdir(f"{view}/{name}", 0o700)
        with suppress(OSError):
            os.chmod(f"{view}/{UPPER}", stat.S_IMODE(os.stat(world.root).st_mode))
        _write_stamp(f"{view}/{BEGAN}")
    create_file(f"{view}/{LASTING}", b"")


def _write_stamp(path: str, since_ns: int = 0) -> None:
    """Note when it begins (see `Upper.began_ns`): changes beneath from now on, or since then, are foreign."""
    with open(path, "wb") as file:
        file.write(b"%d %d" % (time.time_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)))
        file.write(b" %d" % since_ns if since_ns else b"")


def _pass_tick(stamp: str) -> None:
    """Wait until the file system gives later times than that of the stamp. Its clock moves in steps of milliseconds: a
    file that is saved after the stamp and after the look at the project must not have the stamp's own time."""
    created_ns = os.stat(stamp).st_ctime_ns
    probe = f"{os.path.dirname(stamp)}/.{os.path.basename(stamp)}"
    try:
        while True:
            with open(probe, "wb") as file:
                file.write(b"x")
            if os.stat(probe).st_ctime_ns > created_ns:
                return
            time.sleep(_TICK_S)
    finally:
        with suppress(OSError):
            os.unlink(probe)


def _is_old(path: str) -> bool:
    with suppress(OSError):
        return os.lstat(path).st_ctime < time.time() - 3600
    return False


def _make_unknown_error(id: str) -> NotFound:
    return NotFound(f"There is no world {id[:80]!r}; `treadle world list` shows those that there are.")
