"""Trees of files for tests: exact pictures of them, and random ones with everything that a project may hold."""

import os
import random
import stat
from pathlib import Path

from treadle.adapters.workspace.history.content_store import ContentStore

Node = tuple[str, int, bytes]
"""Kind, permission bits, and the bytes of a file or the target of a link."""


def tree(root: Path | str) -> dict[str, Node]:
    """Everything below a folder, by path: kind, mode, bytes, targets, empty folders too."""
    nodes: dict[str, Node] = {}
    for folder, folders, files in os.walk(os.fsencode(root)):
        for name in folders + files:
            path = os.path.join(folder, name)
            nodes[os.path.relpath(path, os.fsencode(root)).decode("utf-8", "surrogateescape")] = node(path)
    return nodes


def node(path: bytes) -> Node:
    status = os.lstat(path)
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return ("link", 0, os.readlink(path))
    if stat.S_ISREG(status.st_mode):
        with open(path, "rb") as file:
            return ("file", mode, file.read())
    return ("directory" if stat.S_ISDIR(status.st_mode) else f"special {stat.S_IFMT(status.st_mode):o}", mode, b"")


def differences(one: dict[str, Node], second: dict[str, Node]) -> list[str]:
    """The differences, in words short enough to read; empty if there are none."""
    return [
        f"{path!r}: {_short(one.get(path))} → {_short(second.get(path))}"
        for path in sorted(one.keys() | second.keys())
        if one.get(path) != second.get(path)
    ]


def _short(tree_node: Node | None) -> str:
    return "nothing" if tree_node is None else f"{tree_node[0]} {tree_node[1]:o} {tree_node[2][:40]!r}"


NAMES = ["a.txt", "b.py", "c", "notes.md", "with space", "ünï.txt", "new\nline", "x" * 200, "-dash", "'quote"]


def grow(root: Path, chance: random.Random, size: int = 12) -> None:
    """A random tree: folders, files of all kinds of bytes and modes, links that lead somewhere, nowhere and outside."""
    folders = [root]
    for number in range(size):
        folder = chance.choice(folders)
        path = folder / f"{number}{chance.choice(NAMES)}"
        match chance.choice(["file", "file", "file", "binary", "script", "folder", "folder", "link", "dangling"]):
            case "file":
                path.write_bytes(_text(chance))
            case "binary":
                path.write_bytes(chance.randbytes(chance.choice([0, 1, 300, 70_000])))
            case "script":
                path.write_bytes(b"#!/bin/sh\necho hello\n")
                path.chmod(chance.choice([0o755, 0o700, 0o555]))
            case "folder":
                path.mkdir()
                folders.append(path)
            case "link":
                path.symlink_to(chance.choice(["..", ".", "/etc/hostname", folders[-1].name]))
            case _:
                path.symlink_to("nowhere at all")
    for folder in folders[1:]:
        if chance.random() < 0.2:
            folder.chmod(chance.choice([0o700, 0o750, 0o775]))


def _text(chance: random.Random) -> bytes:
    end = chance.choice([b"\n", b"\r\n"])
    lines = [f"line {n} {chance.randrange(1000)}".encode() for n in range(chance.choice([0, 1, 5, 40]))]
    return end.join(lines) + (end if chance.random() < 0.7 else b"")


def measure_size(store: ContentStore) -> int:
    """The bytes that the objects of a content store take."""
    return sum(stored.size for stored in store.iterate_objects())
