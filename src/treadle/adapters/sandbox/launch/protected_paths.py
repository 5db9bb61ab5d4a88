"""Restores protected paths as they were when a command has ended. For Landlock, which can only allow access to a folder
and not withdraw it for a path below. Restored paths are reported, and what the command had put there is set aside, not
lost."""

import os
import stat

from treadle.base.file_system import folders_between

LIMIT = 32 << 20
"""How many bytes of protected files are remembered; more is refused before anything runs."""


class TooLarge(Exception):
    """The protected files are too large to be remembered."""


class SavedPath:
    """One path with all beneath it, as it is now: nothing, a link, a file or a folder. Links are never followed."""

    def __init__(self, path: str, room: list[int]) -> None:
        self.path = path
        self.mode = 0
        self.data: bytes | str | dict[str, SavedPath] | None = None
        try:
            status = os.lstat(path)
        except OSError:
            return
        self.mode = status.st_mode
        if stat.S_ISLNK(self.mode):
            self.data = os.readlink(path)
        elif stat.S_ISREG(self.mode):
            room[0] -= status.st_size
            if room[0] < 0:
                raise TooLarge(path)
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                self.data = file.read()
        elif stat.S_ISDIR(self.mode):
            room[0] -= 100
            names = sorted(os.listdir(path))
            self.data = {name: SavedPath(f"{path}/{name}", room) for name in names}

    def is_same_as(self, other_path: "SavedPath") -> bool:
        if self.mode != other_path.mode or type(self.data) is not type(other_path.data):
            return False
        if isinstance(self.data, dict) and isinstance(other_path.data, dict):
            mine, theirs = self.data, other_path.data
            return mine.keys() == theirs.keys() and all(mine[name].is_same_as(theirs[name]) for name in mine)
        return self.data == other_path.data

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
        self._root = root
        room = [LIMIT]
        missing_paths = (
            next((folder for folder in folders_between(root, path) if not _is_folder(folder)), path) for path in paths
        )
        self._kept = [SavedPath(path, room) for path in dict.fromkeys(missing_paths)]

    def restore(self, aside: str) -> list[str]:
        """Put back what changed; gives the paths. Only to be called when nothing of the command is left alive."""
        changed_paths = []
        for saved_path in self._kept:
            reachable = all(_is_folder(folder) for folder in folders_between(self._root, saved_path.path))
            if not reachable or not saved_path.is_same_as(SavedPath(saved_path.path, [1 << 62])):
                changed_paths.append(saved_path.path)
                self._put_back(saved_path, aside)
        return changed_paths

    def _put_back(self, saved_path: SavedPath, aside: str) -> None:
        for folder in folders_between(self._root, saved_path.path):
            if not _is_folder(folder):
                _set_aside(folder, aside)
                if saved_path.data is not None:
                    os.mkdir(folder, 0o755)
        _set_aside(saved_path.path, aside)
        if saved_path.data is not None:
            saved_path.write(saved_path.path)


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _set_aside(path: str, aside: str) -> None:
    """Out of the way, into a folder where it can be looked at."""
    if not os.path.lexists(path):
        return
    os.makedirs(aside, 0o700, exist_ok=True)
    target = f"{aside}/{os.urandom(6).hex()}-{os.path.basename(path)}"
    try:
        os.rename(path, target)
    except OSError:  # another file system
        SavedPath(path, [1 << 62]).write(target)
        _remove(path)


def _remove(path: str) -> None:
    if _is_folder(path):
        for name in os.listdir(path):
            _remove(f"{path}/{name}")
        os.rmdir(path)
    else:
        os.unlink(path)
