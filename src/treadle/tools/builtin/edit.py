"""edit_file: one piece of a file replaced by another (T-03). The matching itself is in `replacement`."""

from typing import Any

from treadle.errors import EditError, ToolError
from treadle.ports.toolset import Invocation, Outcome, Settlement
from treadle.ports.workspace import Workspace, WorkspaceOf, inert
from treadle.protocol.tools import ToolSpec
from treadle.tools.builtin import change
from treadle.tools.builtin.base import PATH, Plain, in_thread, parameters
from treadle.tools.builtin.replacement import Replacement, replace
from treadle.tools.builtin.text import MAX_FILE, decode, encode


class EditFile(Plain):
    spec = ToolSpec(
        name="edit_file",
        description=(
            "Replace old_str by new_str in a file. old_str must be copied exactly from the file, without line numbers, "
            "and occur exactly once (add lines around it until it does), or set replace_all. Returns a diff."
        ),
        parameters=parameters(
            required=("path", "old_str", "new_str"),
            path=PATH,
            old_str={"type": "string", "description": "The text to replace."},
            new_str={"type": "string", "description": "What stands there afterwards; empty to delete."},
            replace_all={"type": "boolean", "default": False, "description": "Replace every occurrence."},
        ),
        summary_argument="path",
    )

    def __init__(self, workspace_of: WorkspaceOf) -> None:
        self._workspace_of = workspace_of

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        workspace = self._workspace_of(invocation.root)
        return await in_thread(lambda: _change(workspace, invocation).plan())

    async def run(self, invocation: Invocation) -> Outcome:
        return await in_thread(_edit, self._workspace_of(invocation.root), invocation)

    async def settle(self, invocation: Invocation) -> Settlement:
        return await in_thread(change.settle, self._workspace_of(invocation.root), invocation)


def _edit(workspace: Workspace, invocation: Invocation) -> Outcome:
    plan = invocation.plan
    if plan is not None and workspace.digest(plan["path"]) != plan["pre"]:
        # Said here, because on other bytes the search below would only say that the text is not found.
        raise change.conflict(plan["path"])
    return change.make(workspace, _change(workspace, invocation), invocation, "edit")


def _change(workspace: Workspace, invocation: Invocation) -> change.Change:
    arguments = invocation.arguments
    path = workspace.relative(arguments["path"])
    shown = inert(path)
    if workspace.stat(path) is None:
        raise ToolError(f"{shown} does not exist. To create it use write_file.")
    old = workspace.read_bytes(path, MAX_FILE)
    try:
        made = replace(
            decode(old, shown), arguments["old_str"], arguments["new_str"], bool(arguments.get("replace_all"))
        )
    except EditError as error:
        raise EditError(f"{shown} was not changed: {error}") from None
    return change.Change(path, old, encode(made.text), change.sha256(old), _note(made))


def _note(made: Replacement) -> str:
    notes = []
    if made.count > 1:
        notes.append(f"{made.count} occurrences were replaced.")
    if made.how == "line_endings":
        notes.append("old_str matched only with line endings left aside; the file's own were kept.")
    return " ".join(notes)
