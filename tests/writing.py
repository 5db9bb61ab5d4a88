"""Files of a project, written and removed as the file tools do it: planned by what is there, and made by its history,
which lies beside the project."""

import itertools
from pathlib import Path

from treadle.adapters.tools.builtin.file_tool import build_change, list_file_changes, plan_changes, read_current_bytes
from treadle.adapters.workspace.history.snapshots import ProjectSnapshots
from treadle.adapters.workspace.root import Root
from treadle.errors import Conflict

_names = itertools.count()
ANY = "any"


def history(root: Root) -> ProjectSnapshots:
    return ProjectSnapshots(root, Path(f"{root.path}.home"))


def write(
    root: Root,
    path: str,
    data: bytes | None,
    mode: int | None = None,
    *,
    expected: str | None = ANY,
    name: str = "",
    into: ProjectSnapshots | None = None,
) -> None:
    """None removes it. `expected` is the hash that the file must have; `into`: the history that keeps it."""
    old, pre = read_current_bytes(root, path)
    if expected not in (ANY, pre):
        raise Conflict(f"{path} was changed by someone else")
    planned = plan_changes(root, [build_change(path, old, data, pre=pre, mode=mode)])
    contents = {planned[0].post or "": data} if data is not None else {}
    effect = (into or history(root)).change(name or f"write {next(_names)}", list_file_changes(planned), contents)
    if effect.conflicts:
        raise Conflict(f"{path} was changed by someone else")
