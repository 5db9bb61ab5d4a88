"""The message to a model about a path that does not exist: the names that do. Models guess paths from the words of a
task, and go on guessing (T-01, T-03, T-04)."""

from pathlib import PurePosixPath

from treadle.errors import ToolError
from treadle.ports.workspace import Workspace, inert

_MOST = 12  # So many names are told; of more only those that are near
_SENT = 3  # So many are told in the very words to send, which small models take up


def require(workspace: Workspace, path: str) -> None:
    """ToolError where nothing lies."""
    if workspace.stat(path) is None:
        raise ToolError(not_there(workspace, workspace.relative(path)))


def not_there(workspace: Workspace, path: str) -> str:
    """Sentences: that nothing lies there, and what does in the nearest folder that exists."""
    here = PurePosixPath(path)
    sentence = f"{inert(path)} does not exist."
    while here.name:
        missing_name, here = here.name, here.parent
        try:
            children = workspace.listdir(str(here))
            names = sorted(f"{child.name}/" if child.kind == "directory" else child.name for child in children)
        except ToolError:  # not there either, or no folder
            continue
        candidates = names
        if len(names) > _MOST:
            from difflib import get_close_matches  # for the few models that guess

            candidates = get_close_matches(missing_name, names, 3)
        if 0 < len(candidates) <= _SENT:
            ways = " or ".join(f'"path": "{inert(str(here / name))}"' for name in candidates)
            return f"{sentence} Send the call again with {ways}, if you mean that."
        location = "the project" if not here.name else inert(f"{here}/")
        return f"{sentence} In {location} there is: {', '.join(map(inert, candidates))}." if candidates else sentence
    return sentence
