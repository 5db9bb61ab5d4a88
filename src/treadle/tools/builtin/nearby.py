"""What a model is told of a path where nothing lies: the names that are there. Models guess paths from what a task says
of them, and go on guessing (T-01, T-03, T-04)."""

from pathlib import PurePosixPath

from treadle.errors import ToolError
from treadle.ports.workspace import Child, Workspace, inert

_MOST = 12
"""So many names are told; of more only those that are near."""
_SENT = 3
"""So many are told in the very words to send, which small models take up."""


def require(workspace: Workspace, path: str) -> None:
    """ToolError where nothing lies."""
    if workspace.stat(path) is None:
        raise ToolError(not_there(workspace, workspace.relative(path)))


def not_there(workspace: Workspace, path: str) -> str:
    """Sentences: that nothing lies there, and what does in the nearest folder that exists."""
    here = PurePosixPath(path)
    said = f"{inert(path)} does not exist."
    while here.name:
        wanted, here = here.name, here.parent
        try:
            names = sorted(map(_name, workspace.listdir(str(here))))
        except ToolError:  # not there either, or no folder
            continue
        told = names if len(names) <= _MOST else _near(wanted, names)
        if 0 < len(told) <= _SENT:
            ways = " or ".join(f'"path": "{inert(str(here / name))}"' for name in told)
            return f"{said} Send the call again with {ways}, if you mean that."
        where = "the project" if not here.name else inert(f"{here}/")
        return f"{said} In {where} there is: {', '.join(map(inert, told))}." if told else said
    return said


def _near(name: str, names: list[str]) -> list[str]:
    from difflib import get_close_matches  # for the few who guess

    return get_close_matches(name, names, 3)


def _name(child: Child) -> str:
    return f"{child.name}/" if child.kind == "directory" else child.name
