"""The tools that come with Treadle, in the order in which models see them."""

from treadle.ports.toolset import Tool
from treadle.tools.builtin.context import ToolContext


def builtins(context: ToolContext) -> list[Tool]:
    """All of them, working with these means."""
    from treadle.tools.builtin.command.background import CheckCommand, SendInput, StopCommand
    from treadle.tools.builtin.command.output import ReadOutput
    from treadle.tools.builtin.command.tool import RunCommand
    from treadle.tools.builtin.commit_world import CommitWorld
    from treadle.tools.builtin.delegate import Delegate, RunRace
    from treadle.tools.builtin.diagnostics.tool import GetDiagnostics
    from treadle.tools.builtin.edit import EditFile
    from treadle.tools.builtin.find import FindFiles, ListDirectory
    from treadle.tools.builtin.interaction import CompleteTask, UpdatePlan
    from treadle.tools.builtin.patch import ApplyPatch
    from treadle.tools.builtin.read import ReadFile
    from treadle.tools.builtin.search import GrepSearch
    from treadle.tools.builtin.skill import UseSkill
    from treadle.tools.builtin.write import WriteFile

    return [
        ReadFile(context),
        ListDirectory(context),
        FindFiles(context),
        GrepSearch(context),
        EditFile(context),
        WriteFile(context),
        ApplyPatch(context),
        GetDiagnostics(context),
        RunCommand(context),
        CheckCommand(context),
        SendInput(context),
        StopCommand(context),
        ReadOutput(context),
        UpdatePlan(),
        CompleteTask(),
        UseSkill(context),
        CommitWorld(context),
        Delegate(context),
        RunRace(context),
    ]
