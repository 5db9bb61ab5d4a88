"""Where a tool is: the project's own first, then the machine's. What lies inside the project is code of the repository:
it is only offered where it would run in a sandbox (S-09)."""

import os
import shutil
import sys
from collections.abc import Mapping

import msgspec

from treadle.errors import ToolError
from treadle.file_system import is_below
from treadle.ports.workspace import Workspace

LOCAL = ("node_modules/.bin", ".venv/bin", "venv/bin")


class Found(msgspec.Struct, frozen=True):
    path: str
    """Absolute."""
    local: bool = False
    """Whether it belongs to the project."""

    @property
    def identity(self) -> str:
        """Changes when the program does; asking every one for its version would cost more than asking it."""
        try:
            stat = os.stat(self.path)
        except OSError:
            return self.path
        return f"{self.path}:{stat.st_size}:{stat.st_mtime_ns}"


def find(name: str, workspace: Workspace, env: Mapping[str, str], *, confined: bool) -> Found | None:
    """The program of this name; those of the project only if it will be `confined`."""
    if os.path.isabs(name):
        return Found(name) if os.access(name, os.X_OK) else None
    if confined and (own := _own(name, workspace)):
        return Found(own, local=True)
    path = os.pathsep.join([os.path.dirname(sys.executable), *_outside(env.get("PATH", os.defpath), workspace.path)])
    found = shutil.which(name, path=path)
    return Found(found) if found and not is_below(os.path.realpath(found), workspace.path) else None


def _own(name: str, workspace: Workspace) -> str:
    for folder in LOCAL:
        try:
            stat = workspace.stat(f"{folder}/{name}")
        except ToolError:
            continue
        if stat is not None and stat.kind == "file" and stat.mode & 0o111:
            return f"{workspace.path}/{folder}/{name}"
    return ""


def _outside(path: str, root: str) -> list[str]:
    """The folders of a search path that are absolute and not the project's."""
    return [
        part for part in path.split(os.pathsep) if os.path.isabs(part) and not is_below(os.path.realpath(part), root)
    ]


def marked_folder(marker: str, path: str, workspace: Workspace) -> str | None:
    """The nearest folder above a file that has a marker, inside the root; None if none has."""
    folder = path.rpartition("/")[0]
    while True:
        try:
            if workspace.stat(f"{folder}/{marker}" if folder else marker) is not None:
                return folder
        except ToolError:
            pass
        if not folder:
            return None
        folder = folder.rpartition("/")[0]
