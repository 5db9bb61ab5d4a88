"""Path and file helpers that several packages share: test if a path lies below a folder, and write a file whole or not
at all; and the fault points at which tests strike. Knows no project and follows no links. The programs beside a command
load it, so it imports nothing else."""

import os
from _collections_abc import Callable

_hook: "Callable[[str], None] | None" = None


def reach_faultpoint(name: str) -> None:
    """A named place where a test may kill, raise or delay: every persistence point and every effect has one."""
    if _hook is not None:
        _hook(name)


def install_fault_hook(hook: "Callable[[str], None] | None") -> None:
    global _hook
    _hook = hook


def list_path_steps(path: str) -> list[str]:
    """A relative path and the folders on its way, the topmost first."""
    names = path.split("/")
    return ["/".join(names[:count]) for count in range(1, len(names) + 1)]


def is_below(path: str, folder: str) -> bool:
    """True if a path is this folder or lies inside it. This compares text: both must be absolute, or relative to the
    same folder, and free of `..` and links; for a security check, pass both through `os.path.realpath` first."""
    return bool(path and folder) and f"{path}/".startswith(folder.rstrip("/") + "/")


def find_path_below(path: str, folder: str) -> str | None:
    """The path relative to the folder, "." for the folder itself; None if it is not below. As `is_below`."""
    return path[len(folder.rstrip("/")) + 1 :].strip("/") or "." if is_below(path, folder) else None


def list_folders_between(root: str, path: str) -> list[str]:
    """The folders below the root that lead to a path, outermost first. As `is_below`."""
    root = root.rstrip("/")
    parts = path[len(root) + 1 :].split("/")[:-1]
    return [f"{root}/{'/'.join(parts[: at + 1])}" for at in range(len(parts))]


def replace_file(path: str, data: bytes, *, sync: bool = False, mode: int = 0o600, fault: str = "") -> None:
    """Replace a file's content atomically: readers see the old bytes or the new ones, with `sync` also after a power
    cut; to make the new ones durable, call `sync_folder` afterwards. `fault`: the fault point before renaming."""
    temp = _write_beside(path, data, sync, mode)
    try:
        if fault:
            reach_faultpoint(fault)
        os.replace(temp, path)
    except BaseException:
        _remove(temp)
        raise


def create_file(path: str, data: bytes, *, sync: bool = False) -> bool:
    """Make a file with these bytes in one step, unless there is one already: then False. `sync` as above."""
    temp = _write_beside(path, data, sync, 0o600)
    try:
        os.link(temp, path)
    except FileExistsError:
        return False
    finally:
        _remove(temp)
    return True


def sync_folder(path: str, dir_fd: int | None = None) -> None:
    """Make a change of names in a folder last. Silent where it cannot be opened: the change itself has not failed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    except PermissionError:
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_beside(path: str, data: bytes, sync: bool, mode: int) -> str:
    folder, name = os.path.split(path)
    temp = os.path.join(folder, f".{name}.{os.urandom(8).hex()}.tmp")
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(fd)
    except BaseException:
        _remove(temp)
        raise
    return temp


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:  # it has its name
        return
