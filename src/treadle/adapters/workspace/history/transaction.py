"""The one way in which a set of changes gets into a project (W-02, W-08): all of them or none, even after a crash.

1. Every path must be as before (or already as after); content that will be lost is kept, durably.
2. All new files are made ready on the project's own file system. A full disk shows here, and nothing has happened yet.
3. The journal is written: that is the decision, one for each name.
4. The changes are made: nothing but removing, renaming, and setting modes. An entry that goes is first exchanged or
   renamed, looked at once more, and only then removed: one that others saved since the last look goes back.
5. It is noted that they are.

A file tool knows its changes beforehand and records them in its intent: the intent shows later if they were made, so no
decision is kept once they are. Of a single file the rename is the decision, and there is no journal.

A process that comes after a crash finds either no decision, and the project as it was, or a decision, which it
completes: a path that is as after is done, one that is as before is made, any other state is a change by others. Then
the effect of a command is taken back as a whole and refused; an undo leaves that path and reports it. Changes that fail
for another reason, also at the second try, are taken back, too, with the images that were kept in step 1, and the
decision is withdrawn."""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec

from treadle.adapters.workspace.history import apply
from treadle.adapters.workspace.history.apply import ChangeApplier, ContentSource, PathProgress, Surveyor
from treadle.adapters.workspace.history.content_store import ContentStore
from treadle.adapters.workspace.history.journal import Ending, Journal, Journals, Verdict
from treadle.adapters.workspace.history.staging import StagingFolder
from treadle.adapters.workspace.history.states import Folders, SeenFiles, is_folder
from treadle.adapters.workspace.paths.durable import FEW, SyncAhead
from treadle.adapters.workspace.root import Root
from treadle.base.file_system import reach_faultpoint
from treadle.errors import NotFound, ToolError, TreadleError
from treadle.ports.snapshots import Effect, Plan
from treadle.ports.workspace import escape_name
from treadle.protocol.files import FileChange, FileConflict, decode_path, find_git_unit

SourceOf = Callable[[str], ContentSource]  # The bytes of the files in a view folder
_NOTHING = Effect(())


class Transactions:
    """The changes to one root. `fingerprint` tells what `.git` is like, where changes reach into it."""

    def __init__(self, root: Root, images: ContentStore, journals: Journals, fingerprint: Callable[[], str]) -> None:
        self._root, self._images, self._journals, self._fingerprint = root, images, journals, fingerprint
        self._stored_content = apply.StoreSource(images)

    def commit(
        self, name: str, view: str, read: Callable[[], Effect], source_of: SourceOf, seen_files: SeenFiles | None = None
    ) -> Effect:
        with self._lock_root() as folders:
            journal = self._journals.read(name)
            if journal is not None:
                return self._complete(journal, source_of, folders)
            self._stage(folders, name).remove()  # staged files of an earlier try may belong to another effect
            effect = read()
            new_journal = self._make_journal(name, "commit", view, effect)
            if effect.conflicts:
                return self._report_settled(self._refuse(new_journal, effect.conflicts))
            source = source_of(view)
            if not effect.files and not any(True for _ in source.list_touched_files()):
                return effect  # most commands only look: there is nothing to decide, and nothing to wait for
            return self._begin_changes(new_journal, source, folders, seen_files)

    def change(self, name: str, files: Sequence[FileChange], source: ContentSource) -> Effect:
        """These changes, or those that were begun by this name. With conflicts nothing is changed."""
        with self._lock_root() as folders:
            journal = self._journals.read(name)
            if journal is not None:
                return self._complete(journal, lambda _view: source, folders)
            needed_changes = Effect(tuple(each for each in files if not _is_existing_folder(folders, each)))
            new_journal = self._make_journal(name, "commit", "", needed_changes, passing=True)
            return self._begin_changes(new_journal, source, folders)

    def is_unfinished(self, name: str, files: Sequence[FileChange]) -> bool:
        """True if changes of this name are decided and not complete; else put back a save and remove the stage."""
        with self._lock_root() as folders:
            is_decided = self._journals.read(name) is not None
            if not is_decided:
                steps = [each for each in files if each.before or not is_folder(each.after)]
                with self._stage(folders, name) as stage:
                    for entry in stage.find_entries() if len(steps) == 1 else ():  # else there was a journal
                        apply.restore_saves(folders, steps, stage, {steps[0].path: entry}, {})
                    stage.remove()
            return is_decided

    def restore(self, name: str, plan: Callable[[], Plan]) -> Effect:
        with self._lock_root() as folders:
            journal = self._journals.read(name)
            if journal is not None:
                return self._complete(journal, lambda _view: self._stored_content, folders)
            return self._begin_changes(self._make_journal(name, "restore", "", plan()), self._stored_content, folders)

    def discard(self, name: str, source_of: SourceOf) -> Effect | None:
        stands = self._journals.read(name) or self._journals.decide(self._make_journal(name, "discard"))
        with self._lock_root() as folders:
            if stands.verdict in ("commit", "restore"):
                if not self._journals.is_turned_back(name):
                    return self._complete(stands, source_of, folders)
                self._take_back(stands, folders)
                self._journals.decide(self._make_journal(name, "discard"))
            self._stage(folders, name).remove()
            return None

    def _begin_changes(
        self, new_journal: Journal, source: ContentSource, folders: Folders, seen_files: SeenFiles | None = None
    ) -> Effect:
        self._journals.begin(new_journal.name)
        early_sync = SyncAhead(folders.hold_folder(())) if len(new_journal.files) > FEW else None
        self._stage(folders, new_journal.name, "back").remove()
        with self._stage(folders, new_journal.name) as stage, self._images.open_batch() as batch:
            try:
                surveyor = Surveyor(folders, batch, seen_files, retry=new_journal.passing)
                progress = surveyor.survey(new_journal.files)
                conflicts = _find_conflicts(progress)
                making = ChangeApplier(folders, progress, source, stage, _number_changes(new_journal.files))
                single = new_journal.passing and making.single
                if new_journal.passing and making.is_complete and not conflicts:
                    return _make_result(new_journal, Ending())
                batch.give_names()
                if conflicts and new_journal.verdict == "commit":
                    return self._report_settled(self._refuse(new_journal, conflicts))
                try:
                    stage.open(new=True)
                    synced_device = making.prepare(lasting=not single)
                except OSError as error:
                    raise _explain_failure(error) from error
                batch.note_synced(synced_device)  # one sync for what was and for what comes
                if early_sync is not None:
                    early_sync.check()
                batch.finish()
                if self._root.ground is not None:
                    self._root.ground.record_old_states({change.path: change.before for change in new_journal.files})
                still_before = [each.change for each in progress if each.standing == "before"]
                closed_modes = apply.find_closed_folders(folders, still_before)
                folders.forget()
                if closed_modes and new_journal.passing:
                    folder = escape_name(decode_path(next(iter(closed_modes))))
                    read_only = f"The folder {folder} is read-only: its permissions do not allow writing."
                    raise ToolError(f"Nothing was changed. {read_only}")
                journal = msgspec.structs.replace(new_journal, closed=closed_modes)
                if not single:
                    journal = self._journals.decide(journal)
            except BaseException:
                if self._journals.read(new_journal.name) is None:  # else what is ready is what completes it
                    stage.remove()
                raise
            if journal.verdict not in ("commit", "restore"):
                stage.remove()
                return self._report_settled(journal)
            return self._carry_out(journal, making, conflicts, folders, stage)

    def _refuse(self, journal: Journal, conflicts: Sequence[FileConflict]) -> Journal:
        refused = msgspec.structs.replace(journal, verdict="refuse", conflicts=tuple(conflicts))
        return refused if journal.passing else self._journals.decide(refused)

    def _complete(self, journal: Journal, source_of: SourceOf, folders: Folders) -> Effect:
        if journal.verdict not in ("commit", "restore"):
            return self._report_settled(journal)
        with self._stage(folders, journal.name) as stage:
            if (ending := self._journals.read_ending(journal.name)) is not None:
                stage.remove()
                return _make_result(journal, ending)
            if self._journals.is_turned_back(journal.name):
                self._take_back(journal, folders)
                raise ToolError("These changes could not be made and were taken back. Nothing was changed; try again.")
            numbers = _number_changes(journal.files)
            stage.open()
            apply.restore_saves(folders, journal.files, stage, numbers, journal.closed)
            survey = Surveyor(folders).survey(journal.files)
            conflicts = _find_conflicts(survey)
            if conflicts and journal.verdict == "commit":
                return self._call_off(journal, conflicts, folders)
            making = ChangeApplier(folders, survey, source_of(journal.view), stage, numbers)
            making.prepare()
            return self._carry_out(journal, making, conflicts, folders, stage)

    def _report_settled(self, journal: Journal) -> Effect:
        if journal.verdict == "refuse":
            return _make_result(journal, Ending())
        verdict_words = "was discarded" if journal.verdict == "discard" else "was settled before"
        raise ToolError(f"The effect of this call {verdict_words}; nothing was changed now.")

    def _carry_out(
        self, journal: Journal, making: ChangeApplier, conflicts: list[FileConflict], folders: Folders,
        stage: StagingFolder,
    ) -> Effect:  # fmt: skip
        try:
            conflicts = conflicts + self._apply_changes(journal, making, folders, stage)
        except Exception as error:  # any error: a decided change that cannot be made is taken back
            try:
                self._take_back(journal, folders)
            except Exception as second:
                raise ToolError(
                    f"The changes could not be made ({_describe_error(error)}), and those that were could not be "
                    f"taken back ({_describe_error(second)}). That is done at the next try."
                ) from error
            reason = _describe_error(error)
            raise ToolError(f"The changes could not be made ({reason}), so none of them was.") from error
        if conflicts and journal.verdict == "commit":
            return self._call_off(journal, conflicts, folders)
        git = self._fingerprint() if any(find_git_unit(change.path) for change in journal.files) else ""
        ending = Ending(tuple(conflicts), git)
        if not journal.passing:
            self._journals.record_ending(journal.name, ending)
            making.source.let_go(making.adopted)
            stage.remove()
            return _make_result(journal, ending)
        with suppress(OSError):  # the changes are made: a process that finds a rest of the decision sees that, too
            self._journals.withdraw(journal.name)
            stage.remove()
        return _make_result(journal, ending)

    def _apply_changes(
        self, journal: Journal, making: ChangeApplier, folders: Folders, stage: StagingFolder
    ) -> list[FileConflict]:
        """Make the changes and return the conflicts, whose paths are left alone. After an exception try once more from
        the state found then, as after a crash: a single failure must not cost the changes."""
        try:
            return making.make(journal.closed)
        except Exception:
            folders.forget()
            numbers = _number_changes(journal.files)
            stage.open()
            apply.restore_saves(folders, journal.files, stage, numbers, journal.closed)
            survey = Surveyor(folders).survey(journal.files)
            if (conflicts := _find_conflicts(survey)) and journal.verdict == "commit":
                return conflicts
            again = ChangeApplier(folders, survey, making.source, stage, numbers)
            again.prepare()
            return [*conflicts, *again.make(journal.closed)]

    def _call_off(self, journal: Journal, conflicts: list[FileConflict], folders: Folders) -> Effect:
        """Take back the command's whole effect, because one of its files was changed by others first."""
        self._take_back(journal, folders)
        return self._report_settled(self._refuse(journal, conflicts))

    def _take_back(self, journal: Journal, folders: Folders) -> None:
        self._journals.turn_back(journal.name)
        reach_faultpoint("transaction.turned_back")
        folders.forget()
        changes, numbers = apply.reverse_changes(journal.files), _number_changes(journal.files)
        with self._stage(folders, journal.name) as stage:
            stage.open()
            apply.restore_saves(folders, journal.files, stage, numbers, journal.closed)
            stage.remove()  # its space may be what is missing
        with self._stage(folders, journal.name, "back") as stage:
            stage.open()
            apply.restore_saves(folders, changes, stage, numbers, journal.closed)
            survey = Surveyor(folders).survey(changes)
            making = ChangeApplier(folders, survey, self._stored_content, stage, numbers)
            making.prepare()
            making.make({**apply.find_closed_folders(folders, changes), **journal.closed})
            self._journals.withdraw(journal.name)
            stage.remove()

    def _make_journal(
        self, name: str, verdict: Verdict, view: str = "", effect: Effect | Plan = _NOTHING, *, passing: bool = False
    ) -> Journal:
        root, uncaptured = self._root, effect.uncaptured if isinstance(effect, Effect) else ()
        world = "" if root.ground is None else root.ground.name
        content = (effect.files, () if verdict == "commit" else effect.conflicts, uncaptured)
        return Journal(name, root.path, verdict, view, *content, bound=root.bound, world=world, passing=passing)

    @contextmanager
    def _lock_root(self) -> Iterator[Folders]:
        try:
            with self._journals.lock(self._root.key), Folders(self._root.open_top()) as folders:
                yield folders
        except OSError as error:
            raise _explain_failure(error) from error
        except NotFound as error:
            raise ToolError(f"The changes are not made. {error}") from error

    def _stage(self, folders: Folders, name: str, way: str = "") -> StagingFolder:
        home = os.path.join(self._images.folder, "stage")
        return StagingFolder(folders.hold_folder(()), home, f"{self._root.key}/{name}/{way}")


def _explain_failure(error: OSError) -> ToolError:
    return ToolError(f"The changes are not made: {_describe_error(error)}. Try again when that is mended.")


def _is_existing_folder(folders: Folders, change: FileChange) -> bool:
    """True if the change creates a folder that others have created meanwhile: then its mode is theirs."""
    if change.before is not None or change.after is None or change.after.kind != "directory":
        return False
    status = folders.lstat(change.path)
    return status is not None and stat.S_ISDIR(status.st_mode) and not apply.is_mode_pending(change, status)


def _number_changes(changes: Sequence[FileChange]) -> dict[str, str]:
    return {change.path: str(number) for number, change in enumerate(changes)}


def _find_conflicts(progress: Sequence[PathProgress]) -> list[FileConflict]:
    return [FileConflict(each.change.path, each.reason) for each in progress if each.standing == "other"]


def _make_result(journal: Journal, ending: Ending) -> Effect:
    conflict_paths = {conflict.path for conflict in ending.conflicts}
    files = tuple(change for change in journal.files if change.path not in conflict_paths)
    return Effect(files, (*journal.conflicts, *ending.conflicts), journal.uncaptured, ending.git)


def _describe_error(error: Exception) -> str:
    if isinstance(error, OSError):
        return os.strerror(error.errno or 0)
    return str(error) if isinstance(error, TreadleError) else f"{type(error).__name__}: {error}"
