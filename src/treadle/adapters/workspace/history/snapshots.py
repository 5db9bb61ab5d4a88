"""The snapshots of one project (`treadle.ports.snapshots`): a front for the modules that each do one part. All stored
data lies in `<home>/snapshots`, outside the project; changes of the project go through `transaction`.

Changes that `treadle.chat.change_rules` forbids do not get into a project by the view of a command: they are left out
of the effect, and reported."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from treadle.adapters.workspace.history.apply import GivenContent, StoreSource
from treadle.adapters.workspace.history.content_store import ContentStore, open_after_images
from treadle.adapters.workspace.history.git_index import compute_git_fingerprint, mark_tracked
from treadle.adapters.workspace.history.journal import Journals
from treadle.adapters.workspace.history.states import Folders, SeenFiles, hold_file, is_folder, read_path_state
from treadle.adapters.workspace.history.transaction import Transactions
from treadle.adapters.workspace.root import Root
from treadle.chat.change_rules import explain_left_out
from treadle.diff.changes import drop_compiled
from treadle.diff.diff import is_text
from treadle.errors import NotFound, ToolError
from treadle.ports.snapshots import Effect, Plan, UndoRequest
from treadle.protocol.files import (
    FileChange,
    FileConflict,
    FileState,
    Link,
    Trail,
    Uncaptured,
    decode_path,
    find_git_unit,
)

if TYPE_CHECKING:
    from treadle.adapters.workspace.git import Git
    from treadle.adapters.workspace.history import capture as captures
    from treadle.adapters.workspace.history import effects, overlay_upper, repository_changes, undo_plan
else:

    class LazyModule:
        """A module that is loaded when it is first used: most runs use few of them."""

        def __init__(self, name: str) -> None:
            self._name = f"treadle.adapters.workspace.history.{name}"

        def __getattr__(self, attribute: str) -> object:
            return getattr(import_module(self._name), attribute)

    _NAMES = ("capture", "effects", "overlay_upper", "repository_changes", "undo_plan")
    captures, effects, overlay_upper, repository_changes, undo_plan = map(LazyModule, _NAMES)


class ProjectSnapshots:
    """Holds nothing open between calls. Several of one home and root work side by side, in any number of processes."""

    def __init__(self, root: Root, home: Path, git: "Callable[[], Git | None]" = lambda: None) -> None:
        """`git` is the project's own, asked whether other references hold the commits of one that is gone."""
        self._git, self._folder = git, home / "snapshots"
        self.root = self._root = root
        self.images, self.journals = ContentStore(self._folder), Journals(self._folder / "journals")
        self._transactions = Transactions(root, self.images, self.journals, lambda: compute_git_fingerprint(root))

    def read_state(self, path: str) -> FileState | None:
        return read_path_state(self._root, path)

    def list_ignored_folders(self, most: int) -> tuple[str, ...]:
        from treadle.adapters.workspace.paths.ignore import list_ignored_folders

        with self._root.hold(".") as (top, _):
            return tuple(list_ignored_folders(top, most))

    def change(self, name: str, files: Sequence[FileChange], contents: Mapping[str, bytes] | None) -> Effect:
        """Without contents their bytes are kept."""
        source = StoreSource(self.images) if contents is None else GivenContent(contents)
        effect = self._transactions.change(name, files, source)
        if not effect.conflicts:
            self.remember(effect.files)
        return effect

    def assess(self, files: Sequence[FileChange]) -> Effect:
        return Effect(
            mark_tracked(self._root, files), history=tuple(repository_changes.find_obeyed_files(self._root, files))
        )

    def is_unfinished(self, name: str, files: Sequence[FileChange]) -> bool:
        return self._transactions.is_unfinished(name, files)

    def read_content(self, digest: str, limit: int = 0) -> bytes:
        with suppress(NotFound):
            return self.images.read(digest, limit)
        return open_after_images(self._folder).read(digest, limit)

    def is_after_image(self, digest: str) -> bool:
        return open_after_images(self._folder).has_object(digest)

    def remember(self, files: Sequence[FileChange]) -> None:
        remember(self._root, open_after_images(self._folder), files)

    def read_effect(self, view: str, changed_paths: frozenset[str] = frozenset()) -> Effect:
        return self._withhold_changes(view, self._read_effect(view, distrusted=changed_paths), judged=True)

    def render_diff(self, view: str, effect: Effect) -> str:
        return effects.describe(self._root, view, effect)

    def commit(self, name: str, view: str, changed_paths: frozenset[str] = frozenset()) -> Effect:
        seen_files = SeenFiles()

        def read() -> Effect:
            return self._withhold_changes(view, self._read_effect(view, seen_files, changed_paths))

        effect = self._transactions.commit(name, view, read, effects.choose_source, seen_files)
        remember(self._root, open_after_images(self._folder), effect.files, seen_files)
        return effect

    def freeze(self, view: str, into: str, changed_paths: frozenset[str] = frozenset()) -> None:
        upper = overlay_upper.Upper(view)
        count_lines = partial(effects.count_copied_lines, self._root)
        overlay_upper.freeze_layer(
            upper, lambda: effects.read_layer(self._root, upper, SeenFiles(), changed_paths), into, count_lines
        )

    def note_committed(self, view: str, frozen_view: str) -> None:
        overlay_upper.Upper(view).note_committed(overlay_upper.read_frozen(frozen_view).record)

    def _read_effect(
        self, view: str, seen_files: SeenFiles | None = None, distrusted: frozenset[str] = frozenset()
    ) -> Effect:
        if captures.is_copied(view):
            return captures.read_copy(self._root, view, self.images)
        if overlay_upper.is_frozen(view):
            return overlay_upper.read_frozen(view).effect
        return effects.read(self._root, view, seen_files=seen_files, distrusted=distrusted)

    def open_beginning(self, view: str) -> "captures.Beginning":
        return captures.Beginning(view, self.images, self._root, self._make_captures())

    def _withhold_changes(self, view: str, effect: Effect, *, judged: bool = False) -> Effect:
        """Without what no view brings in; if it is to be `judged`, with what it does to git's history."""
        files = drop_compiled(mark_tracked(self._root, effect.files))
        read_left_bytes = partial(effects.read_left_bytes, view)
        repository = self._make_repository_changes(files, self._read_current_bytes, read_left_bytes)
        links = repository.find_new_gitlinks() if repository is not None else {}
        remaining = withhold(self._root, replace(effect, files=files), links)
        if not judged:
            return remaining
        reasons = repository.list_reasons() if repository is not None else ()
        return replace(remaining, history=(*reasons, *self.assess(files).history))

    def _make_repository_changes(
        self, files: Sequence[FileChange], old: "repository_changes.Content", new: "repository_changes.Content"
    ) -> "repository_changes.RepositoryChanges | None":
        if not any(file.path.startswith(".git/") for file in files):
            return None
        return repository_changes.RepositoryChanges(self._root, files, old, new, self._git)

    def discard(self, name: str) -> Effect | None:
        return self._transactions.discard(name, effects.choose_source)

    def is_decided(self, name: str) -> bool:
        return self.journals.read(name) is not None

    def is_apply_decided(self, name: str) -> bool:
        journal = self.journals.read(name)
        return journal is not None and journal.verdict in ("commit", "restore")

    def capture(self, name: str) -> tuple[Uncaptured, ...]:
        return self._make_captures().capture(name)

    def compare(self, name: str) -> Effect:
        effect = self._make_captures().compare(name)
        repository = self._make_repository_changes(effect.files, self._read_old_bytes, self._read_current_bytes)
        judgement = self.assess(effect.files)
        reasons = repository.list_reasons() if repository is not None else ()
        effect = replace(effect, files=judgement.files, history=(*reasons, *judgement.history))
        if self._root.ground is not None:
            self._root.ground.record_old_states({file.path: file.before for file in effect.files})
        self.remember(effect.files)
        return effect

    def _read_old_bytes(self, file: FileChange, most: int) -> bytes:
        return self.read_content(file.before.digest if file.before is not None else "", most)

    def _read_current_bytes(self, file: FileChange, most: int) -> bytes:
        return self._root.read_bytes(decode_path(file.path), most)

    def withdraw(self, name: str, effect: Effect) -> Effect:
        permitted_effect = withhold(self._root, effect)
        permitted_paths = frozenset(file.path for file in permitted_effect.files)
        withdrawn = (file for file in effect.files if file.path not in permitted_paths)
        trails = tuple(Trail(each.path, (Link(each.before, each.after),)) for each in withdrawn)
        if not trails:
            return effect
        undone = self.apply(name, UndoRequest(trails))
        self.journals.release(name)
        return effect if undone.conflicts else replace(permitted_effect, conflicts=effect.conflicts)

    def release(self, name: str) -> None:
        self._make_captures().release(name)
        self.journals.release(name)

    def _make_captures(self) -> "captures.Captures":
        return captures.Captures(self._root, self.images, self._folder)

    def plan(self, request: UndoRequest) -> Plan:
        return undo_plan.plan_undo(self._root, self.images, request)

    def read_texts(self, change: FileChange) -> tuple[bytes | None, bytes | None]:
        return undo_plan.read_texts(self._root, self.images, change)

    def keep_hunks(self, trail: Trail, hunks: Sequence[int]) -> FileChange:
        return undo_plan.keep_hunks(self._root, self.images, trail, hunks)

    def apply(self, name: str, request: UndoRequest) -> Effect:
        plan = partial(undo_plan.plan_undo, self._root, self.images, request, keep=True)
        return self._transactions.restore(name, plan)


_MOST_REMEMBERED = 500  # So many files of one set of changes are remembered …
_LARGEST_REMEMBERED = 1 << 20  # … of this size at most


def remember(
    root: Root, after_images: ContentStore, changes: Sequence[FileChange], seen_files: SeenFiles | None = None
) -> None:
    """Keep the small texts that these changes left, as they are on disk now, unless they were seen. Never fails."""
    shown = ((each.path, each.after) for each in changes if not each.ignored and not find_git_unit(each.path))
    files = ((path, state) for path, state in shown if state is not None and state.kind == "file")
    candidates = [(path, state) for path, state in files if state.size <= _LARGEST_REMEMBERED]
    if not candidates:
        return
    with suppress(OSError, ToolError), Folders(root.open_top()) as folders, after_images.open_batch() as batch:
        for path, state in candidates[:_MOST_REMEMBERED]:
            with suppress(OSError, ToolError):
                if batch.has_content(state.digest):
                    continue
                data = None if seen_files is None else seen_files.get_new_bytes(state.digest)
                if data is None:
                    with hold_file(*folders.locate(path)) as fd:
                        data = os.pread(fd, state.size + 1, 0)
                    if hashlib.sha256(data).hexdigest() != state.digest:
                        continue
                if is_text(data):
                    batch.add(state.digest, data)


IN_THE_WAY = "it would take the place of a folder of the project, and what it is itself is never made"


def withhold(root: Root, effect: Effect, other_reasons: Mapping[str, str] = MappingProxyType({})) -> Effect:
    """Return the effect without paths that are never committed (S-16) and without `other_reasons`, by path with the
    reason; a folder is reported once for everything below it. A withheld path that would replace a folder is a
    conflict: without it, the commit would only remove the folder."""
    reasons = {**explain_left_out(effect.files, lambda path: root.inspect(path) is not None), **other_reasons}
    if not reasons:
        return effect
    reported_paths = [path for path in reasons if path.rpartition("/")[0] not in reasons]
    withheld = (file for file in effect.files if file.path in reasons)
    replaced = [file.path for file in withheld if is_folder(file.before) and file.after and not is_folder(file.after)]
    conflicts = (FileConflict(path, f"{IN_THE_WAY}: {reasons[path]}") for path in replaced)
    uncaptured = (Uncaptured(path, reasons[path]) for path in reported_paths if path not in replaced)
    files = tuple(file for file in effect.files if file.path not in reasons)
    all_conflicts, all_uncaptured = (*effect.conflicts, *conflicts), (*effect.uncaptured, *uncaptured)
    return replace(effect, files=files, conflicts=all_conflicts, uncaptured=all_uncaptured)
