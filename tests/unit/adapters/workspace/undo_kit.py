"""A project whose changes are recorded as a chat would: the effect of a function on real files, by looking before and
after, and the way back over the ledger and the snapshots."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.unit.adapters.workspace.trees_of import folders_open, states_below
from treadle.adapters.workspace.history.git_index import compute_git_fingerprint
from treadle.adapters.workspace.history.snapshots import ProjectSnapshots
from treadle.adapters.workspace.history.states import Folders
from treadle.adapters.workspace.root import Root
from treadle.chat.ledger import LedgerEntry, find_last_undo, find_redo_trails, list_standing_paths, select_trails
from treadle.ports.snapshots import Effect, Plan, UndoRequest
from treadle.protocol.events import FilesChanged, Redone, RestoreRequested, Undone
from treadle.protocol.files import DiffStat, FileChange, FileState, Trail, encode_path, make_file_change

Tree = dict[str, FileState]


class Project:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "project"
        self.path.mkdir(parents=True, exist_ok=True)
        self.root = Root(str(self.path))
        self.snapshots = ProjectSnapshots(self.root, folder / "home")
        self.entries: list[LedgerEntry] = []
        self.requests: list[RestoreRequested] = []
        self.runs: list[int] = []
        self.gated = False
        """If true, a redo leaves alone files that are never committed, as a chat's redo does."""
        self._seq = 0

    def write(self, path: str, data: bytes | str, mode: int = 0o644) -> None:
        file = self.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data.encode() if isinstance(data, str) else data)
        file.chmod(mode)

    def read(self, path: str) -> bytes:
        return (self.path / path).read_bytes()

    def tree(self) -> Tree:
        """Everything there is, exactly."""
        return states_below(self.path)

    def _keep_all(self) -> None:
        with self.snapshots.images.open_batch() as batch, Folders(str(self.path)) as open_folders:
            for above, folders, files in os.walk(self.path):
                for name in [*folders, *files]:
                    open_folders.read_state(encode_path(os.path.relpath(os.path.join(above, name), self.path)), batch)

    # -- what the chat does -------------------------------------------------------------------------------------------

    def change(self, act: Callable[[], object], *, git: bool = False) -> tuple[FileChange, ...]:
        """Act as the chat; all old content is kept first, and the changes are recorded."""
        with folders_open(self.path):  # a file tool would be refused there; a command's walk opens them, too
            self._keep_all()
        old_tree = self.tree()
        act()
        new_tree = self.tree()
        files = tuple(
            make_file_change(path, old_tree.get(path), new_tree.get(path), DiffStat())
            for path in sorted({*old_tree, *new_tree})
            if old_tree.get(path) != new_tree.get(path)
        )
        self.snapshots.remember(files)
        change = FilesChanged(files, git=compute_git_fingerprint(self.root) if git else "")
        self.entries.append(LedgerEntry(self.tick(), change, files))
        return files

    def begin_run(self) -> int:
        """The number of a run that begins here."""
        self.runs.append(self.tick())
        return len(self.runs)

    def run(self, number: int) -> dict[str, int]:
        """Where a run begins and ends, as a request has it."""
        upto = self.runs[number] - 1 if number < len(self.runs) else 0
        return {"since": self.runs[number - 1], "upto": upto}

    def tick(self) -> int:
        self._seq += 1
        return self._seq

    # -- and back -----------------------------------------------------------------------------------------------------

    def make_request(self, request: RestoreRequested) -> UndoRequest:
        request_trails: tuple[Trail, ...]
        if request.kind == "redo":
            request_trails = find_redo_trails(self.entries, request.of, self.runs)
        else:
            request_trails = select_trails(self.entries, request, self.runs)
        git = next((e.change.git for e in reversed(self.entries) if getattr(e.change, "git", "")), "")
        gated = self.gated and request.kind == "redo"
        return UndoRequest(request_trails, request.hunks, request.merge, git, list_standing_paths(self.entries), gated)

    def plan(self, **options: Any) -> Plan:
        return self.snapshots.plan(self.make_request(RestoreRequested("p", "undo", **options)))

    def undo(self, **options: Any) -> Effect:
        return self._carry_out(RestoreRequested(f"u{self.tick()}", "undo", **options), Undone)

    def redo(self, **options: Any) -> Effect:
        undo = find_last_undo(self.entries, self.requests)
        return self._carry_out(RestoreRequested(f"u{self.tick()}", "redo", of=undo, **options), Redone)

    def _carry_out(self, request: RestoreRequested, kind: type[Undone] | type[Redone]) -> Effect:
        self.requests.append(request)
        undo_request = self.make_request(request)
        planned = self.snapshots.plan(undo_request)
        effect = self.snapshots.apply(request.restore, undo_request)
        assert planned.files == effect.files  # a preview shows what is done
        assert planned.conflicts == effect.conflicts
        change = kind(request.restore, effect.files, git=effect.git)
        self.entries.append(LedgerEntry(self.tick(), change, effect.files, request))
        return effect
