"""write_file: a whole file, atomically (T-02); edit_file: one piece replaced by another (T-03); apply_patch: several
files, all or none (T-08). `replacement`, `patch_text` and `patching` are loaded with the first edit or patch."""

import re

from treadle.adapters.tools.builtin.base import PATH, build_parameters, describe_missing_path
from treadle.adapters.tools.builtin.file_tool import (
    Change,
    FileTool,
    Stale,
    build_change,
    compute_sha256,
    count_lines,
    read_current_bytes,
)
from treadle.adapters.tools.builtin.text import BOM, MAX_FILE, NAMES, Text, decode, encode
from treadle.diff.changes import count
from treadle.diff.encodings import escape_broken_bytes
from treadle.errors import EditError, ToolError
from treadle.ports.toolset import Invocation
from treadle.ports.workspace import Workspace, escape_name
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
        parameters=build_parameters(
            required=("path", "content"),
            path=PATH,
            content={"type": "string", "description": "The whole new content of the file."},
        ),
        summary_argument="path",
        effect="edit",
    )

    def compute_changes(self, workspace: Workspace, invocation: Invocation) -> list[Change]:
        return [_replace_file(workspace, invocation)]


def _replace_file(workspace: Workspace, invocation: Invocation) -> Change:
    given_path = str(invocation.arguments["path"])
    path = workspace.to_relative(given_path)
    if path == "." or given_path.endswith("/"):
        raise ToolError(f"{escape_name(path)} is a directory, not a file; give the path of a file.")
    content = invocation.arguments["content"]
    new = encode(content)
    old, pre = read_current_bytes(workspace, path)
    if pre is not None and _is_diff_of(path, content) and not invocation.by_person:
        raise ToolError(
            f"{escape_name(path)} was not changed: content is a diff of this file, not the file. Give all lines of "
            "the file without the signs and headers of a diff, or change a part of it with edit_file."
        )
    unknown = path not in invocation.known_files and not invocation.by_person
    if pre is not None and old != b"" and old != new and unknown:
        lines = "" if old is None else f" ({count(count_lines(old), 'line')})"
        raise ToolError(
            f"{escape_name(path)} exists already{lines} and you have not read it; it was not overwritten. Read it "
            "first with read_file, or change a part of it with edit_file."
        )
    return build_change(path, old, new, pre=pre, note=_describe_losses(escape_name(path), old, new))


def _is_diff_of(path: str, content: str) -> bool:
    """True if the content is a diff of this file: a model took the diff that it was shown for the file itself."""
    name = re.escape(path.rpartition("/")[2])
    return re.match(rf"\s*--- .*\n\+\+\+ .*{name}[^\S\n]*\n@@ ", content) is not None


def _describe_losses(shown_path: str, old: bytes | None, new: bytes) -> str:
    try:
        file = decode(old or b"", shown_path)
    except ToolError:
        return ""
    losses = {
        f"The file was in another encoding before ({NAMES[file.encoding]}); it is UTF-8 now.": file.encoding != "utf-8",
        "The file had a byte-order mark before; it has none now.": (
            file.text.startswith(BOM) and not new.startswith(BOM.encode())
        ),
        "The file had CRLF line endings before; it has LF now.": (
            "\r\n" in file.text and b"\n" in new and b"\r\n" not in new
        ),
        "The file ended with a newline before; it ends without one now. If that was not meant, send the call again "
        "with \\n at the end of content.": file.text.endswith("\n") and bool(new) and not new.endswith(b"\n"),
    }
    return " ".join(note for note, is_lost in losses.items() if is_lost)


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
        parameters=build_parameters(
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

    def compute_changes(self, workspace: Workspace, invocation: Invocation) -> list[Change]:
        from treadle.adapters.tools.builtin.replacement import ASIDE, replace

        arguments = invocation.arguments
        if "content" in arguments and "old_str" not in arguments and "new_str" not in arguments:
            return [_replace_file(workspace, invocation)]
        if missing := " and ".join(name for name in ("old_str", "new_str") if name not in arguments):
            raise EditError(f"{missing} missing: give the text to replace and what stands there afterwards.")
        path = workspace.to_relative(arguments["path"])
        shown_path = escape_name(path)
        if workspace.stat(path) is None:
            deleted = f"{shown_path} does not exist any more: someone deleted it. To create it anew use write_file."
            known = invocation.known_files.get(path)
            raise ToolError(
                deleted if known else f"{describe_missing_path(workspace, path)} To create it use write_file."
            )
        old = workspace.read_bytes(path, MAX_FILE)
        pre = compute_sha256(old)
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
            raise EditError(escape_broken_bytes(f"{shown_path} was not changed: {error}")) from None
        notes = [f"{replacement.count:,} occurrences were replaced."] if replacement.count > 1 else []
        if aside := ASIDE[replacement.match_kind]:
            indent_note = "; new_str was indented likewise" if replacement.match_kind == "indentation" else ""
            notes.append(f"old_str did not match exactly: it was found with {aside}{indent_note}.")
        return [build_change(path, old, text.encode(replacement.text), pre=pre, note=" ".join(notes))]


class ApplyPatch(FileTool):
    word = "patch"
    spec = ToolSpec(
        name="apply_patch",
        description=(
            "Change several files at once, all or none. The patch: '*** Begin Patch', then for each file "
            "'*** Add File: path' with every line after a plus, '*** Delete File: path', or '*** Update File: path' "
            "(below it '*** Move to: path' to rename) with hunks: '@@' and the function or class above, then about 3 "
            "lines before and after the change, each after a space, removed lines after a minus, added ones after a "
            "plus; at last '*** End Patch'. Returns a diff."
        ),
        dispensable=True,
        parameters=build_parameters(
            required=("patch",), patch={"type": "string", "minLength": 1, "description": "The whole patch."}
        ),
        summary_argument="",
        effect="edit",
    )

    def compute_changes(self, workspace: Workspace, invocation: Invocation) -> list[Change]:
        from treadle.adapters.tools.builtin.patching import plan_patch

        files = _Files(workspace)
        patch = invocation.arguments["patch"]
        encode(patch)  # refuses half surrogate pairs, which stand for broken bytes in some texts
        try:
            patch_plan = plan_patch(patch, files.read)
        except EditError as error:
            known, contents = invocation.known_files, files.found.items()
            stale = tuple(path for path, (data, _) in contents if known.get(path, "") not in ("", compute_sha256(data)))
            if stale:  # that is why it does not fit
                raise Stale(stale) from None
            raise EditError(escape_broken_bytes(f"Nothing was changed. {error}")) from None
        old_paths = {
            workspace.to_relative(new): workspace.to_relative(old) for new, old in patch_plan.old_paths.items()
        }
        executable = {workspace.to_relative(path): value for path, value in patch_plan.executable.items()}
        return files.build_changes(patch_plan.texts, old_paths, executable)


class _Files:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.found: dict[str, tuple[bytes, Text]] = {}  # By path relative to the root; only those that exist

    def read(self, path: str) -> str | None:
        path = self._workspace.to_relative(path)
        if path not in self.found:
            if self._workspace.stat(path) is None:
                return None
            data = self._workspace.read_bytes(path, MAX_FILE)
            self.found[path] = (data, decode(data, escape_name(path)))
        return self.found[path][1].text

    def build_changes(
        self, texts: dict[str, str | None], old_paths: dict[str, str], executable: dict[str, bool]
    ) -> list[Change]:
        changes: dict[str, Change] = {}
        for given_path, text in texts.items():
            path = self._workspace.to_relative(given_path)
            if path in changes:
                raise ToolError(
                    f"Nothing was changed. The patch names {escape_name(path)} in two ways; use one of them."
                )
            old = self.found[path][0] if path in self.found else None
            entry = self._workspace.inspect(path) if text is None and old is not None else None
            if entry is not None and entry.kind == "link":  # the patch shows the target, and would delete the link
                raise ToolError(
                    f"Nothing was changed. {escape_name(path)} is a symbolic link, which a patch neither deletes nor "
                    "moves; use run_command, or name the file it points to."
                )
            source = old_paths.get(path, path)
            # In the encoding that the file has, or the one that it was moved from.
            encoding = self.found[source][1].encoding if source in self.found else "utf-8"
            new = None if text is None else encode(text, encoding)
            mode = None if new is None else self._choose_mode(source, source != path, executable.get(path))
            pre = None if old is None else compute_sha256(old)
            if pre is not None or new is not None:  # else it was added and deleted by the same patch
                changes[path] = build_change(path, old, new, pre=pre, mode=mode)
        return list(changes.values())

    def _choose_mode(self, source: str, moves: bool, executable: bool | None) -> int | None:
        """The mode of a file that is moved, or that the patch makes executable or not; None: as it is."""
        stat = self._workspace.stat(source)
        if executable is None:
            return stat.mode if stat is not None and moves else None
        old = self._workspace.locate(source, write=True).mode if stat is None else stat.mode
        new = old | (old & 0o444) >> 2 if executable else old & ~0o111
        return None if new == old and not moves else new
