"""The instructions of a project to agents: AGENTS.md (E-03). Read once and recorded with a new chat's options: the same
bytes go into every request (L-21). They are advice: nothing in them can widen a permission (S-09)."""

import os
from collections.abc import Iterable
from pathlib import Path

from treadle.adapters.workspace.root import Root
from treadle.base.file_system import is_below
from treadle.base.inert import inert
from treadle.errors import TreadleError
from treadle.ports.workspace import Workspace

MAX_BYTES = 32 * 1024  # Of all files together, headings included.
NAME = "AGENTS.md"
OTHERS = ("CLAUDE.md", ".github/copilot-instructions.md", ".cursorrules")
"""Read from the root, the first that is there, only if there is no AGENTS.md at all."""
_READ_MOST = 4 * 1024 * 1024
_CUT = "\n[The rest was left out: instructions may have 32 KiB in all.]"
_SHORTEST = 200


def read_instructions(root: str, root_id: str = "", highest: str = "") -> str:
    """The instructions of the folder `root_id` at `root`: from the git root down, but not above `highest`; its own come
    last, because the nearest counts most."""
    return _join_files(_files(root, root_id, highest)) if root else ""


def read_folders(folders: Iterable[str], room: int = MAX_BYTES) -> str:
    """The instructions in folders beside the project: AGENTS.md or what stands for it, and all `*.instructions.md`."""
    files: list[tuple[str, str]] = []
    for folder in folders:
        try:
            place = Root(folder)
            more = sorted(path.name for path in Path(folder).glob("*.instructions.md"))
        except (TreadleError, OSError):
            continue
        usual = [(name, text) for name in (NAME, *OTHERS) if (text := _read(place, name)) is not None][:1]
        extra_files = [(name, text) for name in more if (text := _read(place, name)) is not None]
        files += [(f"{folder}/{name}", text) for name, text in (*usual, *extra_files)]
    return _join_files(files, room)


def _join_files(files: Iterable[tuple[str, str]], room: int = MAX_BYTES) -> str:
    nonempty = [(name, text) for name, text in files if text.strip()]
    parts: list[str] = []
    for name, text in reversed(nonempty):  # the nearest file gets its space first
        if part := _part(name, text, room):
            parts.insert(0, part)
            room -= len(part.encode()) + 2
    return "\n\n".join(parts)


def _files(root: str, root_id: str, highest: str) -> list[tuple[str, str]]:
    top, below = _git_root(root, highest)
    files: list[tuple[str, str]] = []
    try:
        project_root, above = Root(root, root_id), Root(top)
        for depth in range(len(below)):
            path = "/".join([*below[:depth], NAME])
            if (text := _read(above, path)) is not None:
                files.append((path, text))
        names = [NAME] if files else [NAME, *OTHERS]
        read = (("/".join([*below, name]), _read(project_root, name)) for name in names)
        files += [(path, text) for path, text in read if text is not None][:1]
    except (TreadleError, OSError):
        return []
    return files


def _git_root(root: str, highest: str) -> tuple[str, list[str]]:
    """The nearest folder with a .git at or above the root, and the way down; not above `highest`, nor home or disk."""
    here = Path(os.path.realpath(root))
    home = Path(os.path.realpath(os.path.expanduser("~")))
    for folder in (here, *here.parents):
        if folder != here and (folder in (home, Path(folder.anchor)) or not is_below(str(folder), highest or "/")):
            break
        if (folder / ".git").exists():
            return str(folder), list(here.relative_to(folder).parts)
    return str(here), []


def _read(workspace: Workspace, path: str) -> str | None:
    """Through the same guard as every file of the project: a link that leads out of it is not followed."""
    try:
        if workspace.stat(path) is None:
            return None
        data = workspace.read_bytes(path, _READ_MOST)
    except TreadleError:
        return None
    text = inert(data.decode(errors="replace").removeprefix("\ufeff"))
    return text.replace("\u200c", r"\u200c")  # a person who reads the file does not see it, either


def _part(name: str, text: str, room: int) -> str:
    """A file under its name, cut behind its last whole line if it does not fit. A very long line is cut inside."""
    heading = f"# From {name}\n\n"
    part = heading + text.strip()
    if len(part.encode()) <= room:
        return part
    room -= len(_CUT.encode())
    if room < _SHORTEST:
        return ""
    shortened = part.encode()[:room].decode(errors="ignore")
    end = shortened.rfind("\n")
    return (shortened[:end] if end >= len(shortened) // 2 else shortened) + _CUT
