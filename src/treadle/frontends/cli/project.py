"""The folder that a run works in. Loads nothing that a run needs: the app knows its project before it has one."""

import os
from pathlib import Path

from treadle.base.inert import inert_line
from treadle.errors import InvalidInput


def project_root(folder: str | None, *, force: bool = False) -> Path:
    """Return the folder that a run works in: `folder`, else the git root, else the working directory. The whole disk
    and a whole home folder are refused unless forced (S-02)."""
    root = Path(folder).expanduser().resolve() if folder else _git_root(Path.cwd())
    if not root.is_dir():
        raise InvalidInput(f"the project root {root} is no folder; name one with --root")
    try:
        str(root).encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            f"the path of the project, {inert_line(str(root))}, is not valid UTF-8 and cannot be recorded; "
            "rename the folder, or name another one with --root"
        ) from None
    if not force and (description := _describe_broad_root(root)):
        raise InvalidInput(
            f"{root} is {description}, and a model would be let loose on all of it; "
            "name a project with --root, or insist with --force-root"
        )
    return root


def present_root() -> str:
    """The project of the working directory; empty if that is none."""
    try:
        return str(project_root(None))
    except InvalidInput:
        return ""


def _git_root(start: Path) -> Path:
    here = start.resolve()
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)


def _describe_broad_root(root: Path) -> str:
    if root.parent == root:
        return "the whole disk"
    home = os.path.expanduser("~")
    return "your home folder" if home != "~" and root == Path(home).resolve() else ""
