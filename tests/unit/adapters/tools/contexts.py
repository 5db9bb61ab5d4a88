"""The context of file tools in tests: the files of a project, and a history that lies beside it."""

from pathlib import Path

from treadle.adapters.tools.builtin.base import Blobs, ToolContext
from treadle.adapters.workspace.history.snapshots import ProjectSnapshots
from treadle.adapters.workspace.root import Root
from treadle.protocol.files import FileChange


def history_of(root: str, root_id: str = "", _world: str = "") -> ProjectSnapshots:
    return ProjectSnapshots(Root(root, root_id), Path(root).parent / "home")


def context_with(blobs: Blobs) -> ToolContext:
    return ToolContext(Root, blobs, snapshots_of=history_of)


def summarize_changes(files: tuple[FileChange, ...]) -> list[tuple[str, str, int, int]]:
    """Changes of files without their states, and without those of folders."""
    return [
        (file.path, file.action, file.added, file.removed)
        for file in files
        if (file.after or file.before or file).kind != "directory"  # type: ignore[union-attr]
    ]
