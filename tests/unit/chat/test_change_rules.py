"""Some files are never committed, by any user (S-16, S-17)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.chat import change_rules as rules
from treadle.protocol.files import DiffStat, FileChange, FileState, StateKind, make_file_change

FILE, FOLDER = FileState("file", 0o644, "d", 1), FileState("directory", 0o755)
LINK = FileState("link", target="x")
NAMES = st.text(st.characters(blacklist_characters="/\0", blacklist_categories=("Cs",)), min_size=1, max_size=8)
PLAIN = NAMES.filter(lambda name: not rules.is_git_name(name) and name not in (".", "..", rules.OWN_FOLDER))
FOLDERS = st.lists(PLAIN, min_size=1, max_size=4)
ALIASES = (
    ".git",
    ".GIT",
    ".Git",
    ".git ",
    ".git.",
    ".git. .",
    "git~1",
    "GIT~2",
    ".g\u200cit",
    ".git::$INDEX_ALLOCATION",
)
OBEYED = (
    "hooks/pre-commit",
    "config",
    "config.worktree",
    "commondir",
    "gitdir",
    "info/attributes",
    "info/exclude",
    "objects/info/alternates",
    "objects/info/commit-graph",
    "objects/info/commit-graphs/graph-1.graph",
    "objects",
    "refs",
    "modules/sub/config",
    "modules/a/b/hooks/post-checkout",
    "worktrees/w/gitdir",
    "anything",
)
DATA = (
    "HEAD",
    "index",
    "index.lock",
    "packed-refs",
    "ORIG_HEAD",
    "FETCH_HEAD",
    "COMMIT_EDITMSG",
    "MERGE_MSG",
    "MERGE_HEAD",
    "BISECT_LOG",
    "refs/heads/main",
    "refs/stash",
    "logs/HEAD",
    "objects/aa/bb",
    "objects/pack/pack-1.pack",
    "rebase-merge/done",
    "modules/a/b/objects/aa/bb",
    "modules/sub/HEAD",
    "worktrees/w/index",
)


def is_refused(path: str, new_state: FileState | None = FILE, old_state: FileState | None = None) -> bool:
    return bool(rules.explain_never_committed(path, old_state, new_state))


def make_change(path: str, state: FileState = FILE) -> FileChange:
    return make_file_change(path, None, state, DiffStat())


# -- repositories -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", OBEYED)
def test_what_git_obeys(path: str) -> None:
    assert is_refused(f".git/{path}")
    assert is_refused(f".git/{path}", old_state=FILE)


@pytest.mark.parametrize("path", DATA)
def test_gits_own_data_in_the_projects_repository(path: str) -> None:
    assert not is_refused(f".git/{path}")
    assert not is_refused(f".git/{path}", None, FILE)
    assert is_refused(f".git/{path}", LINK), "a link would lead git elsewhere"


@given(FOLDERS, st.sampled_from(ALIASES), st.sampled_from((*OBEYED, *DATA, "")))
def test_a_repository_at_any_depth_under_any_name(above: list[str], alias: str, inside: str) -> None:
    path = "/".join((*above, alias, *([inside] if inside else [])))
    assert is_refused(path)
    assert is_refused(path, FOLDER)
    assert not is_refused(path, None, FILE), "it may be removed"


@pytest.mark.parametrize("alias", ALIASES[1:])
def test_another_name_for_it_at_the_top(alias: str) -> None:
    assert is_refused(f"{alias}/config")
    assert is_refused(alias, FOLDER)


def test_git_itself_is_a_folder_or_nothing() -> None:
    assert is_refused(".git")
    assert is_refused(".git", LINK)
    assert not is_refused(".git", FOLDER)


@given(FOLDERS)
def test_names_that_are_no_repository(parts: list[str]) -> None:
    assert not is_refused("/".join(parts))
    assert not is_refused("/".join((*parts, ".gitignore")))


def exists_nothing(_path: str) -> bool:
    return False


@given(st.lists(PLAIN.filter(lambda name: name.casefold() not in rules._SHAPE), max_size=3), st.booleans())
def test_the_shape_of_a_bare_repository(above: list[str], upper: bool) -> None:
    folder = "".join(f"{part}/" for part in above)
    head = "HEAD" if upper else "head"
    parts = [
        make_change(f"{folder}{head}"),
        make_change(f"{folder}objects", FOLDER),
        make_change(f"{folder}refs", FOLDER),
    ]
    hook = make_change(f"{folder}hooks/post-checkout")
    neighbour = make_change(f"{folder}readme.md")
    reasons = rules.explain_left_out([*parts, hook, neighbour], exists_nothing)
    assert set(reasons) == {each.path for each in (*parts, hook)}
    for without in range(3):
        other_parts = [part for number, part in enumerate(parts) if number != without]
        assert rules.explain_left_out([*other_parts, hook], exists_nothing) == {}
        there = parts[without].path
        assert rules.explain_left_out(other_parts, lambda path, there=there: path.casefold() == there.casefold()), (
            "part was there"
        )
    link = [make_change(f"{folder}HEAD"), make_change(f"{folder}commondir")]
    assert len(rules.explain_left_out(link, exists_nothing)) == 2


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [0o4000, 0o2000, 0o1000, 0o6000])
def test_special_bits_of_files(bits: int) -> None:
    assert is_refused("tool", FileState("file", bits | 0o755, "d", 1))
    assert not is_refused("folder", FileState("directory", bits | 0o755)), "folders hand on their group"


@pytest.mark.parametrize("kind", ["fifo", "other"])
def test_what_is_no_file(kind: StateKind) -> None:
    assert is_refused("pipe", FileState(kind, 0o644))
    assert not is_refused("pipe", None, FileState(kind, 0o644))


def test_treadles_own_folder() -> None:
    assert is_refused(".treadle/hooks.toml")
    assert is_refused(".Treadle", FOLDER)
    assert not is_refused("sub/.treadle/x")
