"""The ledger against a model of the disk: after any work of a chat and a person, undos, redos and keeps in any order,
an undo brings back exactly what the rules say, and a person's edit always survives (W-02, W-03, fault 20)."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.chance import examples
from treadle.adapters.workspace.history.undo_plan import Blocked, PathUndo, State
from treadle.chat.ledger import (
    LedgerEntry,
    covers_path,
    find_git_fingerprint,
    find_last_undo,
    find_redo_trails,
    find_unnamed_paths,
    select_trails,
)
from treadle.protocol.events import ChangesKept, FilesChanged, Redone, RestoreRequested, Undone
from treadle.protocol.files import DiffStat, FileChange, FileState, Link, Trail, encode_path, make_file_change

PATHS = ("a", "b", "c")


def text(number: int) -> FileState:
    return FileState("file", 0o644, f"{number:064x}", number)


def folder() -> FileState:
    return FileState("directory", 0o755)


class Write(msgspec.Struct):
    """A real change of a path: the ledger is compared with these."""

    seq: int
    path: str
    old_state: FileState | None
    new_state: FileState | None
    agent: bool = True
    alive: bool = True
    is_kept: bool = False


class Opaque(PathUndo):
    """The way back where nothing is a text, and all that was there can be had."""

    def __init__(self, path: str, now: State) -> None:
        self._path, self._now, self.made = path, now, {}

    def read_text(self, state: State) -> None:
        return None

    def _require(self, state: State) -> None:
        pass


class World:
    """A disk, a log, and the way in which the engine and the snapshots treat requests."""

    def __init__(self) -> None:
        self.disk: dict[str, FileState | None] = dict.fromkeys(PATHS)
        self.entries: list[LedgerEntry] = []
        self.requests: list[RestoreRequested] = []
        self.writes: list[Write] = []
        self.killed: dict[str, list[Write]] = {}
        self.runs = [0]
        self.seq = 0
        self.fresh = 0

    def tick(self) -> int:
        self.seq += 1
        return self.seq

    def content(self) -> FileState:
        self.fresh += 1
        return text(self.fresh)

    def begin_run(self) -> None:
        self.runs.append(self.tick())

    def write(self, path: str, state: FileState | None, *, agent: bool) -> None:
        old_state = self.disk[path]
        if state == old_state:
            return
        self.disk[path] = state
        self.writes.append(Write(self.tick(), path, old_state, state, agent))
        if agent:
            file = make_file_change(path, old_state, state, DiffStat())
            self.entries.append(LedgerEntry(self.seq, FilesChanged((file,)), (file,)))

    def request(self, kind: str, **more: object) -> RestoreRequested:
        self.tick()
        request = RestoreRequested(f"u{self.seq}", kind, **more)  # type: ignore[arg-type]
        self.requests.append(request)
        return request

    def carry_out(self, target: tuple[Trail, ...], request: RestoreRequested) -> list[FileChange]:
        changes = []
        for trail in target:
            now = self.disk[trail.path]
            try:
                target = Opaque(trail.path, now).find(trail.chain, merging=False)
            except Blocked:
                continue
            if target.state != now:
                file = make_file_change(
                    trail.path, now, target.state, DiffStat(), merged=target.merged, rebased=target.rebased
                )
                changes.append(file)
                self.disk[trail.path] = target.state
        kind = Undone if request.kind == "undo" else Redone
        self.entries.append(LedgerEntry(self.tick(), kind(request.restore, tuple(changes)), tuple(changes), request))
        return changes

    def undo(self, since: int, upto: int = 0) -> list[FileChange]:
        request = self.request("undo", since=since, upto=upto)
        changes = self.carry_out(select_trails(self.entries, request), request)
        changed_paths = {file.path for file in changes}
        self.killed[request.restore] = [w for w in self.scope(since, upto) if w.path in changed_paths]
        for write in self.killed[request.restore]:
            write.alive = False
        return changes

    def redo(self) -> tuple[str, list[FileChange]]:
        undo = find_last_undo(self.entries, self.requests)
        if not undo:
            return "", []
        request = self.request("redo", of=undo)
        changes = self.carry_out(find_redo_trails(self.entries, undo), request)
        for write in self.killed[undo]:
            if write.path in {file.path for file in changes}:
                write.alive = True
                self.writes.remove(write)  # a redone change comes after all changes made since
                self.writes.append(write)
        return undo, changes

    def keep(self, path: str) -> None:
        request = self.request("keep", paths=(path,))
        files = tuple(
            make_file_change(trail.path, trail.links[0].before, trail.links[-1].after, DiffStat())
            for trail in select_trails(self.entries, request)
        )
        self.entries.append(LedgerEntry(self.tick(), ChangesKept(request.restore, files), files, request))
        for write in self.scope(0, 0):
            if write.path in {file.path for file in files}:
                write.is_kept = True

    def scope(self, since: int, upto: int) -> list[Write]:
        return [
            w
            for w in self.writes
            if w.agent and w.alive and not w.is_kept and w.seq > since and (not upto or w.seq <= upto)
        ]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(PATHS), st.integers(0, 3)),
        st.tuples(st.just("run"), st.none(), st.none()),
        st.tuples(st.just("undo"), st.integers(0, 5), st.none()),
        st.tuples(st.just("redo"), st.none(), st.none()),
    ),
    max_size=25,
)


@given(steps)
@settings(max_examples=examples(300))
def test_alone_the_disk_is_always_what_the_standing_changes_make_of_it(moves: list[tuple[str, object, object]]) -> None:
    """Contents come back again and again here, and files go and come: chains that cancel themselves out."""
    world = World()
    for move, argument, number in moves:
        match move:
            case "write":
                world.write(str(argument), text(int(str(number))) if number else None, agent=True)
            case "run":
                world.begin_run()
            case "undo":
                world.undo(world.runs[int(str(argument)) % len(world.runs)])
                assert world.disk == _replay_writes(world)
            case _:
                undo, changes = world.redo()
                if undo and all(world.disk[file.path] == file.after for file in changes):
                    _no_change_was_lost(world, undo, changes)
    world.undo(0)
    assert world.disk == dict.fromkeys(PATHS)


def _replay_writes(world: World) -> dict[str, FileState | None]:
    disk: dict[str, FileState | None] = dict.fromkeys(PATHS)
    for write in world.writes:
        if write.alive:
            disk[write.path] = write.new_state
    return disk


def _no_change_was_lost(world: World, undo: str, changes: list[FileChange]) -> None:
    undo_entry = next(e for e in world.entries if isinstance(e.change, Undone) and e.change.restore == undo)
    states = {file.path: file.before for file in undo_entry.files}
    for file in changes:
        assert file.after == states[file.path]


lives = st.lists(
    st.one_of(
        st.tuples(st.just("agent"), st.sampled_from(PATHS)),
        st.tuples(st.just("person"), st.sampled_from(PATHS)),
        st.tuples(st.just("run"), st.none()),
        st.tuples(st.just("undo"), st.integers(0, 5)),
        st.tuples(st.just("undo one"), st.integers(0, 5)),
        st.tuples(st.just("redo"), st.none()),
        st.tuples(st.just("keep"), st.sampled_from(PATHS)),
    ),
    max_size=30,
)


@given(lives)
@settings(max_examples=examples(400))
def test_a_persons_edit_always_survives(moves: list[tuple[str, object]]) -> None:
    """Every content is new here, so that it is known whose it is."""
    world = World()
    for move, argument in moves:
        match move:
            case "agent" | "person":
                world.write(str(argument), world.content(), agent=move == "agent")
            case "run":
                world.begin_run()
            case "undo" | "undo one":
                _undo_and_check(world, int(str(argument)) % len(world.runs), one=move == "undo one")
            case "redo":
                _redo_and_check(world)
            case _:
                world.keep(str(argument))


def _undo_and_check(world: World, run: int, *, one: bool) -> None:
    since = world.runs[run]
    upto = world.runs[run + 1] if one and run + 1 < len(world.runs) else 0
    scope, old_disk = world.scope(since, upto), dict(world.disk)
    changes = {file.path: file for file in world.undo(since, upto)}
    for path in PATHS:
        mine = [write for write in scope if write.path == path]
        if not mine:
            assert path not in changes
            continue
        # All other changes behind the first of them: a person's edit, a kept change, a change of another run.
        foreign = [
            write
            for write in world.writes[world.writes.index(mine[0]) :]
            if write.path == path and write not in mine and (write.alive or not write.agent)
        ]
        if foreign or old_disk[path] != mine[-1].new_state:
            assert world.disk[path] == old_disk[path]
        else:
            assert world.disk[path] == mine[0].old_state


def _redo_and_check(world: World) -> None:
    old_disk = dict(world.disk)
    undo, changes = world.redo()
    if not undo:
        return
    undone = next(e for e in world.entries if isinstance(e.change, Undone) and e.change.restore == undo)
    for file in undone.files:
        if old_disk[file.path] == file.after:
            assert world.disk[file.path] == file.before
        else:
            assert world.disk[file.path] == old_disk[file.path]
    assert {file.path for file in changes} <= {file.path for file in undone.files}


@given(lives)
@settings(max_examples=examples(150))
def test_what_was_undone_and_redone_can_be_undone_again(moves: list[tuple[str, object]]) -> None:
    world = World()
    for move, argument in moves:
        if move in ("agent", "person"):
            world.write(str(argument), world.content(), agent=move == "agent")
        elif move == "run":
            world.begin_run()
    for since in reversed(world.runs):
        there = dict(world.disk)
        changes = world.undo(since)
        back = dict(world.disk)
        if changes:
            world.redo()
            assert world.disk == there
            world.undo(since)
            assert world.disk == back


# -- hunks, merges, names: the cases one by one ---------------------------------------------------------------------


def entry(seq: int, path: str, old_state: FileState | None, new_state: FileState | None, **more: object) -> LedgerEntry:
    file = make_file_change(path, old_state, new_state, DiffStat())
    return LedgerEntry(seq, FilesChanged((file,), **more), (file,))  # type: ignore[arg-type]


def make_restore_entry(seq: int, request: RestoreRequested, *files: FileChange) -> LedgerEntry:
    kind = {"undo": Undone, "redo": Redone, "keep": ChangesKept}[request.kind]
    return LedgerEntry(seq, kind(request.restore, files), files, request)


A, B, C, D, E = (text(number) for number in range(1, 6))
TWO_RUNS = [entry(2, "f", A, B), entry(12, "f", B, C)]
ALL = RestoreRequested("u", "undo")
LAST = RestoreRequested("u", "undo", since=10)
FIRST = RestoreRequested("u", "undo", upto=10)


def links(entries: list[LedgerEntry], request: RestoreRequested) -> list[tuple[Link, ...]]:
    return [trail.links for trail in select_trails(entries, request)]


def test_hunks_undone_of_the_last_run_leave_the_first_as_it_is() -> None:
    request = RestoreRequested("u1", "undo", since=10, hunks={"f": (1,)})
    entries = [*TWO_RUNS, make_restore_entry(20, request, make_file_change("f", C, D, DiffStat()))]
    assert links(entries, LAST) == [(Link(B, D),)]
    assert links(entries, FIRST) == [(Link(A, B),)]
    assert links(entries, ALL) == [(Link(A, D),)]


def test_hunks_undone_across_runs_cannot_be_told_apart_any_more() -> None:
    request = RestoreRequested("u1", "undo", hunks={"f": (1,)})
    entries = [*TWO_RUNS, make_restore_entry(20, request, make_file_change("f", C, D, DiffStat()))]
    assert links(entries, ALL) == [(Link(A, D),)]
    assert links(entries, LAST) == [()]  # said, not guessed
    assert links(entries, FIRST) == [()]


def test_all_hunks_undone_are_the_whole_file() -> None:
    request = RestoreRequested("u1", "undo", since=10, hunks={"f": (1, 2)})
    entries = [*TWO_RUNS, make_restore_entry(20, request, make_file_change("f", C, B, DiffStat()))]
    assert links(entries, LAST) == []
    assert links(entries, ALL) == [(Link(A, B),)]


def test_hunks_kept_of_the_last_run_stay_when_all_is_undone() -> None:
    request = RestoreRequested("k1", "keep", since=10, hunks={"f": (1,)})
    entries = [*TWO_RUNS, make_restore_entry(20, request, make_file_change("f", B, D, DiffStat()))]
    assert links(entries, LAST) == [(Link(D, C),)]
    # The kept change stands between: going further back must not lose it, so the two are merged.
    assert links(entries, ALL) == [(Link(A, B), Link(D, C))]
    assert links(entries, msgspec.structs.replace(ALL, even_kept=True)) == [(Link(A, C),)]


def test_what_was_kept_is_undone_only_if_that_is_said() -> None:
    request = RestoreRequested("k1", "keep")
    entries = [
        *TWO_RUNS,
        make_restore_entry(20, request, make_file_change("f", A, C, DiffStat())),
        entry(30, "f", C, D),
    ]
    assert links(entries, ALL) == [(Link(C, D),)]
    assert links(entries, msgspec.structs.replace(ALL, even_kept=True)) == [(Link(A, D),)]


def test_an_undo_of_what_was_not_kept_leaves_the_kept_part_to_be_undone() -> None:
    keep = RestoreRequested("k1", "keep", hunks={"f": (1,)})
    undo = RestoreRequested("u1", "undo")
    entries = [
        entry(2, "f", A, C),
        make_restore_entry(20, keep, make_file_change("f", A, B, DiffStat())),
        make_restore_entry(30, undo, make_file_change("f", C, B, DiffStat())),
    ]
    assert links(entries, ALL) == []
    assert links(entries, msgspec.structs.replace(ALL, even_kept=True)) == [(Link(A, B),)]


def test_a_merged_undo_is_done_with_and_its_redo_can_be_undone() -> None:
    request = RestoreRequested("u1", "undo", merge=True)
    merged = make_file_change("f", D, E, DiffStat(), merged=A)  # the person had made D of C; E is A with their change
    entries = [*TWO_RUNS, make_restore_entry(20, request, merged)]
    assert links(entries, ALL) == []
    redo = RestoreRequested("r1", "redo", of="u1")
    assert find_redo_trails(entries, "u1") == (Trail("f", (Link(D, E),)),)
    entries.append(make_restore_entry(30, redo, make_file_change("f", E, D, DiffStat())))
    assert links(entries, ALL) == [(Link(E, D),)]


def test_an_undo_of_an_earlier_run_is_no_change_of_a_later_one() -> None:
    request = RestoreRequested("u1", "undo", paths=("f",))
    entries = [
        entry(2, "f", A, B),
        entry(12, "g", A, B),
        make_restore_entry(20, request, make_file_change("f", B, A, DiffStat())),
    ]
    assert [trail.path for trail in select_trails(entries, LAST)] == ["g"]


def test_what_was_only_seen_comes_only_by_its_name() -> None:
    entries = [entry(2, "d/f", A, B, source="observed"), entry(3, "d/g", A, B)]
    assert [trail.path for trail in select_trails(entries, ALL)] == ["d/g"]
    assert find_unnamed_paths(entries, ALL) == ("d/f",)
    request = RestoreRequested("u", "undo", paths=("d/f",))
    assert [(trail.path, trail.observed) for trail in select_trails(entries, request)] == [("d/f", True)]
    assert find_unnamed_paths(entries, request) == ()
    assert find_unnamed_paths(entries, RestoreRequested("u", "undo", paths=("d",))) == ("d/f",)
    entries.append(make_restore_entry(9, request, make_file_change("d/f", B, A, DiffStat())))
    assert find_unnamed_paths(entries, ALL) == ()  # it has been undone


def test_changes_of_old_logs_without_states_are_said_to_be_unclear() -> None:
    file = FileChange("f", "modified", 3, 1)
    assert links([LedgerEntry(2, FilesChanged((file,)), (file,))], ALL) == [()]


def test_a_file_by_name_brings_its_removed_folder_along() -> None:
    entries = [entry(2, "d/e/f", A, None), entry(3, "d/e", folder(), None), entry(4, "d/g", A, None)]
    request = RestoreRequested("u", "undo", paths=("d/e/f",))
    assert {trail.path for trail in select_trails(entries, request)} == {"d/e/f", "d/e"}


def test_a_part_of_git_brings_all_of_it_along() -> None:
    entries = [entry(2, ".git/HEAD", A, B), entry(2, ".git/index", A, B), entry(2, "f", A, B)]
    request = RestoreRequested("u", "undo", paths=(".git/HEAD",))
    assert {trail.path for trail in select_trails(entries, request)} == {".git/HEAD", ".git/index"}


def test_the_newest_fingerprint_is_that_of_the_last_change_or_undo_which_has_one() -> None:
    undo = LedgerEntry(9, Undone("u1", git="two"), ())
    assert find_git_fingerprint([entry(2, ".git/HEAD", A, B, git="one"), undo, entry(10, "f", A, B)]) == "two"


def test_a_redo_that_did_nothing_does_not_use_the_undo_up() -> None:
    undo, redo = RestoreRequested("u1", "undo"), RestoreRequested("r1", "redo", of="u1")
    entries = [
        entry(2, "f", A, B),
        make_restore_entry(5, undo, make_file_change("f", B, A, DiffStat())),
        make_restore_entry(9, redo),
    ]
    assert find_last_undo(entries, [undo, redo]) == "u1"


def test_paths_cover_what_lies_below_them() -> None:
    assert covers_path((), "any")
    assert covers_path((".",), "any")
    assert covers_path(("d",), "d/e")
    assert covers_path(("d/",), "d/e")
    assert not covers_path(("d",), "de")
    assert covers_path(("d",), encode_path("d/\udcff"))
    assert covers_path((encode_path("\udcff"),), encode_path("\udcff/f"))
