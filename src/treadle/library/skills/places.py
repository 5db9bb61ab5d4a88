"""Where skills, commands and custom agents lie: the user's own count always, a project's once trusted (S-09)."""

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from treadle.adapters.workspace.root import Root
from treadle.errors import TreadleError
from treadle.ports.workspace import Workspace
from treadle.protocol.options import Project

Kind = Literal["skills", "commands", "agents"]
IN_PROJECT = (".treadle", ".agents", ".claude", ".github")
OF_USER = (".agents", ".claude")  # Below the user's home folder, beside Treadle's own home
MAX_BYTES = 256 * 1024
MOST = 200  # So many files of one kind are looked at in one place
SKILL_FILE = "SKILL.md"

Trusted = Callable[[str, bytes], bool]


class Document(msgspec.Struct, frozen=True):
    """A Markdown file of one of the kinds."""

    name: str  # By its place: the folder of a skill, the file of the others, with the folders in between
    path: str  # From the project's root, or absolute for one of the user's
    text: str
    sha256: str
    trusted: bool = True


def read_folder_documents(kind: Kind, folder: Path) -> Iterator[Document]:
    """Those below a folder of the user's, or of a program that the user runs: they count as they are."""
    if not folder.is_dir():
        return
    for path in sorted(folder.rglob(SKILL_FILE if kind == "skills" else "*.md"))[:MOST]:
        try:
            data = path.read_bytes() if path.stat().st_size <= MAX_BYTES else b""
        except OSError:
            continue
        if data:
            yield _make_document(kind, path.relative_to(folder).as_posix(), str(path), data, trusted=True)


def read_project_documents(kind: Kind, project: Project, trusted: Trusted) -> Iterator[Document]:
    """Those of a project, each as trusted as its content is."""
    if not any(os.path.isdir(os.path.join(project.root, each, kind)) for each in IN_PROJECT):
        return
    try:
        workspace = Root(project.root, project.root_id)
    except (TreadleError, OSError):
        return
    for place in IN_PROJECT:
        top = f"{place}/{kind}"
        for path in _walk(workspace, top, kind):
            try:
                data = workspace.read_bytes(path, MAX_BYTES)
            except TreadleError:  # a link that leads out, or too large
                continue
            counts = trusted(os.path.join(workspace.path, path), data)
            yield _make_document(kind, path.removeprefix(f"{top}/"), path, data, trusted=counts)


def _walk(workspace: Workspace, top: str, kind: Kind, depth: int = 0) -> Iterator[str]:
    """The files of a kind below a folder of the project; links to folders are not followed."""
    try:
        children = sorted(workspace.listdir(top), key=lambda child: child.name)[:MOST]
    except TreadleError:
        return
    for child in children:
        path = f"{top}/{child.name}"
        if child.kind == "directory" and depth < 3:
            yield from _walk(workspace, path, kind, depth + 1)
        elif child.name == SKILL_FILE if kind == "skills" else child.name.endswith(".md"):
            yield path


def _make_document(kind: Kind, place: str, path: str, data: bytes, *, trusted: bool) -> Document:
    parts = place.split("/")
    name = (parts[-2] if len(parts) > 1 else "") if kind == "skills" else ":".join(parts).removesuffix(".md")
    return Document(name, path, data.decode(errors="replace"), hashlib.sha256(data).hexdigest(), trusted)
