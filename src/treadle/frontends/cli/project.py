"""The folder that a run works in. Loads nothing that a run needs: the app knows its project before it has one."""

import os
from pathlib import Path

from treadle.base.inert import inert_line
from treadle.errors import InvalidInput


def project_root(folder: str | None, *, force: bool = False) -> Path:
    """Return the folder that a run works in: `folder`, else the git root, else the working directory. The whole disk
    and a whole home folder are refused unless forced (S-02)."""
    here = Path(folder or ".").expanduser().resolve()
    root = here if folder else next((each for each in (here, *here.parents) if (each / ".git").exists()), here)
    if not root.is_dir():
        raise InvalidInput(f"the project root {root} is no folder; name one with --root")
    try:
        str(root).encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            f"the path of the project, {inert_line(str(root))}, is not valid UTF-8 and cannot be recorded; "
            "rename the folder, or name another one with --root"
        ) from None
    home = os.path.expanduser("~")
    is_home = home != "~" and root == Path(home).resolve()
    description = "the whole disk" if root.parent == root else "your home folder" if is_home else ""
    if description and not force:
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
