"""A folder for files that are ready and not yet in their places: on the file system of the project, so that nothing is
left to be done but to rename them; outside the project where that can be.

An entry that is replaced or removed comes to the stage and is looked at there. If it is not the one that the caller has
looked at, somebody saved it in between, and it goes back to its place. After a crash between the two steps it is still
on the stage (`restore_save`)."""

import errno
import os
import stat as st
from contextlib import suppress
from typing import NamedTuple, Self

from msgspec.structs import replace

from treadle.adapters.workspace.history.states import hold_file, matches_state, read_state
from treadle.adapters.workspace.paths.durable import Freeing, Syncing, copy_bytes, make_private_folder, make_temp_name
from treadle.adapters.workspace.paths.entries import LIST, exchange_entries, hold_fd, lstat
from treadle.base.file_system import reach_faultpoint
from treadle.protocol.files import FileChange, FileState, decode_path

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ORIGIN = "user.overlay.origin"  # Where a file that is adopted from a view came from
_HARMLESS = {_ORIGIN, "security.selinux"}  # Attributes of an adopted file; others would not be carried over
_LIST = "system.posix_acl_"
_CANNOT_LINK = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES, errno.ENOSPC, errno.EDQUOT}
_MOST_RETURNS = 9  # So often an entry is put back that is saved once more at each of these moments


class KnownEntry(NamedTuple):
    """An entry that may be replaced or removed: as it was when it was last looked at, and as it is recorded."""

    status: os.stat_result
    state: FileState


class StagingFolder:
    """The stage of one set of changes, by its name. It outlives the process, and is found again by the next. `root` is
    a descriptor of the project, `home` a folder outside."""

    def __init__(self, root: int, home: str, key: str) -> None:
        self._root, self._home, self._key, self._name = root, home, key, make_temp_name("stage", key)
        self._fd, self._again = -1, True
        # Staged files that overlayfs copied up from the file they will replace, without an access control list.
        self._listless: set[str] = set()

    def open(self, *, new: bool = False) -> None:
        """As an earlier process left it; or empty, if it is `new`."""
        if new:
            self.remove()
        self._again = not new
        if self._fd < 0:
            make_private_folder(self._home)
            with hold_fd(os.open(self._home, LIST)) as home:
                is_same_mount = _mount(home) is not None and _mount(home) == _mount(self._root)
                parent = home if is_same_mount else self._root
                with suppress(FileExistsError):
                    os.mkdir(self._name, 0o700, dir_fd=parent)
                self._fd = os.open(self._name, LIST, dir_fd=parent)
        self._sync = Syncing(self._fd)

    def find_entries(self) -> list[str]:
        """Open the stage that an earlier process left, if there is one: the names in it."""
        with suppress(FileNotFoundError), hold_fd(os.open(self._home, LIST)) as home:
            for parent in (self._root, home):
                with suppress(FileNotFoundError):
                    self._fd = os.open(self._name, LIST, dir_fd=parent)
                    return os.listdir(self._fd)
        return []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def remove(self) -> None:
        self.close()
        _remove(self._root, self._name)
        with suppress(FileNotFoundError), hold_fd(os.open(self._home, LIST)) as home:
            _remove(home, self._name)

    def has_entry(self, name: str) -> bool:
        return self._again and lstat(self._fd, name) is not None

    def add_file(self, name: str, source: int, state: FileState, mtime_ns: int, old: os.stat_result | None) -> None:
        """A file with the bytes of `source` and the owner of the old one. On a reused stage it is named when whole."""
        half = f"{name}.half" if self._again else name
        with suppress(FileNotFoundError):
            os.unlink(half, dir_fd=self._fd)
        with hold_fd(os.open(half, _NEW, 0o600, dir_fd=self._fd)) as fd:
            copy_bytes(source, fd)
            if old is not None and (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                with suppress(PermissionError):  # only root may give files away
                    os.fchown(fd, old.st_uid, old.st_gid)
            os.fchmod(fd, state.mode)
            if mtime_ns:
                os.utime(fd, ns=(mtime_ns, mtime_ns))
            if half == name and state.mode & st.S_IRUSR:
                self._sync.add_file(name, self._fd)
            else:  # it is taken for whole by its name, or cannot be opened again
                os.fsync(fd)
            if half != name:
                os.rename(half, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def adopt(self, name: str, folder: int, source: str, state: FileState, old: os.stat_result | None) -> bool:
        """Stage the file itself that has this name in a folder (by a hard link) instead of a copy; no process writes to
        it any more. False if the file is not exactly the wanted one, or cannot be linked."""
        try:
            status = os.stat(source, dir_fd=folder, follow_symlinks=False)
            owner = (os.geteuid(), os.getegid()) if old is None else (old.st_uid, old.st_gid)
            fits = st.S_ISREG(status.st_mode) and status.st_nlink == 1 and (status.st_uid, status.st_gid) == owner
            if not fits or st.S_IMODE(status.st_mode) != state.mode or not state.mode & st.S_IRUSR:
                return False
            attributes = os.listxattr(f"/proc/self/fd/{folder}/{source}", follow_symlinks=False)
            if not _HARMLESS.issuperset(attributes):
                return False
            os.link(source, name, src_dir_fd=folder, dst_dir_fd=self._fd, follow_symlinks=False)
        except OSError:
            return False
        self._sync.add_file(name, self._fd)
        if _ORIGIN in attributes:
            self._listless.add(name)
        return True

    def add_link(self, name: str, state: FileState) -> None:
        os.symlink(decode_path(state.target), name, dir_fd=self._fd)

    def add_fifo(self, name: str, state: FileState) -> None:
        half = f"{name}.half"
        os.mkfifo(half, 0o600, dir_fd=self._fd)
        os.chmod(half, state.mode, dir_fd=self._fd)
        os.rename(half, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def sync(self, *, names: bool = True) -> int | None:
        """Make it last. The file system that was synced as a whole for it, if one was."""
        synced_device = self._sync.sync_data()
        if names and synced_device is None:
            os.fsync(self._fd)
        return synced_device

    def put(self, name: str, folder: int, goal: str, old: KnownEntry | None) -> bool:
        """Give a ready entry its name, which has the `old` entry: False if it has another one now, which stays. Without
        `old` the name is new: FileExistsError if something has it."""
        with suppress(OSError, AttributeError):  # most have none, some systems know none
            os.removexattr(f"/proc/self/fd/{self._fd}/{name}", _ORIGIN, follow_symlinks=False)
        _inherit_group(self._fd, name, folder)
        if old is None or name not in self._listless:
            _inherit_list(self._fd, name, folder, "" if old is None else goal)
        try:
            if old is not None:
                return self._replace(name, folder, goal, old)
            _put(self._fd, name, folder, goal, new=True)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            # Another file system is mounted there.
            temp = make_temp_name(goal, self._key)
            with suppress(FileNotFoundError):
                os.unlink(temp, dir_fd=folder)
            try:
                self._copy_entry(name, folder, temp)
                _put(folder, temp, folder, goal, new=old is None)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temp, dir_fd=folder)
        return True

    def _replace(self, name: str, folder: int, goal: str, old: KnownEntry) -> bool:
        inside = _identify(lstat(self._fd, name))
        if not exchange_entries(self._fd, name, folder, goal):
            os.rename(name, goal, src_dir_fd=self._fd, dst_dir_fd=folder)
            return True
        reach_faultpoint("transaction.exchanged")
        if self._drop(name, old):
            return True
        for _ in range(_MOST_RETURNS):
            returned = _identify(lstat(self._fd, name))
            try:
                exchange_entries(self._fd, name, folder, goal)
            except FileNotFoundError:  # our entry was removed or renamed meanwhile
                self._put_back(name, folder, goal)
                break
            if _identify(lstat(self._fd, name)) == inside:
                break
            inside = returned  # it was saved once more: the newest save belongs there
        return False

    def remove_entry(self, name: str, folder: int, goal: str, old: KnownEntry) -> bool:
        """Remove the `old` entry: False if there is another one now, which stays."""
        try:
            os.rename(goal, name, src_dir_fd=folder, dst_dir_fd=self._fd)
        except FileNotFoundError:
            raise
        except OSError:  # another file system is mounted there, or the disk is full
            os.unlink(goal, dir_fd=folder)
            return True
        reach_faultpoint("transaction.taken")
        if self._drop(name, old):
            return True
        self._put_back(name, folder, goal)
        return False

    def _drop(self, name: str, old: KnownEntry) -> bool:
        """Remove an entry that came out of the project if it is the `old` one."""
        is_old = _identify(lstat(self._fd, name)) == _identify(old.status) or matches_state(self._fd, name, old.state)
        if is_old:
            os.unlink(name, dir_fd=self._fd)
        return is_old

    def _put_back(self, name: str, folder: int, goal: str) -> None:
        try:
            _put(self._fd, name, folder, goal, new=True)
        except FileExistsError:  # it was saved once more: the newest save stays
            self._set_aside(name, folder, goal)

    def _set_aside(self, name: str, folder: int, goal: str) -> None:
        """Clear the name of a save that has a newer one in its place; a folder gets another name beside it."""
        try:
            os.unlink(name, dir_fd=self._fd)
        except (IsADirectoryError, PermissionError):
            beside = os.fsdecode(os.fsencode(goal)[:220]) + f".saved-{os.urandom(4).hex()}"
            os.rename(name, beside, src_dir_fd=self._fd, dst_dir_fd=folder)

    def restore_save(self, name: str, folder: int, goal: str, change: FileChange) -> None:
        """After a crash: put an entry back that came out of the project and was not looked at."""
        state, new_state = _read_state(self._fd, name), change.after
        if state is None or _has_content(state, new_state):
            return  # nothing, or ready for its place
        if state == change.before:
            os.unlink(name, dir_fd=self._fd)
        elif lstat(folder, goal) is None:
            self._put_back(name, folder, goal)
        elif _has_content(_read_state(folder, goal), new_state):
            if not exchange_entries(self._fd, name, folder, goal):
                os.rename(name, goal, src_dir_fd=self._fd, dst_dir_fd=folder)
        else:
            self._set_aside(name, folder, goal)

    def _copy_entry(self, name: str, folder: int, goal: str) -> None:
        status = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        if st.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(name, dir_fd=self._fd), goal, dir_fd=folder)
        elif st.S_ISFIFO(status.st_mode):
            os.mkfifo(goal, 0o600, dir_fd=folder)
            os.chmod(goal, st.S_IMODE(status.st_mode), dir_fd=folder)
        else:
            with hold_file(self._fd, name) as source, hold_fd(os.open(goal, _NEW, 0o600, dir_fd=folder)) as fd:
                copy_bytes(source, fd)
                os.fchmod(fd, st.S_IMODE(status.st_mode))
                os.utime(fd, ns=(status.st_mtime_ns, status.st_mtime_ns))
                os.fsync(fd)


def _has_content(state: FileState | None, expected: FileState | None) -> bool:
    """True if a state is the expected one except for its mode."""
    return state is not None and expected is not None and replace(state, mode=expected.mode) == expected


def _read_state(folder: int, name: str) -> FileState | None:
    try:
        return read_state(folder, name)
    except PermissionError:  # neither the recorded entry nor ours: both can be read
        return FileState("other")


def _put(source: int, name: str, folder: int, goal: str, *, new: bool) -> None:
    if new:
        try:
            os.link(name, goal, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _CANNOT_LINK:
                raise
        else:
            os.unlink(name, dir_fd=source)
            return
        if lstat(folder, goal) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), goal)
    os.rename(name, goal, src_dir_fd=source, dst_dir_fd=folder)


def _identify(status: os.stat_result | None) -> tuple[int, ...] | None:
    """The values by which an entry is recognized that was renamed, which changes its ctime."""
    if status is None:
        return None
    return (status.st_ino, status.st_dev, status.st_mode, status.st_size, status.st_mtime_ns)


def _inherit_group(stage: int, name: str, folder: int) -> None:
    """Set the group of a staged entry if its new folder passes its group on."""
    above = os.fstat(folder)
    if not above.st_mode & st.S_ISGID:
        return
    status = os.stat(name, dir_fd=stage, follow_symlinks=False)
    if status.st_gid != above.st_gid and status.st_uid == os.geteuid():
        with suppress(PermissionError):
            os.chown(name, -1, above.st_gid, dir_fd=stage, follow_symlinks=False)
            if not st.S_ISLNK(status.st_mode):  # which may have taken bits of the mode away
                os.chmod(name, st.S_IMODE(status.st_mode), dir_fd=stage)


def _inherit_list(stage: int, name: str, folder: int, goal: str) -> None:
    """The access control list of what is replaced; of something new the one that its folder gives. Most have none."""
    there, kind = (f"/{goal}", "access") if goal else ("", "default")
    with suppress(OSError, AttributeError):
        acl = os.getxattr(f"/proc/self/fd/{folder}{there}", f"{_LIST}{kind}", follow_symlinks=not goal)
        mode = st.S_IMODE(os.stat(name, dir_fd=stage, follow_symlinks=False).st_mode)
        os.setxattr(f"/proc/self/fd/{stage}/{name}", f"{_LIST}access", acl, follow_symlinks=False)
        os.chmod(name, mode, dir_fd=stage)


def _mount(fd: int) -> str | None:
    """On which mount a folder lies: only inside one can be renamed."""
    with suppress(OSError), open(f"/proc/self/fdinfo/{fd}") as file:
        return next((line for line in file if line.startswith("mnt_id:")), None)
    return None


def _remove(folder: int, name: str) -> None:
    try:
        fd = os.open(name, LIST, dir_fd=folder)
    except OSError:
        return
    with Freeing() as freeing, hold_fd(fd):
        for each in os.listdir(fd):
            freeing.hold(each, fd)
            os.unlink(each, dir_fd=fd)
        freeing.hold(name, folder)
        os.rmdir(name, dir_fd=folder)
