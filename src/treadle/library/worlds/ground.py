"""Access to the files of a world (`ports.workspace.WorldFiles`): a copy by its path, layers by a descriptor from their
holder (`sandbox.launch.world`). Starts the holder if there is none; later processes use the same one.

A process has one connection to the holder of a world, kept while it is used: a second mount of the same layers would
not see files written through the first. The holder is asked for each descriptor, because its mount shows files that
others saved beneath only after it was asked."""

import os
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from treadle.adapters.sandbox.launch.world import READY, TAKEN
from treadle.adapters.sandbox.launcher import Launcher
from treadle.adapters.workspace.history.overlay_upper import UPPER, Beginnings, States
from treadle.adapters.workspace.paths.entries import closing_fd
from treadle.adapters.workspace.paths.identity import BoundFolder
from treadle.base.file_system import faultpoint
from treadle.errors import NotFound, ToolError, WorldBusy
from treadle.library.worlds.record import World, WorldFolders
from treadle.ports.sandbox import WorldMount
from treadle.protocol.files import FileState, decode_path

LAUNCHER = Launcher()
SOCKET = "socket"
IDLE_S = 60.0
"""Seconds that an unused holder waits before it ends."""
_PATIENCE_S = 60.0
_STEP_S = 0.01
_LOOK = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class WorldGround:
    """The files of one world. Any number of threads may use it."""

    def __init__(self, folders: WorldFolders, id: str) -> None:
        self._line: socket.socket | None = None
        self.name, self._folders = id, folders
        self._lock = threading.Lock()
        self._process = 0
        world = self._world()
        self.folder = f"{folders.view(world)}/tree" if world.how == "copy" else ""

    def open(self, flags: int) -> int:
        if self.folder:
            return self._open_folder(partial(os.open, self.folder), flags)
        with self._lock, closing_fd(self._top()) as top:
            return self._open_folder(partial(os.open, ".", dir_fd=top), flags)

    def changing(self, old_states: Mapping[str, FileState | None]) -> None:
        if not self.folder:  # a copy knows what all of it was
            view = self._folders.view(self._world())
            beginnings = Beginnings(view)
            if outdated := self._shown_from_beneath(old_states, beginnings.all(), f"{view}/{UPPER}"):
                beginnings.update({path: old_states[path] for path in outdated})
            beginnings.add(old_states)

    def _shown_from_beneath(self, old_states: States, known_states: States, upper: str) -> list[str]:
        """Paths that were noted for a change that was not made then: the world still shows what lies beneath."""
        other_paths = [path for path, state in old_states.items() if known_states.get(path, state) != state]
        paths = [path for path in other_paths if not os.path.lexists(f"{upper}/{decode_path(path)}")]
        if not paths:
            return []
        with closing_fd(self.open(_LOOK)) as top:
            return [path for path in paths if os.path.lexists(f"/proc/self/fd/{top}/{decode_path(path)}")]

    def mount(self) -> WorldMount:
        world = self._world()
        if self.folder:
            return WorldMount(self.folder)
        os.close(self.open(_LOOK))  # so that there is a holder
        layers = [self._folders.view(each) for each in (*self._folders.ancestors(world), world)]
        holder = f"{self._folders.path(self.name)}/{SOCKET}"
        return WorldMount(layers=tuple(f"{view}/upper" for view in layers), holder=holder)

    def end(self, patience_s: float = 0.0) -> None:
        """End the holder, if there is one, because its mount changes or is removed. WorldBusy if commands run there,
        and do not end in that time."""
        deadline = time.monotonic() + patience_s
        with self._lock:
            self._hang_up()
            while not self._try_end():
                if time.monotonic() >= deadline:
                    raise WorldBusy(f"Commands run in the world {self.name}; stop them first.")
                time.sleep(_STEP_S)
        faultpoint("world.ended")

    def _try_end(self) -> bool:
        if self.folder:
            return not _is_used(self.folder)
        line = self._call()
        if line is None:
            return True
        with line:
            line.settimeout(_PATIENCE_S)
            with suppress(OSError):
                line.send(b"end")
                if line.recv(16) == b"busy":
                    return False
                line.recv(16)  # nothing, when it has ended
        return True

    def close(self) -> None:
        """Let go of the holder; it is asked again when it is needed."""
        with self._lock:
            self._hang_up()

    def __del__(self) -> None:
        self._hang_up()  # for an agent that was never closed

    def _top(self) -> int:
        """A descriptor of the top folder, from the holder that this process has a line to, or from a new one."""
        deadline = time.monotonic() + _PATIENCE_S
        if self._process != os.getpid():  # the line of the process that this one was forked from
            self._hang_up()
        while True:
            if self._line is None:
                self._line, self._process = self._call() or self._start(), os.getpid()
            if self._line is not None:
                with suppress(OSError):
                    self._line.settimeout(_PATIENCE_S)
                    self._line.send(b"top")
                    _, handed, _, _ = socket.recv_fds(self._line, 16, 1)
                    if handed:
                        return handed[0]
                self._hang_up()
            if time.monotonic() > deadline:
                raise ToolError(f"The world {self.name} cannot be reached: its holder does not answer. Try again.")
            time.sleep(_STEP_S)  # it is about to end, or another process is about to start one

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line = None

    def _call(self) -> socket.socket | None:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:  # by a short name of the folder: that of a socket has few bytes
            with closing_fd(os.open(self._folders.path(self.name), _LOOK)) as fd:
                line.connect(f"/proc/self/fd/{fd}/{SOCKET}")
        except OSError:
            line.close()
            return None
        return line

    def _start(self) -> socket.socket | None:
        """A new holder, unless another process was faster."""
        world = self._world()
        with closing_fd(BoundFolder(world.root, world.root_id, world.root).open(_LOOK)) as fd:
            status = os.fstat(fd)
        spec = {
            "folder": self._folders.path(world.id),
            "socket": SOCKET,
            "root": world.root,
            "device": status.st_dev,
            "inode": status.st_ino,
            "beneath": [f"{self._folders.view(each)}/upper" for each in self._folders.ancestors(world)],
            "view": self._folders.view(world),
            "idle_s": IDLE_S,
        }
        line = LAUNCHER.line("world", spec)
        ran = subprocess.run(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd="/", check=False)
        if ran.stdout not in (READY, TAKEN):
            raise ToolError(f"The world {self.name} cannot be mounted: {ran.stdout.decode() or 'its holder died'}.")
        faultpoint("world.held")
        return self._call()

    def _world(self) -> World:
        try:
            return self._folders.get(self.name)
        except NotFound as error:
            dropped = f"The world {self.name} in which this chat works was dropped"
            raise ToolError(f"{dropped}; its files are gone.") from error

    def _open_folder(self, way: "partial[int]", flags: int) -> int:
        try:
            return way(flags)
        except OSError as error:
            self._world()  # says so if it is gone
            raise ToolError(f"The world {self.name} cannot be opened: {error.strerror}.") from error


def _is_used(folder: str) -> bool:
    """True if a process works in the tree of a copy, or sees it in the place of the project. False without /proc, where
    this is unknown."""
    if not os.path.isdir("/proc/self"):
        return False
    mounted = f"/{'/'.join(folder.split('/')[-3:])} ".encode()  # a path there begins at its own file system
    for process in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if f"{os.readlink(f'/proc/{process}/cwd')}/".startswith(f"{folder}/"):
                return True
            with open(f"/proc/{process}/mountinfo", "rb") as file:
                if mounted in file.read():
                    return True
    return False
