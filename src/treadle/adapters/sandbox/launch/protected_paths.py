"""Remembers protected paths before a command and restores them after it. Files and folders that the command made there
are hostile input: they may be closed, too deep or too large to be read, and are moved away nevertheless."""

import os
import stat

from treadle.base.file_system import list_folders_between

LIMIT = 32 << 20  # How many bytes of protected files are remembered; more is refused before anything runs
_COPY_LIMIT = 4 << 20  # How many are copied to another file system: the supervisor waits for this only for seconds
_ENTRY = 100  # How many of them each file, folder or link takes beside its content


class TooLarge(Exception):
    """The protected files are too large to be remembered."""


class SavedPath:
    """One path with all beneath it, as it is now: nothing, a link, a file or a folder. Links are never followed."""

    def __init__(self, path: str, room: list[int]) -> None:
        self.path, self.mode = path, 0
        self.data: bytes | str | dict[str, SavedPath] | None = None
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        self.mode = status.st_mode
        room[0] -= _ENTRY + (status.st_size if stat.S_ISREG(self.mode) else 0)
        if room[0] < 0:
            raise TooLarge(path)
        if stat.S_ISLNK(self.mode):
            self.data = os.readlink(path)
        elif stat.S_ISREG(self.mode):
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                self.data = file.read()
        elif stat.S_ISDIR(self.mode):
            with os.scandir(path) as entries:  # one by one: there may be more than there is room for
                self.data = {entry.name: SavedPath(entry.path, room) for entry in entries}

    def is_same_as(self, other: "SavedPath") -> bool:
        if not isinstance(self.data, dict) or not isinstance(other.data, dict):
            return (self.mode, self.data) == (other.mode, other.data)
        mine, theirs = self.data, other.data
        same_names = self.mode == other.mode and mine.keys() == theirs.keys()
        return same_names and all(mine[name].is_same_as(theirs[name]) for name in mine)

    def write(self, path: str) -> None:
        """Make it anew where nothing is."""
        if isinstance(self.data, bytes):
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
                file.write(self.data)
            os.chmod(path, stat.S_IMODE(self.mode))
        elif isinstance(self.data, str):
            os.symlink(self.data, path)
        elif isinstance(self.data, dict):
            os.mkdir(path, 0o700)
            for name, child in self.data.items():
                child.write(f"{path}/{name}")
            os.chmod(path, stat.S_IMODE(self.mode))


class ProtectedPaths:
    """Remembers the protected paths below a root, and restores them. Where a path does not exist, its first missing
    folder is what must not exist afterwards: a `.git` that was made meanwhile would be one with hooks of its own."""

    def __init__(self, root: str, paths: list[str]) -> None:
        self._root, room = root, [LIMIT]
        ways = (
            (*(folder for folder in list_folders_between(root, path) if not _is_folder(folder)), path) for path in paths
        )
        self._kept: list[tuple[SavedPath, int]] = []  # each with the bytes that it takes
        for path in dict.fromkeys(way[0] for way in ways):
            old_room = room[0]
            saved_path = SavedPath(path, room)
            self._kept.append((saved_path, old_room - room[0]))

    def restore(self, aside: str) -> "tuple[list[str], bool]":
        """Put back what changed. Return a message for each changed path, and whether all of them were put back. To be
        called only when nothing of the command is left alive. No file or folder that the command made can prevent this:
        a path that cannot be read counts as changed, and a failure with one path leaves the others to be restored."""
        messages, is_restored = [], True
        for saved_path, size in self._kept:
            try:
                message = self._restore_path(saved_path, size, aside)
            except Exception as error:
                message, is_restored = f"the protected path {saved_path.path} could not be put back: {error}", False
            messages += [message] if message else []
        return messages, is_restored

    def _restore_path(self, saved_path: SavedPath, size: int, aside: str) -> str:
        opened_folders = self._open_folders(saved_path.path)
        try:
            if self._is_unchanged(saved_path, size):
                return ""
            place = self._put_back(saved_path, aside)
        finally:
            for folder, mode in reversed(opened_folders):
                os.chmod(folder, mode)
        return f"{saved_path.path} is protected and was put back as it was; what had become of it is in {place}"

    def _open_folders(self, path: str) -> "list[tuple[str, int]]":
        """Open the folders on the way to a path that the command has closed to their owner. Return their modes."""
        opened_folders = []
        for folder in (self._root, *list_folders_between(self._root, path)):
            if not _is_folder(folder):
                break
            mode = _open_folder(folder)
            if mode is not None:
                opened_folders.append((folder, mode))
        return opened_folders

    def _is_unchanged(self, saved_path: SavedPath, size: int) -> bool:
        try:
            reachable = all(_is_folder(folder) for folder in list_folders_between(self._root, saved_path.path))
            return reachable and saved_path.is_same_as(SavedPath(saved_path.path, [size]))
        except Exception:  # the saved path could be read: this one is closed, or deeper or larger
            return False

    def _put_back(self, saved_path: SavedPath, aside: str) -> str:
        """Return the folder into which the present content was moved."""
        place = aside
        for folder in list_folders_between(self._root, saved_path.path):
            if not _is_folder(folder):
                place = _set_aside(folder, aside)
                if saved_path.data is not None:
                    os.mkdir(folder, 0o755)
        place = _set_aside(saved_path.path, place)
        if saved_path.data is not None:
            saved_path.write(saved_path.path)
        return place


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _open_folder(folder: str) -> int | None:
    """Give this user access to a folder of its own. Return the mode before; None if it did not change."""
    mode = stat.S_IMODE(os.lstat(folder).st_mode)
    if os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return None
    try:
        os.chmod(folder, mode | stat.S_IRWXU)
    except OSError:  # another user's, or on a read-only file system: the command could not change it either
        return None
    return mode


def _set_aside(path: str, aside: str) -> str:
    """Move a path out of the way, into a folder where it can be looked at; return that folder. If that folder is on
    another file system and the path cannot be copied, rename it where it is."""
    if not os.path.lexists(path):
        return aside
    if _is_folder(path):
        _open_folder(path)  # a closed folder cannot be moved
    name = f"{os.urandom(6).hex()}-{os.path.basename(path)}"
    target = f"{aside}/{name}"
    try:
        os.makedirs(aside, 0o700, exist_ok=True)
        os.rename(path, target)
        return aside
    except OSError:  # another file system
        pass
    try:
        SavedPath(path, [_COPY_LIMIT]).write(target)
        _remove_entry(path)
        return aside
    except Exception:  # too large, too deep, or closed
        folder = os.path.dirname(path)
        os.rename(path, f"{folder}/treadle-undone-{name}")
        return folder


def _remove_entry(path: str) -> None:
    if _is_folder(path):
        for name in os.listdir(path):
            _remove_entry(f"{path}/{name}")
        os.rmdir(path)
    else:
        os.unlink(path)
