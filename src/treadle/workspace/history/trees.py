"""A project's tree as it was at some moment: by folder, each entry with what tells whether it has changed since and
with the hash of its bytes. The file of the last one is the cache of the next (W-05). Knows no project: only such files.

An entry that changed shortly before it was looked at might change again without its times telling: it is written down
with no ctime, so that it is read again the next time.
"""

import hashlib
import os
import stat as st
from pathlib import Path

import msgspec

from treadle.faultpoint import faultpoint
from treadle.protocol.files import FileState, decode_path, encode_path
from treadle.types import new_id

_VERSION = 1
_HASH = 32


class Node(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One name in a folder. A directory has only a mode: what is in it is no property of its own."""

    mode: int
    """With the bits that tell the kind."""
    size: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0
    inode: int = 0
    content: bytes = b""
    """The SHA-256 of a file's bytes; where a link points."""
    left: int = 0
    """Why it was left out (`left_out`); 0: it was not."""
    ignored: bool = False
    kept: bool = True
    """False: its bytes are known but not kept."""


class Folder(msgspec.Struct, frozen=True, array_like=True):
    nodes: dict[str, Node]
    """By name, in the form of `encode_path`."""
    rules: bytes = b""
    """Stands for all the .gitignore files that speak of this folder."""
    large: int = 0
    """How many bytes of its files count for the cap of large ones …"""
    ignored: int = 0
    """… and for the cap of ignored ones."""
    lacks: bool = False
    """Whether some of it was left out."""


class Tree(msgspec.Struct, frozen=True, array_like=True):
    root: str
    folders: dict[str, Folder]
    """By path with a slash at its end, in the form of `encode_path`; the root's is empty."""
    version: int = _VERSION


_decoder = msgspec.msgpack.Decoder(Tree)


def state_of(node: Node) -> FileState:
    mode = st.S_IMODE(node.mode)
    if st.S_ISREG(node.mode):
        return FileState("file", mode, node.content.hex(), node.size)
    if st.S_ISDIR(node.mode):
        return FileState("directory", mode)
    if st.S_ISLNK(node.mode):
        return FileState("link", target=encode_path(os.fsdecode(node.content)))
    return FileState("fifo", mode) if st.S_ISFIFO(node.mode) else FileState("other", mode)


def path_in(folder: str, name: str) -> str:
    """The path of an entry; all of them in the form of `encode_path`."""
    if folder.isascii() and name.isascii() and not folder.startswith("//") and not name.startswith("//"):
        return folder + name
    return encode_path(decode_path(folder) + decode_path(name))


def read_tree(file: Path, unless: int = 0) -> tuple[Tree, int] | None:
    """The tree in a file, and the file's inode; None if there is none, or none that can be trusted, or if the file is
    the one with the inode `unless`."""
    try:
        with file.open("rb") as opened:
            inode = os.fstat(opened.fileno()).st_ino
            data = b"" if inode == unless else opened.read()
    except OSError:
        return None
    body = memoryview(data)[_HASH:]
    if hashlib.sha256(body).digest() != data[:_HASH]:
        return None
    try:
        tree = _decoder.decode(body)
    except msgspec.DecodeError:
        return None
    return (tree, inode) if tree.version == _VERSION else None


def write_tree(folder: Path, tree: Tree, *, durable: bool) -> Path:
    """A new file with a name of its own, for the caller to give it its place."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    body = msgspec.msgpack.encode(tree)
    file = folder / f".{new_id('tree')}"
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as opened:
            opened.write(hashlib.sha256(body).digest())
            opened.write(body)
            if durable:
                opened.flush()
                os.fsync(fd)
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    faultpoint("snapshot.tree_written")
    return file
