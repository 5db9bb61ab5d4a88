"""The worlds of one home, as files and layers (`ports.workspace.WorldPlaces`, and the operations that `Worlds` runs in
threads). Commits go through the one transaction of projects (`workspace.history`). Knows no chats.

Access to the files of a world (`ports.workspace.WorldFiles`): a copy by its path, layers by a descriptor from their
holder (`sandbox.launch.world`). Starts the holder if there is none; later processes use the same one. A process has one
connection to the holder of a world, kept while it is used: a second mount of the same layers would not see files
written through the first. The holder is asked for each descriptor, because its mount shows files that others saved
beneath only after it was asked."""

import os
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from treadle.adapters.sandbox.launch.world import READY, TAKEN
from treadle.adapters.sandbox.launcher import Launcher, NoSandbox
from treadle.adapters.sandbox.supervisor.folder import read_boot_id
from treadle.adapters.workspace.history.capture import TREE, Beginning, make_copy
from treadle.adapters.workspace.history.overlay_upper import UPPER, Beginnings, States
from treadle.adapters.workspace.history.snapshots import ProjectSnapshots
from treadle.adapters.workspace.history.states import is_folder
from treadle.adapters.workspace.paths.entries import hold_fd
from treadle.adapters.workspace.paths.resolve import BoundFolder, locate
from treadle.base.file_system import reach_faultpoint
from treadle.base.types import make_id
from treadle.diff.diff import is_text
from treadle.diff.merge import merge
from treadle.errors import Conflict, InvalidInput, NotFound, ToolError, WorldBusy
from treadle.library.worlds.record import World, WorldFolders
from treadle.ports.sandbox import Confinement, WorldMount
from treadle.ports.snapshots import Effect
from treadle.ports.workspace import escape_name
from treadle.protocol.files import DiffStat, FileChange, FileState, decode_path, encode_path, make_file_change
from treadle.protocol.options import OWN_WORLD, ChatOptions, Project

LAUNCHER = Launcher()
SOCKET = "socket"
IDLE_S = 60.0  # Seconds that an unused holder waits before it ends
_PATIENCE_S = 60.0
_STEP_S = 0.01
_LOOK = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class WorldGround:
    """The files of one world. Any number of threads may use it."""

    def __init__(self, folders: WorldFolders, id: str) -> None:
        self._line: socket.socket | None = None
        self._close_line: weakref.finalize[[], WorldGround] | None = None  # also for an agent that is never closed
        self.name, self._folders, self._lock, self._process = id, folders, threading.Lock(), 0
        world = self._get_world()
        self.folder = f"{folders.locate_view(world)}/tree" if world.how == "copy" else ""

    def open(self, flags: int) -> int:
        with ExitStack() as stack:
            top = None
            if not self.folder:
                stack.enter_context(self._lock)
                top = stack.enter_context(hold_fd(self._open_top()))
            try:
                return os.open(self.folder or ".", flags, dir_fd=top)
            except OSError as error:
                self._get_world()  # says so if it is gone
                raise ToolError(f"The world {self.name} cannot be opened: {error.strerror}.") from error

    def record_old_states(self, old_states: Mapping[str, FileState | None]) -> None:
        if not self.folder:  # a copy knows what all of it was
            view = self._folders.locate_view(self._get_world())
            beginnings = Beginnings(view)
            if outdated := self._find_shown_beneath(old_states, beginnings.read_all(), f"{view}/{UPPER}"):
                beginnings.update({path: old_states[path] for path in outdated})
            beginnings.add(old_states)

    def _find_shown_beneath(self, old_states: States, known_states: States, upper: str) -> list[str]:
        """Paths that were noted for a change that was not made then: the world still shows what lies beneath."""
        other_paths = [path for path, state in old_states.items() if known_states.get(path, state) != state]
        paths = [path for path in other_paths if not os.path.lexists(f"{upper}/{decode_path(path)}")]
        if not paths:
            return []
        with hold_fd(self.open(_LOOK)) as top:
            return [path for path in paths if os.path.lexists(f"/proc/self/fd/{top}/{decode_path(path)}")]

    def mount(self) -> WorldMount:
        world = self._get_world()
        if self.folder:
            return WorldMount(self.folder)
        os.close(self.open(_LOOK))  # so that there is a holder
        layers = [self._folders.locate_view(each) for each in (*self._folders.list_ancestors(world), world)]
        holder = f"{self._folders.locate_world(self.name)}/{SOCKET}"
        return WorldMount(layers=tuple(f"{view}/upper" for view in layers), holder=holder)

    def end(self, patience_s: float = 0.0) -> None:
        """End the holder, because its mount changes or goes. WorldBusy if commands run there for longer than that."""
        deadline = time.monotonic() + patience_s
        with self._lock:
            self._hang_up()
            while not self._try_end():
                if time.monotonic() >= deadline:
                    raise WorldBusy(f"Commands run in the world {self.name}; stop them first.")
                time.sleep(_STEP_S)
        reach_faultpoint("world.ended")

    def _try_end(self) -> bool:
        if self.folder:
            return not _is_used(self.folder)
        if (line := self._call_holder()) is None:
            return True
        with line, suppress(OSError):
            line.settimeout(_PATIENCE_S)
            line.send(b"end")
            if line.recv(16) == b"busy":
                return False
            line.recv(16)  # nothing, when it has ended
        return True

    def close(self) -> None:
        """Let go of the holder; it is asked again when it is needed."""
        with self._lock:
            self._hang_up()

    def _open_top(self) -> int:
        """A descriptor of the top folder, from the holder that this process has a line to, or from a new one."""
        deadline = time.monotonic() + _PATIENCE_S
        if self._process != os.getpid():  # the line of the process that this one was forked from
            self._hang_up()
        while True:
            if self._line is None:
                self._line, self._process = self._call_holder() or self._start_holder(), os.getpid()
                self._close_line = weakref.finalize(self, self._line.close) if self._line is not None else None
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
        if self._close_line is not None:
            self._close_line()
        self._line = self._close_line = None

    def _call_holder(self) -> socket.socket | None:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:  # by a short name of the folder: that of a socket has few bytes
            with hold_fd(os.open(self._folders.locate_world(self.name), _LOOK)) as fd:
                line.connect(f"/proc/self/fd/{fd}/{SOCKET}")
        except OSError:
            line.close()
            return None
        return line

    def _start_holder(self) -> socket.socket | None:
        """A new holder, unless another process was faster."""
        world = self._get_world()
        with hold_fd(BoundFolder(world.root, world.root_id, world.root).open(_LOOK)) as fd:
            status = os.fstat(fd)
        beneath = [f"{self._folders.locate_view(each)}/upper" for each in self._folders.list_ancestors(world)]
        spec = {
            "folder": self._folders.locate_world(world.id), "socket": SOCKET, "root": world.root,
            "device": status.st_dev,
            "inode": status.st_ino, "beneath": beneath, "view": self._folders.locate_view(world), "idle_s": IDLE_S,
        }  # fmt: skip
        line = LAUNCHER.build_line("world", spec)
        ran = subprocess.run(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd="/", check=False)
        if ran.stdout not in (READY, TAKEN):
            raise ToolError(f"The world {self.name} cannot be mounted: {ran.stdout.decode() or 'its holder died'}.")
        reach_faultpoint("world.held")
        return self._call_holder()

    def _get_world(self) -> World:
        try:
            return self._folders.get(self.name)
        except NotFound as error:
            reason = f"The world {self.name} in which this chat works was dropped; its files are gone."
            raise ToolError(reason) from error


def _is_used(folder: str) -> bool:
    """True if a process works in the tree of a copy, or sees it as the project. Unknown, so False, without /proc."""
    if not os.path.isdir("/proc/self"):
        return False
    mounted = f"/{'/'.join(folder.split('/')[-3:])} ".encode()  # a path there begins at its own file system
    for process in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            works_there = f"{os.readlink(f'/proc/{process}/cwd')}/".startswith(f"{folder}/")
            if works_there or mounted in Path(f"/proc/{process}/mountinfo").read_bytes():
                return True
    return False


State = FileState | None
_AT_THIS_MOMENT = "Files are being changed there right now; try again."


class Unmergeable(Exception):
    """Both changed a path, and in ways that cannot be put together."""


class Rebase:
    """The rebase of one world, by the process that holds it alone. An interrupted rebase is completed first."""

    def __init__(self, id: str, world: ProjectSnapshots, beneath: ProjectSnapshots) -> None:
        self._name = f"{id}/rebase"
        self._world, self._beneath = world, beneath
        if world.is_unfinished(self._name, ()):
            world.change(self._name, (), None)

    def rebase_layers(self, effect: Effect, beginnings: Beginnings) -> tuple[str, ...]:
        """The paths that it changed in the world. Conflict if something cannot be merged: nothing is changed."""
        changes, base_states = {change.path: change for change in effect.files}, beginnings.read_all()
        merged_changes: list[FileChange] = []
        unmergeable: list[str] = []
        for path in sorted({conflict.path for conflict in effect.conflicts}):
            try:
                if path not in changes or path not in base_states:
                    raise Unmergeable
                ours, theirs = changes[path].after, changes[path].before
                if (merged := self._merge_state(path, base_states[path], ours, theirs)) == ours:
                    continue
                merged_changes.append(make_file_change(path, ours, merged, DiffStat()))
                if merged is None or merged.kind == "directory":  # its entries would have to be checked, too
                    raise Unmergeable
                if merged.kind == "file" and not self._beneath.images.has_object(merged.digest):
                    with self._beneath.root.open(decode_path(path)) as fd:
                        self._beneath.images.put_file(fd)
            except Unmergeable:
                unmergeable.append(path)
        self._make(merged_changes, unmergeable)
        beginnings.update({change.path: change.before for change in effect.files})
        return tuple(change.path for change in merged_changes)

    def rebase_copy(self, beginning: Beginning) -> tuple[str, ...]:
        """The same; given back are the paths that both had changed."""
        ours = {change.path: change.after for change in beginning.find_our_changes()}
        theirs = beginning.find_their_changes()
        had = {change.path: ours.get(change.path, change.before) for change in theirs}
        new_states: dict[str, State] = {}
        unmergeable: list[str] = []
        for change in theirs:
            try:
                new_states[change.path] = self._merge_state(change.path, change.before, had[change.path], change.after)
            except Unmergeable:
                unmergeable.append(change.path)
        unmergeable += self._find_torn_paths(ours, had, new_states)
        changed = ((path, state) for path, state in new_states.items() if state != had[path])
        merged_changes = [make_file_change(path, had[path], state, DiffStat()) for path, state in changed]
        self._make(merged_changes, unmergeable)
        reach_faultpoint("world.rebased")
        beginning.move(theirs)
        return tuple(change.path for change in merged_changes if change.path in ours)

    def _find_torn_paths(self, ours: States, had: States, new_states: dict[str, State]) -> list[str]:
        """The paths that would lie where there is no folder. A folder that others removed stays if it is not empty."""
        all_states = {**ours, **new_states}
        torn = []
        for path in sorted(new_states, key=lambda path: path.count("/"), reverse=True):
            if is_folder(had[path]) and not is_folder(new_states[path]) and self._has_more(path, all_states):
                torn += [] if new_states[path] is None else [path]
                new_states[path] = all_states[path] = had[path]
        for path, state in new_states.items():
            above = encode_path(os.path.dirname(decode_path(path)))
            if state is not None and above in all_states and not is_folder(all_states[above]):
                torn.append(path)
        return torn

    def _has_more(self, path: str, states: States) -> bool:
        """True if a folder of the world has an entry that is not removed."""
        folder = decode_path(path)
        entries = (encode_path(f"{folder}/{child.name}") for child in self._world.root.listdir(folder))
        return any(entry not in states or states[entry] is not None for entry in entries)

    def _make(self, merged_changes: Sequence[FileChange], unmergeable: Sequence[str]) -> None:
        if unmergeable:
            path_list = ", ".join(escape_name(decode_path(path)) for path in sorted(set(unmergeable))[:20])
            both = "These files changed both in the world and in the project, and cannot be merged"
            raise Conflict(f"{both}: {path_list}.")
        if self._world.change(self._name, merged_changes, None).conflicts:
            raise Conflict(_AT_THIS_MOMENT)

    def _merge_state(self, path: str, was: State, ours: State, theirs: State) -> State:
        if theirs in (was, ours):
            return ours
        if ours == was:
            return theirs
        if was is None or ours is None or theirs is None or not was.kind == ours.kind == theirs.kind:
            raise Unmergeable
        mode = theirs.mode if ours.mode == was.mode else ours.mode
        if theirs.mode not in (was.mode, mode) or was.kind not in ("directory", "file"):
            raise Unmergeable
        if was.kind == "directory":
            return FileState("directory", mode)
        try:
            current_texts = (each.root.read_bytes(decode_path(path)) for each in (self._world, self._beneath))
            texts = [self._world.read_content(was.digest), *current_texts]
        except (ToolError, NotFound) as error:
            raise Unmergeable from error
        if not all(map(is_text, texts)) or (merged := merge(*texts)).clashes:
            raise Unmergeable
        if self._beneath.images.put(texts[2]) != theirs.digest:  # the base of later merges
            raise Conflict(_AT_THIS_MOMENT)
        return FileState("file", mode, self._beneath.images.put(merged.data), len(merged.data))


_LEAVING_S = 5.0  # How long servers of tools may take to leave a world whose chat has come to rest

HistoryOf = Callable[[str, str, str], ProjectSnapshots]  # Of a root, its identity and a world


class WorldHome:
    """All methods block. NotFound for a world that is not there; ToolError from those that tools call."""

    def __init__(self, folders: WorldFolders, ground_of: Callable[[str], WorldGround], history_of: HistoryOf) -> None:
        self.folders, self._ground_of, self._history_of = folders, ground_of, history_of

    def open(self, root: str, parent: str, owner: str, label: str, id: str = "", *, unclaimed: bool = False) -> World:
        with suppress(NotFound):
            if id:
                return self.folders.get(id)
        location = locate(os.path.abspath(root))
        if location is None:
            raise InvalidInput(f"{root!r} is no folder.")
        above = self.folders.get(parent) if parent else None
        if above is not None and (above.root, above.root_id) != location:
            raise InvalidInput(f"The world {parent} is one of {above.root}, not of {location[0]}.")
        reason = above.why if above is not None else self._explain_no_layers(*location)
        world = World(id, *location, parent, "copy" if reason else "overlay", reason, owner, label)
        images = self._history_of(*world.beneath).images
        source = location[0] if above is None else f"{self.folders.locate_view(above)}/{TREE}"
        own_folder = os.path.realpath(os.path.dirname(self.folders.folder))
        fill = lambda view: make_copy(source, view, images, own_folder) if reason else None  # noqa: E731
        return self.folders.make(world, fill, unclaimed=unclaimed)

    def _explain_no_layers(self, root: str, root_id: str) -> str:
        """Why there can be no layers over this root; empty if there can. That they work is remembered for each file
        system; that they do not is tried twice each time."""
        trials = self.folders.read_trials()
        key = f"{read_boot_id()} {os.stat(root).st_dev} {os.geteuid()}"
        if trials.get(key) == "":
            return ""
        failure = self._try_layers(root, root_id) and self._try_layers(root, root_id)
        if not failure:
            self.folders.keep_trials({**trials, key: ""})
        return failure

    def _try_layers(self, root: str, root_id: str) -> str:
        trial = self.folders.make_trial(root, root_id)
        try:
            ground = WorldGround(self.folders, trial.id)
            os.close(ground.open(os.O_RDONLY))
            ground.end()
        except ToolError as error:
            return f"no overlay can be mounted here: {error}"
        finally:
            self.folders.remove(trial)
        return ""

    def resolve_world(self, options: ChatOptions, owner: str, world_id: str = "") -> str:
        """The world that a new chat says it works in, or one that is opened for it, with the id `own` if that is given.
        InvalidInput if there is none of its project, or of its owner's."""
        if options.world == OWN_WORLD:
            return self.open(options.root, "", owner, "", world_id, unclaimed=True).id if options.root else ""
        world = next((each for each in self.folders.iterate_worlds() if each.id == options.world), None)
        if world is None or (owner and owner != world.owner):
            raise InvalidInput(f"There is no world {options.world[:80]!r}.")
        if world.root != os.path.realpath(options.root):
            raise InvalidInput(f"The world {world.id} is one of {world.root}, not of {options.root}.")
        return world.id

    def compute_effect(self, id: str) -> Effect:
        world = self.folders.get(id)
        if self.folders.has_lost_stamp(world):
            with self.folders.lock_world(id):
                pass  # that mends it
        return self._compute_effect(world)

    def render_diff(self, id: str) -> str:
        world = self.folders.get(id)
        return self._get_snapshots_beneath(world).render_diff(self.folders.locate_view(world), self.compute_effect(id))

    def bring_in(self, name: str, id: str) -> Effect:
        world = self._get_world(id)
        with self.lock_world(id):
            effect = self._get_snapshots_beneath(world).commit(name, self.folders.locate_view(world))
            if not effect.conflicts:
                self.record_commit(id, effect.files)
        return effect

    def call_off(self, name: str, id: str) -> Effect | None:
        return self._get_snapshots_beneath(self.folders.get(id)).discard(name)

    def rebase(self, id: str) -> tuple[str, ...]:
        """The stamp is older than the look, as in `record_commit`. No changes are made in a world while it is stamped:
        those that were begun before it rely on an older look at the project, and those after it on a newer one."""
        with self.folders.lock_world(id) as world, ExitStack() as stack:
            view = self.folders.locate_view(world)
            beneath = self._get_snapshots_beneath(world)
            inside = self._history_of(*world.project)
            rebase = Rebase(id, inside, beneath)
            if world.how == "copy":
                return rebase.rebase_copy(beneath.open_beginning(view))
            with inside.journals.lock(inside.root.key):
                stamped = stack.enter_context(self.folders.make_stamp(world))
            merged = rebase.rebase_layers(self._compute_effect(world), Beginnings(view))
            self.folders.begin_anew(world, stamped)
            return merged

    def run_inside(self, id: str, command: Sequence[str]) -> int:
        """Run a command in a world. Its changes are compared before and after: a rebase needs the earlier states."""
        world = self.folders.get(id)
        mine, name = self._history_of(*world.project), make_id("inside")
        confinement = Confinement(world.root, world=mine.root.world)
        mine.capture(name)
        try:
            line = NoSandbox().wrap(command, confinement, world.root)
            return subprocess.run(line, cwd=world.root, check=False).returncode
        finally:
            mine.compare(name)
            mine.release(name)

    @contextmanager
    def open_folder(self, id: str) -> Iterator[str]:
        ground = self._ground_of(self.folders.get(id).id)
        with hold_fd(ground.open(_LOOK)) as fd:
            yield ground.folder or f"/proc/self/fd/{fd}"

    def drop(self, id: str) -> None:
        with self.folders.lock_world(id) as world:
            if inner := [each.id for each in self.folders.iterate_worlds() if each.parent == id]:
                raise WorldBusy(f"There are worlds of {id}: {', '.join(inner[:5])}. Drop them first.")
            self._ground_of(id).end(_LEAVING_S)
            self.folders.remove(world)

    def get_commit_target(self, world: str) -> Project:
        return self._get_world(world).beneath

    def locate_view(self, world: str) -> str:
        return self.folders.locate_view(self._get_world(world))

    @contextmanager
    def lock_world(self, world: str) -> Iterator[None]:
        with ExitStack() as stack:
            try:
                opened_world = stack.enter_context(self.folders.lock_world(world))
            except NotFound as error:
                raise ToolError(str(error)) from error
            history = self._history_of(*opened_world.project)
            stack.enter_context(history.journals.lock(history.root.key))
            yield

    def record_commit(self, world: str, files: Sequence[FileChange]) -> None:
        """The stamp is older than the look: later changes count as foreign. For the one that has the world `alone`."""
        world_record = self._get_world(world)
        view = self.folders.locate_view(world_record)
        if world_record.how == "copy":
            return self._get_snapshots_beneath(world_record).open_beginning(view).move_after_commit()
        inside, beginnings = self._history_of(*world_record.project), Beginnings(view)
        beginnings.update({file.path: file.after for file in files})
        with self.folders.make_stamp(world_record) as stamped:
            recorded_paths = beginnings.read_all()
            differing_paths = {file.path for file in self._compute_effect(world_record).files}
            equal_paths = [path for path in recorded_paths if path not in differing_paths]
            # The layer keeps files that are the same beneath. A person's later change of one is merged with this state.
            layer_paths = [path for path in equal_paths if os.path.lexists(f"{view}/{UPPER}/{decode_path(path)}")]
            beginnings.update({path: inside.read_state(decode_path(path)) for path in layer_paths})
            beginnings.forget({*equal_paths}.difference(layer_paths))
            if not differing_paths:
                self.folders.begin_anew(world_record, stamped)

    def _compute_effect(self, world: World) -> Effect:
        return self._get_snapshots_beneath(world).read_effect(self.folders.locate_view(world))

    def _get_world(self, id: str) -> World:
        try:
            return self.folders.get(id)
        except NotFound as error:
            raise ToolError(str(error)) from error

    def _get_snapshots_beneath(self, world: World) -> ProjectSnapshots:
        return self._history_of(*world.beneath)
