"""list_directory: the immediate children of a directory (T-04)."""

from treadle.ports.toolset import Invocation, Outcome
from treadle.ports.workspace import Child, Workspace, WorkspaceOf, inert
from treadle.protocol.tools import ToolSpec
from treadle.tools.builtin.base import PATH, ReadOnly, in_thread, parameters

MAX_ENTRIES = 500


class ListDirectory(ReadOnly):
    spec = ToolSpec(
        name="list_directory",
        description=(
            "List the immediate children of a directory, sorted, hidden ones too; directories end with a slash. "
            f"At most {MAX_ENTRIES} entries."
        ),
        parameters=parameters(path=PATH | {"default": "."}),
        read_only=True,
        idempotent=True,
        summary_argument="path",
    )

    def __init__(self, workspace_of: WorkspaceOf) -> None:
        self._workspace_of = workspace_of

    async def run(self, invocation: Invocation) -> Outcome:
        workspace = self._workspace_of(*invocation.project)
        return await in_thread(_list, workspace, invocation.arguments.get("path") or ".")


def _list(workspace: Workspace, path: str) -> Outcome:
    children = sorted(workspace.listdir(path), key=lambda child: child.name)
    shown = inert(workspace.relative(path))
    count = f"{len(children):,} {'entry' if len(children) == 1 else 'entries'}"
    lines = [f"{shown}/ ({count})", *(_line(child) for child in children[:MAX_ENTRIES])]
    if len(children) > MAX_ENTRIES:
        lines.append(f"[{len(children) - MAX_ENTRIES:,} more entries are not shown]")
    return Outcome("\n".join(lines), summary=count)


def _line(child: Child) -> str:
    name = inert(child.name)
    match child.kind:
        case "directory":
            return f"{name}/"
        case "link":
            return f"{name} -> {inert(child.target)}"
        case "other":
            return f"{name} (not a regular file)"
        case "file":
            return name
