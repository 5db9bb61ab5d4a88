"""write_file: a whole file at once, atomically (T-02); and edit_file: one piece of a file replaced by another (T-03),
with the matching of `replacement`, which is loaded with the first edit."""

from treadle.adapters.tools.builtin.base import PATH, parameters
from treadle.adapters.tools.builtin.file_tool import Change, FileTool, Stale, change, count_lines, look, sha256
from treadle.adapters.tools.builtin.text import BOM, MAX_FILE, NAMES, decode, encode
from treadle.diff.changes import count
from treadle.diff.encodings import visible
from treadle.errors import EditError, ToolError
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
        return [_replace_file(workspace, invocation)]


def _replace_file(workspace: Workspace, invocation: Invocation) -> Change:
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
        lines = "" if old is None else f" ({count(count_lines(old), 'line')})"
        raise ToolError(
            f"{inert(path)} exists already{lines} and you have not read it; it was not overwritten. Read it first "
            "with read_file, or change a part of it with edit_file."
        )
    return change(path, old, new, pre=pre, note=_describe_losses(inert(path), old, new))


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


def _describe_losses(shown_path: str, old: bytes | None, new: bytes) -> str:
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
        from treadle.adapters.tools.builtin.nearby import not_there
        from treadle.adapters.tools.builtin.replacement import ASIDE, replace

        arguments = invocation.arguments
        if "content" in arguments and "old_str" not in arguments and "new_str" not in arguments:
            return [_replace_file(workspace, invocation)]
        missing = [name for name in ("old_str", "new_str") if name not in arguments]
        if missing:
            raise EditError(
                f"{' and '.join(missing)} missing: give the text to replace and what stands there afterwards."
            )
        path = workspace.relative(arguments["path"])
        shown_path = inert(path)
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
        notes = [f"{replacement.count:,} occurrences were replaced."] if replacement.count > 1 else []
        if aside := ASIDE[replacement.match_kind]:
            indent_note = "; new_str was indented likewise" if replacement.match_kind == "indentation" else ""
            notes.append(f"old_str did not match exactly: it was found with {aside}{indent_note}.")
        return [change(path, old, text.encode(replacement.text), pre=pre, note=" ".join(notes))]
