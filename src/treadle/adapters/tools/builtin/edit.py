"""edit_file: one piece of a file replaced by another (T-03). The matching itself is in `replacement`, which is loaded
with the first edit."""

from typing import TYPE_CHECKING

from treadle.adapters.tools.builtin.base import PATH, parameters
from treadle.adapters.tools.builtin.file_change import Change, change, sha256
from treadle.adapters.tools.builtin.file_tool import FileTool
from treadle.adapters.tools.builtin.stale_files import Stale
from treadle.adapters.tools.builtin.text import MAX_FILE, decode, encode
from treadle.adapters.tools.builtin.write import whole_file
from treadle.diff.encodings import visible
from treadle.errors import EditError, ToolError
from treadle.ports.toolset import Invocation
from treadle.ports.workspace import Workspace, inert
from treadle.protocol.tools import ShortForm, ToolSpec

if TYPE_CHECKING:
    from treadle.adapters.tools.builtin.replacement import Replacement


class EditFile(FileTool):
    word = "edit"
    spec = ToolSpec(
        name="edit_file",
        description=(
            "Replace old_str by new_str in a file. old_str must be copied exactly from the file, without line numbers, "
            "and occur exactly once; if not, say in which line it begins, or set replace_all. Returns a diff."
        ),
        short=ShortForm(
            'Replace old_str, copied exactly from the file, by new_str; to add b below a: {"old_str": "a", "new_str": '
            '"a\\nb"}.',
            ("path", "old_str", "new_str"),
            untold=("line",),
        ),
        needs="reading",
        parameters=parameters(
            required=("path",),
            path=PATH,
            old_str={"type": "string", "description": "The text to replace."},
            new_str={"type": "string", "description": "What stands there afterwards; empty to delete."},
            line={"type": "integer", "description": "Where old_str occurs several times: the line in which it begins."},
            replace_all={"type": "boolean", "default": False, "description": "Replace every occurrence."},
            content={
                "type": "string",
                "description": "Instead of old_str and new_str: the whole new content, as with write_file.",
            },
        ),
        summary_argument="path",
        effect="edit",
    )

    def changes(self, workspace: Workspace, invocation: Invocation) -> list[Change]:
        arguments = invocation.arguments
        if "content" in arguments and "old_str" not in arguments and "new_str" not in arguments:
            return [whole_file(workspace, invocation)]
        missing = [name for name in ("old_str", "new_str") if name not in arguments]
        if missing:
            raise EditError(
                f"{' and '.join(missing)} missing: give the text to replace and what stands there afterwards."
            )
        return [_edit(workspace, workspace.relative(arguments["path"]), invocation)]


def _edit(workspace: Workspace, path: str, invocation: Invocation) -> Change:
    from treadle.adapters.tools.builtin.nearby import not_there
    from treadle.adapters.tools.builtin.replacement import replace

    arguments, shown_path = invocation.arguments, inert(path)
    if workspace.stat(path) is None:
        if invocation.known_files.get(path):
            raise ToolError(
                f"{shown_path} does not exist any more: someone deleted it. To create it anew use write_file."
            )
        raise ToolError(f"{not_there(workspace, path)} To create it use write_file.")
    old = workspace.read_bytes(path, MAX_FILE)
    pre = sha256(old)
    text = decode(old, shown_path)
    new_str = arguments["new_str"]
    encode(new_str)  # refuses half surrogate pairs, which stand for broken bytes in some texts
    if invocation.known_files.get(path, pre) != pre:
        raise Stale((path,))  # also if old_str is still there
    try:
        replacement = replace(
            text.text, arguments["old_str"], new_str, bool(arguments.get("replace_all")), arguments.get("line") or 0
        )
    except EditError as error:
        raise EditError(visible(f"{shown_path} was not changed: {error}")) from None
    return change(path, old, text.encode(replacement.text), pre=pre, note=_note(replacement))


def _note(replacement: "Replacement") -> str:
    from treadle.adapters.tools.builtin.mismatch import ASIDE

    notes = []
    if replacement.count > 1:
        notes.append(f"{replacement.count:,} occurrences were replaced.")
    if replacement.match_kind != "exact":
        indent_note = "; new_str was indented likewise" if replacement.match_kind == "indentation" else ""
        notes.append(f"old_str did not match exactly: it was found with {ASIDE[replacement.match_kind]}{indent_note}.")
    return " ".join(notes)
