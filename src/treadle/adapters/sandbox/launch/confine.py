"""Runs one command under Landlock and a filter of system calls, and stays beside it: answers the filter's requests,
ends all processes that the command leaves behind, and restores protected paths."""

import _socket  # the C module that `socket` wraps, without the imports of `socket`
import errno
import marshal
import os
import select
import stat
import sys
import time

from treadle.adapters.sandbox.launch.file_metadata import MetadataServer
from treadle.adapters.sandbox.launch.processes import (
    descendants,
    end_as,
    end_descendants,
    heed_broken_pipes,
    pass_signals_to,
)
from treadle.adapters.sandbox.launch.protected_paths import ProtectedPaths, TooLarge
from treadle.adapters.sandbox.launch.system import (
    CANNOT,
    Ruleset,
    adopt_orphans,
    die_with_parent,
    give_up_privileges,
    load_filter,
)
from treadle.base.file_system import is_below
from treadle.base.process_folders import process_folder_prefix

NOT_FOUND = 127
_STEP_MS = 20
HOME = "home"
"""In the command's private folder, where it has an empty home."""


class Spec:
    """The confinement, as `treadle.adapters.sandbox.landlock` encoded it."""

    def __init__(self, word: str) -> None:
        fields = marshal.loads(bytes.fromhex(word))
        self.root: str = fields["root"]
        self.root_writable: bool = fields["root_writable"]
        self.cwd: str = fields["cwd"]
        self.kept: list[str] = fields["kept"]
        self.aside: str = fields["aside"]
        self.hidden: list[str] = fields["hidden"]
        self.visible: list[str] = fields["visible"]
        self.gitconfig: bytes | None = fields["gitconfig"]
        self.devices: list[str] = fields["devices"]
        self.writable: list[str] = fields["writable"]
        self.terminal: bool = fields["terminal"]
        self.report_fd: int = fields["report_fd"]
        self.linger_s: float = fields["linger_s"]
        self.filter: bytes = fields["filter"]
        self.chores: dict[int, str] = fields["chores"]
        self.handled: tuple[int, int, int, int] = fields["handled"]
        self.read: int = fields["read"]
        self.write: int = fields["write"]
        self.of_files: int = fields["of_files"]
        self.private: str = f"{fields['temporary']}/{process_folder_prefix()}{os.urandom(6).hex()}"


def main(words: list[str]) -> None:
    spec, argv = Spec(words[0]), words[1:]
    try:
        protected = ProtectedPaths(spec.root, spec.kept)
        os.mkdir(spec.private, 0o700)
        if spec.gitconfig is not None:
            os.mkdir(f"{spec.private}/{HOME}", 0o700)
            with open(f"{spec.private}/{HOME}/.gitconfig", "wb") as file:
                file.write(spec.gitconfig)
        adopt_orphans()
        code = _run(spec, argv)
    except (OSError, TooLarge) as error:
        print(f"treadle: the command could not be confined and did not run: {error}", file=sys.stderr, flush=True)
        os._exit(CANNOT)
    end_descendants()
    try:
        for path in protected.restore(spec.aside):
            text = f"treadle: {path} is protected and was put back as it was; what had become of it is in {spec.aside}"
            print(text, file=sys.stderr, flush=True)
    except OSError as error:
        print(f"treadle: a protected path could not be put back: {error}", file=sys.stderr, flush=True)
        end_as(CANNOT)
    _remove(spec.private)
    end_as(code)


def _run(spec: Spec, argv: list[str]) -> int:
    """The command's exit code; -N if signal N ended it."""
    here, there = _socket.socketpair()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(spec, argv, parent, there)
    there.close()
    pass_signals_to(pid)
    _, extra, _, _ = here.recvmsg(1, _socket.CMSG_LEN(4))
    here.close()
    if not extra:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    listener = int.from_bytes(extra[0][2][:4], sys.byteorder)
    metadata = MetadataServer(listener, spec.chores, [spec.root, spec.private, *spec.writable], spec.kept)
    _attend(pid, listener, metadata)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if spec.report_fd:
        _linger(spec, listener, metadata)
    os.close(listener)
    return code


def _linger(spec: Spec, listener: int, metadata: MetadataServer) -> None:
    """Wait a moment for what the command left running, and report what still runs then."""
    until = time.monotonic() + spec.linger_s
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while time.monotonic() < until:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for _, event in poll.poll(_STEP_MS):
            if event & select.POLLIN:
                metadata.serve()
            else:
                poll.unregister(listener)
    for name in descendants().values():
        os.write(spec.report_fd, b"left=%b\0" % name)


def _become(spec: Spec, argv: list[str], parent: int, there: _socket.socket) -> None:
    """In the child: give everything up, then become the command."""
    try:
        die_with_parent(parent)
        if not spec.terminal:
            os.setsid()
        ruleset = _ruleset(spec)
        os.environ["TMPDIR"] = spec.private
        if spec.gitconfig is not None:
            os.environ["HOME"] = f"{spec.private}/{HOME}"
        os.chdir(spec.cwd)
        give_up_privileges()
        ruleset.enforce()
        listener = load_filter(spec.filter)
        there.sendmsg([b"x"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, listener.to_bytes(4, sys.byteorder))])
        os.close(listener)
        heed_broken_pipes()
        os.execvpe(argv[0], argv, os.environ)
    except OSError as error:
        print(f"treadle: {argv[0]} could not be started: {error}", file=sys.stderr, flush=True)
        os._exit(NOT_FOUND if error.errno == errno.ENOENT else CANNOT)


def _ruleset(spec: Spec) -> Ruleset:
    ruleset = Ruleset(*spec.handled)
    both = spec.read | spec.write
    closed_paths = {path.rstrip("/") for path in spec.hidden}
    readable_paths = _all_but(closed_paths, "")  # in as few rules as can be; and what is visible in the hidden paths
    for top in spec.visible:
        inside = {path for path in closed_paths if is_below(path, top) and path != top}
        readable_paths += _all_but(inside, top) if inside else [top]
    for path in readable_paths:
        _allow(ruleset, spec, path, spec.read)
    for path in (*spec.devices, *spec.writable, spec.private):
        _allow(ruleset, spec, path, both)
    _allow(ruleset, spec, spec.root, both if spec.root_writable else spec.read)
    return ruleset


def _allow(ruleset: Ruleset, spec: Spec, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # gone, or not to be reached by this user anyway
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISLNK(mode):  # the target of a link has a rule of its own, or none
            ruleset.allow(fd, rights if stat.S_ISDIR(mode) else rights & spec.of_files)
    finally:
        os.close(fd)


def _all_but(closed_paths: set[str], top: str) -> list[str]:
    """Return the paths below a folder, without the closed ones: the siblings of each closed path and of its parents."""
    open_folders: set[str] = set()
    for path in closed_paths:
        parts = path.split("/")
        open_folders.update("/".join(parts[:at]) for at in range(1, len(parts)))
    open_paths = []
    for folder in open_folders:
        if is_below(f"{folder}/", f"{top}/") and not any(is_below(folder, each) for each in closed_paths):
            try:
                paths = [f"{folder}/{name}" for name in os.listdir(folder or "/")]
            except OSError:
                continue
            open_paths += [path for path in paths if path not in closed_paths and path not in open_folders]
    return open_paths


def _attend(pid: int, listener: int, metadata: MetadataServer) -> None:
    """Answer questions until the command has ended."""
    pidfd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(listener, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        if pidfd in ready:
            break
        if ready[listener] & select.POLLIN:
            metadata.serve()
        else:
            poll.unregister(listener)
    os.close(pidfd)


def _remove(folder: str) -> None:
    """The command's private folder, as far as it lets itself be removed; links in it are not followed."""
    for _, folders, files, fd in os.fwalk(folder, topdown=False, follow_symlinks=False):
        for name in (*files, *folders):
            try:
                (os.rmdir if stat.S_ISDIR(os.lstat(name, dir_fd=fd).st_mode) else os.unlink)(name, dir_fd=fd)
            except OSError:
                continue
    try:
        os.rmdir(folder)
    except OSError:
        return
