"""write_file: a whole file at once, atomically (T-02)."""

from typing import Any

from treadle.errors import ToolError
from treadle.ports.toolset import Invocation, Outcome, Settlement
from treadle.ports.workspace import Workspace, WorkspaceOf, inert
from treadle.protocol.tools import ToolSpec
from treadle.tools.builtin import change
from treadle.tools.builtin.base import PATH, Plain, in_thread, parameters
from treadle.tools.builtin.text import encode


class WriteFile(Plain):
    spec = ToolSpec(
        name="write_file",
        description=(
            "Create a file or replace its whole content; parent directories are made. The content is written exactly "
            "as given, in UTF-8. To change a part of an existing file use edit_file. Returns a diff."
        ),
        parameters=parameters(
            required=("path", "content"),
            path=PATH,
            content={"type": "string", "description": "The whole new content of the file."},
        ),
        summary_argument="path",
    )

    def __init__(self, workspace_of: WorkspaceOf) -> None:
        self._workspace_of = workspace_of

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        workspace = self._workspace_of(invocation.root)
        return await in_thread(lambda: _change(workspace, invocation).plan())

    async def run(self, invocation: Invocation) -> Outcome:
        workspace = self._workspace_of(invocation.root)
        return await in_thread(lambda: change.make(workspace, _change(workspace, invocation), invocation, "write"))

    async def settle(self, invocation: Invocation) -> Settlement:
        return await in_thread(change.settle, self._workspace_of(invocation.root), invocation)


def _change(workspace: Workspace, invocation: Invocation) -> change.Change:
    path = workspace.relative(invocation.arguments["path"])
    if path == "." or str(invocation.arguments["path"]).endswith("/"):
        raise ToolError(f"{inert(path)} is a directory, not a file; give the path of a file.")
    old, pre = change.look(workspace, path)
    return change.Change(path, old, encode(invocation.arguments["content"]), pre)
