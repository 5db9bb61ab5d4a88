"""The tools that come with Treadle, in the order in which models see them."""

from collections.abc import Callable

from treadle.adapters.tools.builtin.base import ToolContext
from treadle.ports.toolset import Tool


def make_builtin_tools(context: ToolContext) -> list[Tool]:
    from treadle.adapters.tools.builtin.command.background import CheckCommand, CommitWorld, SendInput, StopCommand
    from treadle.adapters.tools.builtin.command.output import ReadOutput
    from treadle.adapters.tools.builtin.command.tool import RunCommand
    from treadle.adapters.tools.builtin.diagnostics import GetDiagnostics
    from treadle.adapters.tools.builtin.edit import ApplyPatch, EditFile, WriteFile
    from treadle.adapters.tools.builtin.interaction import CompleteTask, Delegate, RunRace, UpdatePlan, UseSkill
    from treadle.adapters.tools.builtin.read import ReadFile
    from treadle.adapters.tools.builtin.search import FindFiles, GrepSearch, ListDirectory

    file_tools: tuple[Callable[[ToolContext], Tool], ...]
    file_tools = (ReadFile, ListDirectory, FindFiles, GrepSearch, EditFile, WriteFile, ApplyPatch, GetDiagnostics)
    command_tools = (RunCommand, CheckCommand, SendInput, StopCommand, ReadOutput)
    first_tools = [tool(context) for tool in (*file_tools, *command_tools)]
    last_tools: list[Tool] = [UseSkill(context), CommitWorld(context), Delegate(context), RunRace(context)]
    return [*first_tools, UpdatePlan(), CompleteTask(), *last_tools]
