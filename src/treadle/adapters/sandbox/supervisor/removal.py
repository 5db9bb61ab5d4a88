"""Removes folders that commands filled, with any permissions and of any depth. Never follows a link."""

import os
from contextlib import suppress

_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str) -> None:
    """All of it, as far as that goes; silent about the rest."""
    with suppress(OSError):
        parent = os.open(os.path.dirname(path) or ".", _LIST)
        try:
            _remove(parent, os.path.basename(path))
        finally:
            os.close(parent)


def _remove(parent: int, top: str) -> None:
    """From descriptor to descriptor, with a list of what is still to do instead of calls in calls."""
    way: list[tuple[int, str, list[str]]] = []
    try:
        _enter(way, parent, top)
        while way:
            fd, name, entries = way[-1]
            if entries:
                entry = entries.pop()
                try:
                    os.unlink(entry, dir_fd=fd)
                except IsADirectoryError:
                    _enter(way, fd, entry)
                except PermissionError:  # a folder, where the system does not say so
                    with suppress(OSError):
                        _enter(way, fd, entry)
                except FileNotFoundError:
                    continue
                continue
            os.close(fd)
            way.pop()
            with suppress(OSError):
                os.rmdir(name, dir_fd=way[-1][0] if way else parent)
    finally:
        for fd, _, _ in way:
            os.close(fd)


def _enter(way: list[tuple[int, str, list[str]]], parent: int, name: str) -> None:
    try:
        fd = os.open(name, _LIST, dir_fd=parent)
    except PermissionError:
        with suppress(OSError):  # its own permissions, not those of a link: what is no folder is not opened below
            os.chmod(name, 0o700, dir_fd=parent)
        fd = os.open(name, _LIST, dir_fd=parent)
    try:
        with suppress(OSError):
            os.fchmod(fd, 0o700)
        way.append((fd, name, os.listdir(fd)))
    except BaseException:
        os.close(fd)
        raise
