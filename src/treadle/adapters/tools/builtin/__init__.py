"""The tools that come with Treadle, in the order in which models see them."""

from treadle.adapters.tools.builtin.context import ToolContext
from treadle.ports.toolset import Tool


def builtins(context: ToolContext) -> list[Tool]:
    from treadle.adapters.tools.builtin.command.background import CheckCommand, SendInput, StopCommand
    from treadle.adapters.tools.builtin.command.output import ReadOutput
    from treadle.adapters.tools.builtin.command.tool import RunCommand
    from treadle.adapters.tools.builtin.commit_world import CommitWorld
    from treadle.adapters.tools.builtin.delegate import Delegate, RunRace
    from treadle.adapters.tools.builtin.diagnostics import GetDiagnostics
    from treadle.adapters.tools.builtin.edit import EditFile, WriteFile
    from treadle.adapters.tools.builtin.find import FindFiles, ListDirectory
    from treadle.adapters.tools.builtin.interaction import CompleteTask, UpdatePlan
    from treadle.adapters.tools.builtin.patch import ApplyPatch
    from treadle.adapters.tools.builtin.read import ReadFile
    from treadle.adapters.tools.builtin.search import GrepSearch
    from treadle.adapters.tools.builtin.skill import UseSkill

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
