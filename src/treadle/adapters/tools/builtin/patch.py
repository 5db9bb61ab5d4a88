"""apply_patch: several files changed by one patch, all of them or none (T-08). Reading and locating it are in
`patch_text` and `patching`, which are loaded with the first patch."""

from treadle.adapters.tools.builtin.base import parameters
from treadle.adapters.tools.builtin.file_tool import Change, FileTool, Stale, change, sha256
from treadle.adapters.tools.builtin.text import MAX_FILE, Text, decode, encode
from treadle.diff.encodings import visible
from treadle.errors import EditError, ToolError
from treadle.ports.toolset import Invocation
from treadle.ports.workspace import Workspace, inert
from treadle.protocol.tools import ToolSpec


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
        parameters=parameters(
            required=("patch",), patch={"type": "string", "minLength": 1, "description": "The whole patch."}
        ),
        summary_argument="",
        effect="edit",
    )

    def changes(self, workspace: Workspace, invocation: Invocation) -> list[Change]:
        from treadle.adapters.tools.builtin.patching import plan

        files = _Files(workspace)
        patch = invocation.arguments["patch"]
        encode(patch)  # refuses half surrogate pairs, which stand for broken bytes in some texts
        try:
            patch_plan = plan(patch, files.read)
        except EditError as error:
            known = invocation.known_files
            stale = tuple(
                path for path, (data, _) in files.found.items() if known.get(path, "") not in ("", sha256(data))
            )
            if stale:  # that is why it does not fit
                raise Stale(stale) from None
            raise EditError(visible(f"Nothing was changed. {error}")) from None
        old_paths = {workspace.relative(new): workspace.relative(old) for new, old in patch_plan.old_paths.items()}
        executable = {workspace.relative(path): value for path, value in patch_plan.executable.items()}
        return files.changes(patch_plan.texts, old_paths, executable)


class _Files:
    """The files of one patch as they are on disk, each read once."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.found: dict[str, tuple[bytes, Text]] = {}  # By path relative to the root; only those that exist

    def read(self, path: str) -> str | None:
        path = self._workspace.relative(path)
        if path not in self.found:
            if self._workspace.stat(path) is None:
                return None
            data = self._workspace.read_bytes(path, MAX_FILE)
            self.found[path] = (data, decode(data, inert(path)))
        return self.found[path][1].text

    def changes(
        self, texts: dict[str, str | None], old_paths: dict[str, str], executable: dict[str, bool]
    ) -> list[Change]:
        changes: dict[str, Change] = {}
        for given_path, text in texts.items():
            path = self._workspace.relative(given_path)
            if path in changes:
                raise ToolError(f"Nothing was changed. The patch names {inert(path)} in two ways; use one of them.")
            old = self.found[path][0] if path in self.found else None
            entry = self._workspace.inspect(path) if text is None and old is not None else None
            if entry is not None and entry.kind == "link":  # the patch shows the target, and would delete the link
                raise ToolError(
                    f"Nothing was changed. {inert(path)} is a symbolic link, which a patch neither deletes nor moves; "
                    "use run_command, or name the file it points to."
                )
            source = old_paths.get(path, path)
            # In the encoding that the file has, or the one that it was moved from.
            encoding = self.found[source][1].encoding if source in self.found else "utf-8"
            new = None if text is None else encode(text, encoding)
            mode = None if new is None else self._mode(source, source != path, executable.get(path))
            pre = None if old is None else sha256(old)
            if pre is not None or new is not None:  # else it was added and deleted by the same patch
                changes[path] = change(path, old, new, pre=pre, mode=mode)
        return list(changes.values())

    def _mode(self, source: str, moves: bool, executable: bool | None) -> int | None:
        """The mode of a file that is moved, or that the patch makes executable or not; None: as it is."""
        stat = self._workspace.stat(source)
        if executable is None:
            return stat.mode if stat is not None and moves else None
        old = self._workspace.locate(source, write=True).mode if stat is None else stat.mode
        new = old | (old & 0o444) >> 2 if executable else old & ~0o111
        return None if new == old and not moves else new
