"""write_file: a whole file at once, atomically (T-02)."""

from treadle.adapters.tools.builtin.base import PATH, parameters
from treadle.adapters.tools.builtin.file_change import Change, change, lines_in, look
from treadle.adapters.tools.builtin.file_tool import FileTool
from treadle.adapters.tools.builtin.text import BOM, NAMES, decode, encode
from treadle.diff.changes import count
from treadle.errors import ToolError
from treadle.ports.toolset import Invocation
from treadle.ports.workspace import Workspace, inert
from treadle.protocol.tools import ShortForm, ToolSpec


class WriteFile(FileTool):
    spec = ToolSpec(
        name="write_file",
        description=(
            "Create a file or replace its whole content; parent directories are made. The content is written exactly "
            "as given, in UTF-8. An existing file must have been read before. To change a part of it use edit_file. "
            "Returns a diff."
        ),
        short=ShortForm(
            "Create a file, or replace all of a short one: content has all of its lines.", ("path", "content")
        ),
        parameters=parameters(
            required=("path", "content"),
            path=PATH,
            content={"type": "string", "description": "The whole new content of the file."},
        ),
        summary_argument="path",
        effect="edit",
    )

    def changes(self, workspace: Workspace, invocation: Invocation) -> list[Change]:
        return [whole_file(workspace, invocation)]


def whole_file(workspace: Workspace, invocation: Invocation) -> Change:
    given_path = str(invocation.arguments["path"])
    path = workspace.relative(given_path)
    if path == "." or given_path.endswith("/"):
        raise ToolError(f"{inert(path)} is a directory, not a file; give the path of a file.")
    content = invocation.arguments["content"]
    new = encode(content)
    old, pre = look(workspace, path)
    if pre is not None and _is_diff_of(path, content) and not invocation.by_person:
        raise ToolError(
            f"{inert(path)} was not changed: content is a diff of this file, not the file. Give all lines of the file "
            "without the signs and headers of a diff, or change a part of it with edit_file."
        )
    unknown = path not in invocation.known_files and not invocation.by_person
    if pre is not None and old != b"" and old != new and unknown:
        lines = "" if old is None else f" ({count(lines_in(old), 'line')})"
        raise ToolError(
            f"{inert(path)} exists already{lines} and you have not read it; it was not overwritten. Read it first "
            "with read_file, or change a part of it with edit_file."
        )
    return change(path, old, new, pre=pre, note=_note(inert(path), old, new))


def _is_diff_of(path: str, content: str) -> bool:
    """True if the content is a diff of this file: a model took the diff that it was shown for the file itself."""
    head = content.lstrip().split("\n", 3)
    return (
        len(head) > 2
        and head[0].startswith("--- ")
        and head[1].startswith("+++ ")
        and head[1].rstrip().endswith(path.rpartition("/")[2])
        and head[2].startswith("@@ ")
    )


def _note(shown_path: str, old: bytes | None, new: bytes) -> str:
    """A note on properties of the file that are lost beside the text; empty if there are none."""
    if not old:
        return ""
    notes = []
    try:
        old_text = decode(old, shown_path)
    except ToolError:
        return ""
    if old_text.encoding != "utf-8":
        notes.append(f"The file was in another encoding before ({NAMES[old_text.encoding]}); it is UTF-8 now.")
    if old_text.text.startswith(BOM) and not new.startswith(BOM.encode()):
        notes.append("The file had a byte-order mark before; it has none now.")
    if "\r\n" in old_text.text and b"\n" in new and b"\r\n" not in new:
        notes.append("The file had CRLF line endings before; it has LF now.")
    if old_text.text.endswith("\n") and new and not new.endswith(b"\n"):
        notes.append(
            "The file ended with a newline before; it ends without one now. If that was not meant, send the call again "
            "with \\n at the end of content."
        )
    return " ".join(notes)
