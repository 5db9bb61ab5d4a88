"""The tree before and after a command that writes through (W-01, W-05, W-10): changes are reported exactly, old content
is kept, files that are left out are listed, and little is read when little changed."""

import os
import resource
import shutil
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.unit.adapters.workspace.trees_of import compare_states, states_below
from treadle.adapters.workspace.history import trees, walk
from treadle.adapters.workspace.history.capture import Captures
from treadle.adapters.workspace.history.content_store import ContentStore
from treadle.adapters.workspace.history.git_index import compute_git_fingerprint
from treadle.adapters.workspace.history.trees import Tree
from treadle.adapters.workspace.history.walk import Walk
from treadle.adapters.workspace.paths.durable import compute_digest
from treadle.adapters.workspace.root import Root
from treadle.errors import ToolError
from treadle.ports.snapshots import Effect
from treadle.protocol.files import encode_path
from treadle.testing.faults import InjectedFault, faults

ODD = os.fsdecode(b"caf\xe9 \xff")


class Project:
    def __init__(self, place: Path) -> None:
        self.top = place / "project"
        self.top.mkdir(parents=True, exist_ok=True)
        self.home = place / "home"
        self.images = ContentStore(self.home / "snapshots")

    @property
    def captures(self) -> Captures:
        """As another process would have them."""
        return Captures(Root(str(self.top)), self.images, self.home / "snapshots")

    def sh(self, command: str) -> None:
        subprocess.run(["sh", "-c", command], cwd=self.top, check=True, capture_output=True)

    def around(self, act: Callable[[], object], name: str = "c/1.0") -> Effect:
        self.captures.capture(name)
        act()
        try:
            return self.captures.compare(name)
        finally:
            self.captures.release(name)

    def does(self, command: str) -> list[str]:
        effect = self.around(lambda: self.sh(command))
        return [f"{file.action} {file.path}" for file in effect.files]

    def prove(self, act: Callable[[], object]) -> Effect:
        """The effect is what the plainest comparison finds, and all that was there before can be had back."""
        old_states = states_below(self.top)
        effect = self.around(act)
        changes = {file.path: (file.before, file.after) for file in effect.files}
        assert changes == compare_states(old_states, states_below(self.top))
        for file in effect.files:
            if file.before is not None and file.before.kind == "file":
                assert len(self.images.read(file.before.digest)) == file.before.size
        return effect


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


# -- what changed --------------------------------------------------------------------------------------------------

COMMANDS = (
    "rm -rf a",
    "mv a b",
    "mv b/x.txt a.txt",
    "mkdir -p b/c/d e",
    "echo more >> x.txt",
    "echo new > a/x.txt",
    "sed -i s/o/0/ x.txt",
    "chmod 700 a",
    "chmod 000 x.txt",
    "chmod 644 x.txt",
    "ln -s nowhere l",
    "ln -sfn .. l",
    "mkfifo p",
    "touch x.txt a/x.txt",
    "rm -f x.txt; mkdir x.txt",
    "rm -rf x.txt; printf 'no end' > x.txt",
    "ln x.txt h",
    "cp -r a c",
    "tar cf t.tar . ; mkdir -p u; tar xf t.tar -C u",
    "printf 'a\\0b' > 'odd\nname'",
    "rm -rf b e l p h c u t.tar 'odd\nname'",
)


@pytest.mark.thorough(one_of=8)
@settings(max_examples=25)
@given(some.lists(some.lists(some.sampled_from(COMMANDS), min_size=1, max_size=4), min_size=1, max_size=3))
def test_what_any_commands_did_is_told_exactly(rounds: list[list[str]]) -> None:  # W-10
    with TemporaryProject() as project:
        project.sh("mkdir -p a/deep/empty; echo one > x.txt; echo two > a/x.txt; ln -s x.txt link")
        (project.top / ODD).write_bytes(b"odd")
        for commands in rounds:
            # Any of them may fail, as commands do.
            project.prove(lambda commands=commands: project.sh("; ".join(f"({each}) || true" for each in commands)))  # type: ignore[misc]


class TemporaryProject:
    def __enter__(self) -> Project:
        import tempfile

        self._place = Path(tempfile.mkdtemp())
        return Project(self._place)

    def __exit__(self, *_: object) -> None:
        subprocess.run(["chmod", "-R", "u+rwx", self._place], check=True, capture_output=True)
        shutil.rmtree(self._place)


def test_lines_are_counted_and_ignored_files_marked(project: Project) -> None:  # W-04
    project.sh("printf 'a\\nb\\nc\\n' > text; printf '*.log\\nout/\\n' > .gitignore; printf '\\0' > binary")
    command = "printf 'a\\nB\\nc\\nd\\n' > text; echo > x.log; mkdir out; echo > out/y; echo > binary; rm .gitignore"
    effect = project.prove(lambda: project.sh(command))
    counts = {file.path: (file.added, file.removed, file.ignored) for file in effect.files}
    assert counts["text"] == (2, 1, False)
    assert counts[".gitignore"] == (0, 2, False)
    assert counts["binary"] == (0, 0, False)


def test_ignored_files_are_kept_and_marked(project: Project) -> None:
    project.sh("printf '*.log\\n/tmp/\\n' > .gitignore; mkdir -p tmp sub/tmp; echo 1 > x.log; echo 2 > tmp/y")
    effect = project.prove(lambda: project.sh("echo 2 > x.log; rm -r tmp; echo > sub/tmp/z"))
    assert {file.path: file.ignored for file in effect.files} == {
        "x.log": True,
        "tmp": True,
        "tmp/y": True,
        "sub/tmp/z": False,
    }


def test_a_change_that_hides_its_time_is_seen(project: Project) -> None:
    """The same size, and the time put back: the clock of the inode tells."""
    file = project.top / "file"
    file.write_bytes(b"aaaa")
    os.utime(file, ns=(10**18, 10**18))
    project.captures.capture("first")

    def act() -> None:
        file.write_bytes(b"bbbb")
        os.utime(file, ns=(10**18, 10**18))

    assert [each.path for each in project.prove(act).files] == ["file"]


def test_a_change_within_one_tick_of_the_clock_is_seen(project: Project) -> None:
    """Again and again, so that the second write falls into the tick of the first, more often than not."""
    file = project.top / "file"
    for number in range(30):
        file.write_bytes(b"%04d" % number)
        project.captures.capture(str(number))
        file.write_bytes(b"%04d" % (number + 5000))
        assert [each.path for each in project.captures.compare(str(number)).files] == ["file"]


def test_what_was_only_touched_is_no_change(project: Project) -> None:
    project.sh("mkdir d; echo > d/x")
    assert project.does("touch d/x d; mv d/x d/y; mv d/y d/x; chmod 755 d; cp d/x d/z; mv d/z d/x") == []


def test_what_lies_in_git_is_part_of_it_whatever_its_name(project: Project) -> None:
    git = "git -c user.name=n -c user.email=e"
    project.sh(f"git init -q; echo node_modules > .gitignore; echo 1 > a; git add .; {git} commit -qm one")
    effect = project.prove(lambda: project.sh(f"git branch build/node_modules/x; echo 2 > a; {git} commit -qam two"))
    paths = [file.path for file in effect.files]
    assert ".git/refs/heads/build/node_modules/x" in paths
    assert any(path.startswith(".git/objects/") for path in paths)
    assert effect.git == compute_git_fingerprint(Root(str(project.top)))
    assert project.around(lambda: project.sh("echo 3 > a")).git == ""


# -- what is left out ----------------------------------------------------------------------------------------------


def list_left_out_files(project: Project, name: str = "c/1.0") -> dict[str, str]:
    return {each.path: each.reason for each in project.captures.capture(name)}


def test_what_is_too_large_is_listed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:  # W-05
    monkeypatch.setattr(trees, "FILE_CAP", 100)
    monkeypatch.setattr(trees, "IGNORED_FILE_CAP", 10)
    (project.top / "large").write_bytes(b"x" * 101)
    (project.top / ".gitignore").write_text("*.o\n")
    (project.top / "small.o").write_bytes(b"x" * 10)
    (project.top / "large.o").write_bytes(b"x" * 11)
    (project.top / "fits").write_bytes(b"x" * 100)
    assert list_left_out_files(project).keys() == {"large", "large.o"}
    effect = project.captures.compare("c/1.0")
    assert (effect.files, effect.uncaptured) == ((), ())
    project.sh("echo >> large; rm large.o; head -c 200 /dev/zero > fits; head -c 200 /dev/zero > new")
    effect = project.captures.compare("c/1.0")
    assert [file.path for file in effect.files] == ["fits"]  # its old content can be restored, however large it is now
    assert {each.path: each.reason.split(";")[0] for each in effect.uncaptured} == {
        "large": "changed",
        "large.o": "deleted",
        "new": "created",
    }


def test_large_files_together_and_ignored_ones_together_have_a_cap(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "SMALL", 10)
    monkeypatch.setattr(trees, "TOTAL_CAP", 100)
    monkeypatch.setattr(trees, "IGNORED_TOTAL_CAP", 20)
    (project.top / ".gitignore").write_text("*.o\n")
    for number in range(10):
        (project.top / f"small{number}").write_bytes(b"x" * 10)
        (project.top / f"data{number}").write_bytes(b"x" * 40)
        (project.top / f"{number}.o").write_bytes(b"x" * 9)
    prefixes = [path[:4] for path in list_left_out_files(project)]
    assert prefixes.count("data") == 8
    assert len(prefixes) == 16
    assert len(list_left_out_files(project, "again")) == 16


def test_generated_folders_are_listed_and_not_looked_into(project: Project) -> None:
    project.sh(
        "mkdir -p node_modules/x a/__pycache__ b/__pycache__ build target; echo > node_modules/x/y; echo > target/t;"
        "echo > build/make.py; echo /target > .gitignore; echo > a/__pycache__/c.pyc"
    )
    assert list_left_out_files(project) == {
        "node_modules": "a folder of generated files",
        "target": "a folder of generated files",
        "**/__pycache__": "2 folders of generated files",
    }
    project.sh("rm -r node_modules a/__pycache__ build/make.py; echo 2 > target/t; mkdir .venv")
    effect = project.captures.compare("c/1.0")
    assert [file.path for file in effect.files] == ["build/make.py"]
    assert {each.path: each.reason.split(";")[0] for each in effect.uncaptured} == {
        "node_modules": "deleted",
        "a/__pycache__": "deleted",
        "b/__pycache__": "a folder of generated files",
        "target": "a folder of generated files",
        ".venv": "created",
    }


def test_rules_that_change_in_between_make_no_false_changes(project: Project) -> None:
    project.sh("mkdir build; echo > build/x; echo > y.log")
    effect = project.around(lambda: project.sh("printf 'build\\n*.log\\n' > .gitignore"))
    assert [file.path for file in effect.files] == [".gitignore"]
    assert [each.path for each in effect.uncaptured] == ["build"]
    effect = project.around(lambda: project.sh("rm .gitignore"))
    assert [file.path for file in effect.files] == [".gitignore"]


def test_very_many_that_are_left_out_are_told_in_short(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "FILE_CAP", 0)
    for number in range(100):
        (project.top / f"f{number}").write_bytes(b"x" * (number + 1))
    reasons = list_left_out_files(project)
    assert len(reasons) == 41
    assert reasons["**"] == "60 more that were left out"
    assert "f99" in reasons


def test_what_lies_too_deep_is_listed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "DEPTH_CAP", 3)
    (project.top / "1/2/3/4/5").mkdir(parents=True)
    assert list_left_out_files(project).keys() == {"1/2/3/4"}


def test_a_tree_that_is_far_too_deep_is_walked(project: Project) -> None:
    deep = project.top
    for _ in range(trees.DEPTH_CAP + 50):
        deep = deep / "d"
        deep.mkdir()
    (path,) = list_left_out_files(project)
    assert path.count("/") == trees.DEPTH_CAP
    assert project.does("echo > d/d/d/file") == ["created d/d/d/file"]


def test_a_home_inside_the_project_is_not_captured(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.home = project.top / "sub" / "home"
    project.images = ContentStore(project.home / "snapshots")
    project.home.mkdir(parents=True)
    (project.home / "treadle.db").write_bytes(b"x")
    assert project.does("echo > a") == ["created a"]


def test_special_files_are_never_opened(project: Project) -> None:  # fault 19
    project.sh("mkfifo p")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(project.top / "s"))
        effect = project.around(lambda: project.sh("rm p s"))
    assert [file.path for file in effect.files] == ["p"]
    assert [each.reason for each in effect.uncaptured] == ["deleted; a socket or a device"]


def test_nothing_outside_is_looked_at(project: Project, tmp_path: Path) -> None:  # S-01
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (project.top / "out").symlink_to(outside)
    (project.top / "file").symlink_to(outside / "secret")
    effect = project.prove(lambda: (outside / "secret").write_text("other"))
    assert effect.files == ()
    assert not list(project.images.iterate_objects())


def test_names_that_are_no_text_are_told(project: Project) -> None:
    folder = project.top / ODD
    folder.mkdir()
    (folder / ODD).write_bytes(b"1")
    (folder / "__pycache__").mkdir()
    effect = project.prove(lambda: (folder / ODD).write_bytes(b"2"))
    assert [file.path for file in effect.files] == [encode_path(f"{ODD}/{ODD}")]
    assert [each.path for each in effect.uncaptured] == [encode_path(f"{ODD}/__pycache__")]


# -- what it costs -------------------------------------------------------------------------------------------------


def test_only_what_changed_is_read(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:  # W-05
    monkeypatch.setattr(walk, "RACY_NS", 0)
    project.sh("mkdir a b; for i in 1 2 3 4; do echo $i > a/$i; echo $i > b/$i; done; mkfifo p; ln -s a l")
    first, read = walk_project(project, None)
    assert len(read) == 8
    same_tree, read = walk_project(project, first)
    assert (read, same_tree.folders) == ([], first.folders)
    assert {"a/", "b/"} <= first.folders.keys()
    assert all(same_tree.folders[path] is first.folders[path] for path in first.folders)
    project.sh("echo x > a/1; echo '2' > .gitignore; mv a/3 b/5")
    second, read = walk_project(project, same_tree)
    # .gitignore and the two files that it names now, what was moved, what was written
    assert sorted(read) == [b"2\n", b"2\n", b"2\n", b"3\n", b"x\n"]
    assert second.folders["a/"].nodes["2"].ignored


def walk_project(project: Project, known_tree: Tree | None) -> tuple[Tree, list[bytes]]:
    read: list[bytes] = []

    def take(fd: int) -> str:
        read.append(os.pread(fd, 100, 0))
        return compute_digest(fd)

    return Walk(known_tree, take, keep=True).visit_root(Root(str(project.top))), read


def test_what_was_only_compared_is_kept_before_the_next_command(project: Project) -> None:  # W-01
    project.sh("echo 1 > a")
    project.around(lambda: project.sh("echo 2 > a"))
    project.prove(lambda: project.sh("echo 3 > a"))


def test_a_tree_that_did_not_change_is_written_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "RACY_NS", 0)
    project.sh("echo > a")
    for name in ("one", "two", "three"):
        project.captures.capture(name)
    files = list((project.home / "snapshots" / "captures").glob("*.tree"))
    assert len(files) == 3
    assert len({tree.stat().st_ino for tree in files}) == 1
    for name in ("one", "two", "three"):
        project.captures.release(name)
    assert not list((project.home / "snapshots" / "captures").iterdir())


# -- what goes wrong -----------------------------------------------------------------------------------------------


def test_a_capture_stays_what_it_was(project: Project) -> None:
    """A worker that takes up a command after a crash captures again: the command may have begun."""
    project.sh("echo 1 > a")
    project.captures.capture("c/1.0")
    project.sh("echo 2 > a")
    project.captures.capture("c/1.0")
    assert [file.path for file in project.captures.compare("c/1.0").files] == ["a"]


def test_a_damaged_cache_costs_time_only(project: Project) -> None:
    project.sh("echo 1 > a")
    project.captures.capture("first")
    for file in (project.home / "snapshots" / "trees").iterdir():
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    project.prove(lambda: project.sh("echo 2 > a"))


def test_a_capture_that_is_gone_or_damaged_is_said(project: Project) -> None:
    with pytest.raises(ToolError, match="is gone"):
        project.captures.compare("never")
    project.captures.capture("c/1.0")
    for file in (project.home / "snapshots" / "captures").glob("*.tree"):
        file.write_bytes(b"")
    with pytest.raises(ToolError, match="is gone"):
        project.captures.compare("c/1.0")


def test_too_few_descriptors_are_said_and_pass(project: Project) -> None:  # fault 13
    project.sh("mkdir -p 1/2/3/4/5/6/7/8/9; echo > 1/2/3/4/5/6/7/8/9/x")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 20, hard))
    descriptors: list[int] = []
    try:
        with suppress(OSError):
            while True:
                descriptors.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(6):
            os.close(descriptors.pop())
        with pytest.raises(ToolError, match="Too many open files"):
            project.captures.capture("c/1.0")
    finally:
        for fd in descriptors:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    project.prove(lambda: project.sh("rm -r 1"))


def test_a_strike_at_any_point_leaves_no_half_capture(project: Project) -> None:  # fault 3
    project.sh("echo 1 > a; echo 2 > b")
    with faults() as run:
        project.captures.capture("listing")
    points = dict.fromkeys(run.passed)
    assert "snapshot.before_capture" in points
    for number, point in enumerate(points):
        project.sh(f"echo {number} > a; echo {number} > c")
        old_states = states_below(project.top)
        with faults(f"raise@{point}"), pytest.raises(InjectedFault):
            project.captures.capture(point)
        project.captures.capture(point)
        project.sh("echo other > a; rm b c; echo 2 > b")
        changes = {file.path: (file.before, file.after) for file in project.captures.compare(point).files}
        assert changes == compare_states(old_states, states_below(project.top))
        for state, _ in changes.values():
            assert state is not None
            assert project.images.has_object(state.digest)
