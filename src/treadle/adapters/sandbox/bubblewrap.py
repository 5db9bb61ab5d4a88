"""Confinement by bubblewrap: a command gets namespaces of its own and a file system in which all but the project is
read-only. Owns the command line of `bwrap`; starts nothing.

How protected paths are held in place. A path that exists is mounted over itself, read-only, and every folder between
it and the root is mounted over itself, writable: a mount point can be neither removed nor renamed, and a folder that
could be renamed would take its mounts along and leave its name free. A path that does not exist needs a mount point,
and a file made inside a bind mount is made in the project: `launch.hold` makes an empty folder or file before the
command and removes it afterwards. On a copy-on-write view nothing is held: a protected path that the command creates is
left out of the commit, and a command such as `git clean` or `git init` meets nothing that is not in the project."""

import os
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

from treadle.adapters.sandbox import landlock
from treadle.adapters.sandbox.launch.handover import GO_FD, INFO_FD
from treadle.adapters.sandbox.launch.hold import ALIVE_FD, Holder
from treadle.adapters.sandbox.launcher import Launcher, map_to_copy, wrap_in_world
from treadle.adapters.sandbox.places import STAND_INS, list_python_folders
from treadle.adapters.sandbox.seccomp import Filter, assemble
from treadle.base.file_system import is_below, list_folders_between, replace_file
from treadle.errors import SandboxError
from treadle.ports import sandbox
from treadle.ports.sandbox import Confinement, Direct, Hosts, Live, Sandbox, Unwritable, View, WorldMount

Mount = tuple[str, list[str]]  # Where, and the words for it. Mounts are made from the shallowest to the deepest place.

NAMESPACES = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
ALWAYS = [*NAMESPACES, "--cap-drop", "ALL", "--die-with-parent"]
SOCKET_FOLDERS = ("/run", "/var/run")
"""The sockets of Docker, Podman, D-Bus and the like are here; they serve any process that can reach them."""
PROGRAMS = ("/run/current-system", "/run/booted-system", "/run/opengl-driver", "/run/wrappers")
"""Of distributions that keep them there."""
NAME_SERVERS = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf")
"""Only with a network: beside the addresses lie sockets that answer questions of names, and ask them outside."""
_FILTER_FD, _GITCONFIG_FD = "9", "6"
_OPEN_FILTER = f'exec "$@" {_FILTER_FD}<"$0"'
_OPEN_FILES = f'given=$1; shift; exec "$@" {_FILTER_FD}<"$0" {_GITCONFIG_FD}<"$given"'
"""bwrap closes what it is told to read; anything else would be open in the command."""
_STEP_S = 0.02
_LINGER = (
    # The shell's own messages about how the command ended are not wanted, so its error output is its own.
    'trap : INT QUIT TERM HUP; exec 8>&2 2>/dev/null; (exec "$@" 2>&8 8>&-); code=$?; exec >&- 8>&-; step=0; '
    "while set -- /proc/[0-9]*; [ $# -gt 2 ] && [ $step -lt {steps} ]; do "
    "step=$((step + 1)); command -p sleep {step_s}; done; "
    "for place; do case ${place#/proc/} in 1 | $$) ;; "
    r"""*) read -r name < "$place/comm" && printf 'left=%s\0' "$name" > /proc/self/fd/{fd} ;; esac; done; exit $code"""
)
"""Runs the command and waits for what it leaves running. When the first process of a sandbox's own process namespace
ends, which bwrap sees to when the command does, the kernel kills all others. The two that always run are that first
process and this shell. The descriptor may have two digits, which dash takes only as a path."""
PRIVATE_SIZE = str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4)
"""Bytes of memory that a private folder may take."""


class Bubblewrap(Sandbox):
    """`binary` is a bwrap that was tried and works. `scratch` is a folder of Treadle's own, outside any project, for
    the filter and for what is mounted on protected paths that do not exist."""

    level: sandbox.Level = "bubblewrap"

    def __init__(
        self, binary: str, scratch: str, *, views: bool = False, lays: bool = False, nested: bool = False,
        launcher: Launcher | None = None,
    ) -> None:  # fmt: skip
        self._binary, self._scratch, self._nested = binary, scratch, nested
        self.views, self.lays, self._launcher, self._filter = views, lays, launcher or Launcher(), b""
        # One small file for each path that is held by a command just now, and so exists only seemingly.
        self._notes = os.path.join(scratch, "held")

    def wrap(self, argv: Sequence[str], confinement: Confinement, cwd: str) -> list[str]:
        _check_confinement(confinement)
        missing: list[str] = []
        listening_sockets = list_listening_sockets()
        folders, sockets = self._find_sockets(confinement, listening_sockets)
        sockets = [path for path in sockets if path not in confinement.covered_sockets]
        mounts = [
            *self._list_outside_mounts(confinement),
            *((folder, _make_overlay(folder, "--remount-ro", folder)) for folder in folders),
            *((path, ["--bind", path, path]) for path in confinement.writable),
            *self._hold_protected_paths(confinement, missing),
            (confinement.root, self._make_root_mount(confinement)),
        ]
        if isinstance(confinement.mount, Live):
            mounts += [
                (each.path, ["--overlay-src", each.path, "--overlay", each.upper, each.work, each.path])
                for each in confinement.mount.layers
            ]
        mounts += [*self._list_home_mounts(confinement, listening_sockets), *_hide_paths(confinement)]
        # An empty file in the place of each secret: a program that reads one goes on without it. A mount changes
        # nothing in the layer of a view, so the file is no part of the command's effect.
        mounts += [(path, ["--ro-bind", self._write("instead/empty", b""), path]) for path in confinement.secrets]
        words = [self._binary, *ALWAYS]
        words += [] if self._nested else ["--disable-userns"]
        words += [] if isinstance(confinement.network, sandbox.AllHosts) else ["--unshare-net"]
        words += [] if confinement.terminal else ["--new-session"]
        words += ["--ro-bind", "/", "/"]
        for _, mount in sorted(mounts, key=lambda each: each[0].rstrip("/").count("/")):
            words += mount
        mounted = len(words)
        words += ["--sync-fd", str(ALIVE_FD)] if missing else []
        words += ["--info-fd", str(INFO_FD), "--block-fd", str(GO_FD)] if isinstance(confinement.network, Hosts) else []
        words += ["--seccomp", _FILTER_FD, "--chdir", cwd, "--", *self._prepare_argv(argv, confinement)]
        self._filter = self._filter or assemble(Filter())
        filter_file = self._write_content("filter", self._filter)
        line = ["/bin/sh", "-c", _OPEN_FILTER, filter_file, *words]
        if gitconfig := confinement.home.gitconfig.encode() if confinement.home else b"":
            line = ["/bin/sh", "-c", _OPEN_FILES, filter_file, self._write_content("gitconfig", gitconfig), *words]
        if sockets:
            at = len(line) - len(words) + mounted
            line = self._launcher.build_line("become.cover", {"paths": sockets, "at": at}, line)
        if isinstance(network := confinement.network, Hosts):
            spec = {"patterns": list(network.patterns), "log": network.log, "port": sandbox.PROXY_PORT}
            line = self._launcher.build_line("handover", spec, line)
        if missing:
            line = self._make_hold_line(confinement, missing, line)
        world = confinement.world
        if world is not None and world.holder and confinement.mount in (Direct(), Unwritable(live=True)):
            return wrap_in_world(self._launcher, line, world, "/")
        return line

    def list_sockets_to_cover(self, confinement: Confinement) -> tuple[str, ...]:
        return tuple(self._find_sockets(confinement, list_listening_sockets())[1])

    def _prepare_argv(self, argv: Sequence[str], confinement: Confinement) -> Sequence[str]:
        """Abstract sockets belong to the network: with that of the machine, only Landlock keeps a command from them."""
        if confinement.report_fd:
            script = _LINGER.replace("{fd}", str(confinement.report_fd)).replace("{step_s}", str(_STEP_S))
            script = script.replace("{steps}", str(round(sandbox.LINGER_S / _STEP_S)))
            argv = [*_linger_shell(), "-c", script, "sh", *argv]
        if not isinstance(confinement.network, sandbox.AllHosts) or landlock.read_version() < landlock.SCOPES:
            return argv
        return self._launcher.build_line("become.refuse_abstract_sockets", {}, argv)

    def tidy(self) -> None:
        if os.path.isdir(self._notes):
            with suppress(OSError):
                Holder(self._notes).sweep()

    def _list_outside_mounts(self, confinement: Confinement) -> Iterable[Mount]:
        yield "/dev", ["--dev", "/dev"]
        # /proc also has settings of the whole machine, which root may write without any capability: mount it read-only.
        yield "/proc", ["--proc", "/proc", "--remount-ro", "/proc"]
        for path in ("/tmp", "/dev/shm"):
            yield path, ["--perms", "1777", "--size", PRIVATE_SIZE, "--tmpfs", path]
        for folder in SOCKET_FOLDERS:
            if _read_kind(folder) == stat.S_IFDIR:
                yield folder, ["--tmpfs", folder]
        covered = {path for path in list_python_folders() if is_below(path, "/tmp")}
        for path in (*PROGRAMS, *covered, *(NAME_SERVERS if isinstance(confinement.network, sandbox.AllHosts) else ())):
            if os.path.exists(path):
                yield path, ["--ro-bind", path, path]

    def _find_sockets(self, confinement: Confinement, sockets: Iterable[str]) -> tuple[list[str], list[str]]:
        """The folders to cover so that daemons outside the project cannot be reached, and the sockets for which there
        is no such folder. On a view those inside the project lead nowhere, too."""
        open_folders = (confinement.root, *confinement.writable, "/dev", "/proc", *SOCKET_FOLDERS)
        visible = (path for path in sockets if _is_visible(confinement, path))
        reached = [path for path in visible if not any(is_below(path, folder) for folder in open_folders)]
        mounts = list_mount_points() if reached and self.views else ()
        device = os.stat(self._scratch).st_dev
        folders = {path: find_settled_folder(path, device, mounts) if self.views else "" for path in reached}
        return sorted({*folders.values()} - {""}), sorted(path for path, folder in folders.items() if not folder)

    def _list_home_mounts(self, confinement: Confinement, listening_sockets: Iterable[str]) -> Iterable[Mount]:
        home = confinement.home
        if home is None:
            return
        for path in home.covered:
            yield path, ["--perms", "0755", "--size", PRIVATE_SIZE, "--tmpfs", path]
        for path in home.visible:
            daemons = self._can_overlay(path) and any(is_below(each, path) for each in listening_sockets)
            yield path, _make_overlay(path, "--remount-ro", path) if daemons else ["--ro-bind-try", path, path]
        for path in home.caches:
            yield path, _make_overlay(path) if self._can_overlay(path) else ["--ro-bind-try", path, path]
        if home.gitconfig:
            place = f"{home.path}/.gitconfig"
            yield place, ["--perms", "0644", "--file", _GITCONFIG_FD, place]

    def _can_overlay(self, path: str) -> bool:
        """True if the folder is on the device on which views were tried."""
        with suppress(OSError):
            return self.views and os.path.isdir(path) and os.stat(path).st_dev == os.stat(self._scratch).st_dev
        return False

    def _make_root_mount(self, confinement: Confinement) -> list[str]:
        root, world = confinement.root, confinement.world or WorldMount()
        source = world.folder or root
        layers = [word for layer in (source, *world.layers) for word in ("--overlay-src", layer)]
        match confinement.mount:
            case Direct():
                return ["--bind", source, root]
            case Unwritable(live=live):
                return [*layers, "--ro-overlay", root] if world.layers and not live else ["--ro-bind", source, root]
            case View(upper=upper, work=work, is_premounted=laid):
                if not self.views:
                    raise SandboxError(
                        "a copy-on-write view of the project does not work with this bubblewrap or kernel"
                    )
                return ["--bind", sandbox.LAID, root] if laid else [*layers, "--overlay", upper, work, root]
            case Live():
                if not self.views or confinement.world is not None:
                    raise SandboxError("a live view of the project does not work here")
                return ["--ro-bind", root, root]

    def _hold_protected_paths(self, confinement: Confinement, missing: list[str]) -> Iterable[Mount]:
        """Yield the mounts that hold protected paths; paths that do not exist are added to `missing`."""
        if isinstance(confinement.mount, Unwritable | Live):
            return
        between: set[str] = set()
        for protected_path in confinement.protected:
            path = self._find_path_to_hold(confinement, protected_path)
            between.update(list_folders_between(confinement.root, path))
            if _read_kind(path) and not self._is_held(path):
                yield path, ["--ro-bind", path, path]
            elif isinstance(confinement.mount, Direct) and path not in missing:
                missing.append(path)
                yield path, ["--ro-bind", self._make_stand_in(path), path]
        if isinstance(confinement.mount, Direct):  # a folder of an overlay's lower layer cannot be renamed anyway
            for folder in between:
                yield folder, ["--bind", folder, folder]

    def _find_path_to_hold(self, confinement: Confinement, protected_path: str) -> str:
        """Return the path that must be held to protect a path: itself, or the first entry on its way that is not a
        folder. A link cannot be held; then it is the folder that contains the link."""
        root = confinement.root
        for step in (*list_folders_between(root, protected_path), protected_path):
            kind = _read_kind(step)
            if kind == stat.S_IFLNK and os.path.dirname(step) == root:
                raise SandboxError(
                    f"{step} is a link on the way to {protected_path}, and a link cannot be protected from "
                    "being replaced; make it a folder, or let commands run with sandbox = none"
                )
            if kind == stat.S_IFLNK:
                return os.path.dirname(step)
            if kind != stat.S_IFDIR or self._is_held(step):
                return step
        return protected_path

    def _make_hold_line(self, confinement: Confinement, missing: Sequence[str], line: Sequence[str]) -> list[str]:
        world = confinement.world or WorldMount()
        # In the namespace of a world the same path is another place: only a sweep in that namespace finds it.
        notes = f"{self._notes}-{_hash_path(world.holder)}" if world.holder else self._notes
        os.makedirs(notes, mode=0o700, exist_ok=True)
        held_paths = [map_to_copy(world, confinement.root, path) for path in missing]
        places = [[_hash_path(path), path, STAND_INS.get(os.path.basename(path))] for path in held_paths]
        return self._launcher.build_line("hold", {"notes": notes, "places": places}, line)

    def _is_held(self, path: str) -> bool:
        return os.path.exists(os.path.join(self._notes, _hash_path(path)))

    def _make_stand_in(self, path: str) -> str:
        name = os.path.basename(path)
        if name in STAND_INS:
            return self._write(f"instead/{name}", STAND_INS[name])
        source = os.path.join(self._scratch, "instead", "folder")
        os.makedirs(source, mode=0o755, exist_ok=True)
        return source

    def _write_content(self, kind: str, content: bytes) -> str:
        return self._write(f"{kind}-{sha256(content).hexdigest()[:16]}", content)

    def _write(self, name: str, content: bytes) -> str:
        """Write a file below the scratch folder, once and whole: several threads and processes may do so at a time."""
        path = os.path.join(self._scratch, name)
        if not os.path.exists(path):
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            replace_file(path, content, mode=0o644, fault="sandbox.file_written")
        return path


@cache
def _linger_shell() -> tuple[str, ...]:
    """dash starts in half the time of bash. `-p`: bash must not run the startup files that the environment names."""
    bash = shutil.which("bash")
    if bash is None or os.path.basename(os.path.realpath("/bin/sh")) == "dash":
        return ("/bin/sh",)
    return bash, "-p"


def _make_overlay(folder: str, *more: str) -> list[str]:
    """Writing there succeeds, and is forgotten."""
    return ["--overlay-src", folder, "--tmp-overlay", folder, *more]


def _check_confinement(confinement: Confinement) -> None:
    inner = (*confinement.protected, *confinement.hidden_paths, *confinement.secrets, *confinement.writable)
    for path in (confinement.root, *inner):
        if not os.path.isabs(path) or os.path.normpath(path) != path:
            raise SandboxError(f"{path!r} is no absolute path without detours; a sandbox cannot be made of it")
    for path in confinement.protected:
        if not is_below(path, confinement.root) or path == confinement.root:
            raise SandboxError(f"{path} is not inside the project {confinement.root}; only what is can be protected")


def _hide_paths(confinement: Confinement) -> Iterable[Mount]:
    """Mounts that hide paths: an empty folder, or a device that cannot be opened; none below a private folder."""
    home = confinement.home
    for hidden_path in (*confinement.hidden_paths, *(home.keys if home else ())):
        path = os.path.realpath(hidden_path)
        if not _is_visible(confinement, path):
            continue
        match _read_kind(path):
            case stat.S_IFDIR:
                yield path, ["--perms", "0500", "--tmpfs", path, "--remount-ro", path]
            case 0:
                continue
            case _:
                yield path, ["--ro-bind", "/dev/null", path]


def _is_visible(confinement: Confinement, path: str) -> bool:
    """True if the sandbox shows a path: it is not below a private folder, or it is one of the paths shown there."""
    home = confinement.home
    private = ("/tmp", *(home.covered if home else ()))
    visible_folders = (confinement.root, *confinement.writable, *(home.visible + home.caches if home else ()))
    return not any(is_below(path, each) for each in private) or any(is_below(path, each) for each in visible_folders)


def _read_kind(path: str) -> int:
    """Return the type of the entry at the path, links not followed; 0 if there is none."""
    with suppress(OSError):
        return stat.S_IFMT(os.lstat(path).st_mode)
    return 0


def _hash_path(path: str) -> str:
    return sha256(os.fsencode(path)).hexdigest()[:24]


_SETTLED = 2  # Folders this deep (/var/lib, /opt/name) do not come and go


def list_listening_sockets() -> set[str]:
    """Listening sockets with a name in the file system, also very new ones: the ways to daemons."""
    try:
        lines = Path("/proc/net/unix").read_bytes().splitlines()[1:]
    except OSError:
        return set()
    rows = (line.split(None, 7) for line in lines)
    named = {row[6].decode(): os.fsdecode(row[7]) for row in rows if len(row) == 8 and row[7][:1] != b"@"}
    relative = {number: name for number, name in named.items() if name[:1] != "/"}
    owner_paths = (
        os.path.normpath(os.path.join(folder, relative[number])) for number, folder in _find_owners(relative)
    )
    names = {*named.values(), *owner_paths} - {*relative.values()}
    return {name for name in names if _read_kind(name) == stat.S_IFSOCK}


def _find_owners(sockets: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the folder of each process that has one of these sockets: a relative name is bound in such a folder. Left
    out are processes of other users, and a daemon that went to another folder afterwards leads to no socket."""
    for process in Path("/proc").glob("[0-9]*") if sockets else ():
        with suppress(OSError):
            targets = [os.readlink(each) for each in (process / "fd").iterdir()]
            owned = {target[8:-1] for target in targets if target.startswith("socket:[")}.intersection(sockets)
            yield from ((number, os.readlink(process / "cwd")) for number in owned)


def list_mount_points() -> tuple[str, ...]:
    with suppress(OSError):
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
        return tuple(os.fsdecode(line.split(None, 5)[4]) for line in lines)
    return ()


def find_settled_folder(path: str, device: int, mounts: tuple[str, ...]) -> str:
    """The outermost lasting folder on the way to a path, on this device and without other mounts; empty if none. It is
    covered in the place of a socket, which could vanish before it is covered and keep the command from starting. Seen
    through an overlay, a socket is another file than the one that its daemon listens at: a connection is refused, and
    so is one to a socket that is made there later."""
    with suppress(OSError):
        for folder in list_folders_between("/", path):
            fits = folder.count("/") >= _SETTLED and os.stat(folder).st_dev == device
            if fits and not any(mount.startswith(f"{folder}/") for mount in mounts):
                return folder
    return ""
