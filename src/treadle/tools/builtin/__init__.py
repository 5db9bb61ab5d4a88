"""The tools that come with Treadle, in the order in which models see them."""

from treadle.ports.toolset import Tool
from treadle.ports.workspace import WorkspaceOf


def builtins(workspace_of: WorkspaceOf) -> list[Tool]:
    """All of them. `workspace_of` opens the files of a project by its root."""
    from treadle.tools.builtin.command import RunCommand
    from treadle.tools.builtin.edit import EditFile
    from treadle.tools.builtin.interaction import CompleteTask, UpdatePlan
    from treadle.tools.builtin.listing import ListDirectory
    from treadle.tools.builtin.read import ReadFile
    from treadle.tools.builtin.write import WriteFile

    return [
        ReadFile(workspace_of),
        ListDirectory(workspace_of),
        EditFile(workspace_of),
        WriteFile(workspace_of),
        RunCommand(workspace_of),
        UpdatePlan(),
        CompleteTask(),
    ]
