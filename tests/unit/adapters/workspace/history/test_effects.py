"""A command's effect, read off its copy-on-write view: exactly, and without touching the project (W-08, fault 31)."""

import hashlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.adapters.workspace.views import Views
from treadle.adapters.workspace.history import effects
from treadle.adapters.workspace.history.effects import CHANGED, GONE
from treadle.adapters.workspace.history.overlay_upper import LayerReading, Upper, freeze_layer, read_frozen
from treadle.adapters.workspace.root import Root
from treadle.errors import ToolError
from treadle.protocol.files import FileState, decode_path


@pytest.fixture
def views(tmp_path: Path) -> Iterator[Views]:
    new_views = Views(tmp_path)
    yield new_views
    new_views.close()


def file(data: str | bytes, mode: int = 0o644) -> FileState:
    raw = data.encode() if isinstance(data, str) else data
    return FileState("file", mode, hashlib.sha256(raw).hexdigest(), len(raw))


def tree(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything about a tree that a command could change."""
    entries: dict[str, tuple[object, ...]] = {}
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            content: object = None
            if stat.S_ISREG(status.st_mode):
                content = Path(path).read_bytes()
            elif stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            entries[os.path.relpath(path, root)] = (status.st_mode, status.st_mtime_ns, status.st_ctime_ns, content)
    return entries


def test_files_that_come_change_and_go(views: Views) -> None:
    for name in ("edited", "gone", "same", "mode"):
        (views.root / name).write_text("one\ntwo\n")
    old_tree = tree(views.root)
    changes = views.changes("echo three >> edited; rm gone; chmod 755 mode; printf 'a\\nb' > new; cat same > /dev/null")
    assert set(changes) == {"edited", "gone", "mode", "new"}
    edited = changes["edited"]
    assert (edited.action, edited.added, edited.removed) == ("modified", 1, 0)
    assert (edited.before, edited.after) == (file("one\ntwo\n"), file("one\ntwo\nthree\n"))
    deletion = changes["gone"]
    assert (deletion.action, deletion.added, deletion.removed, deletion.after) == ("deleted", 0, 2, None)
    mode = changes["mode"]
    assert (mode.added, mode.removed, mode.after) == (0, 0, file("one\ntwo\n", 0o755))
    new = changes["new"]
    assert (new.action, new.added, new.before, new.after) == ("created", 2, None, file("a\nb"))
    assert tree(views.root) == old_tree


def test_a_file_that_is_only_touched_or_rewritten_is_no_change_but_its_time_is_known(views: Views) -> None:
    for name in ("touched", "rewritten", "read"):
        (views.root / name).write_text("x\n")
    view = views.run("touch -d 2001-02-03T04:05:06Z touched; cp rewritten t; cat t > rewritten; rm t; cat read")
    assert effects.read(Root(str(views.root)), str(view)).files == ()
    touched = dict(effects.choose_source(str(view)).list_touched_files())
    assert set(touched) == {"touched", "rewritten"}
    assert touched["touched"] == 981173106 * 10**9


def test_folders_are_changes_and_one_that_was_removed_takes_all_with_it(views: Views) -> None:
    (views.root / "old/deep/er").mkdir(parents=True)
    (views.root / "old/deep/file").write_text("x\n")
    (views.root / "empty").mkdir()
    (views.root / "kept").mkdir()
    (views.root / "kept/file").write_text("x\n")
    changes = views.changes("rm -r old empty; mkdir -p made/in; chmod 700 kept; touch kept/more")
    assert set(changes) == {
        "old",
        "old/deep",
        "old/deep/er",
        "old/deep/file",
        "empty",
        "made",
        "made/in",
        "kept",
        "kept/more",
    }
    assert changes["old/deep"].before == FileState("directory", 0o755)
    assert changes["made"].after == FileState("directory", 0o755)
    assert (changes["kept"].before, changes["kept"].after) == (
        FileState("directory", 0o755),
        FileState("directory", 0o700),
    )


def test_a_folder_that_was_removed_and_made_anew_shows_nothing_of_the_old_one(views: Views) -> None:  # fault 31
    (views.root / "d/sub").mkdir(parents=True)
    for name in ("d/old", "d/same", "d/sub/x"):
        (views.root / name).write_text(f"{name}\n")
    changes = views.changes("cp d/same t; rm -r d; mkdir d; cp t d/same; echo n > d/new; rm t")
    assert {path: change.action for path, change in changes.items()} == {
        "d/new": "created",
        "d/old": "deleted",
        "d/sub": "deleted",
        "d/sub/x": "deleted",
    }


def test_renamed_files_and_folders_are_two_changes_each(views: Views) -> None:
    (views.root / "a/b").mkdir(parents=True)
    (views.root / "a/b/f").write_text("x\n")
    (views.root / "g").write_text("y\n")
    changes = views.changes("mv a z; mv g h")
    actions = {path: change.action for path, change in changes.items()}
    assert actions == {
        **dict.fromkeys(("a", "a/b", "a/b/f", "g"), "deleted"),
        **dict.fromkeys(("z", "z/b", "z/b/f", "h"), "created"),
    }
    assert changes["z/b/f"].after == changes["a/b/f"].before


def test_one_kind_of_thing_in_the_place_of_another(views: Views) -> None:
    (views.root / "file").write_text("x\n")
    (views.root / "folder").mkdir()
    (views.root / "folder/in").write_text("x\n")
    (views.root / "link").symlink_to("nowhere")
    (views.root / "other").mkdir()
    changes = views.changes(
        "rm file; mkdir file; rm -r folder; echo f > folder; rm link; echo l > link; rmdir other; ln -s / other"
    )
    assert changes["file"].before == file("x\n")
    assert changes["file"].after == FileState("directory", 0o755)
    assert changes["folder"].before == FileState("directory", 0o755)
    assert changes["folder"].after == file("f\n")
    assert changes["folder/in"].after is None
    assert changes["link"].before == FileState("link", target="nowhere")
    assert changes["link"].after == file("l\n")
    assert changes["other"].after == FileState("link", target="/")


def test_links_pipes_and_sockets(views: Views) -> None:
    make = "import socket; socket.socket(socket.AF_UNIX).bind('sock')"
    effect = views.effect(f'ln -s gone dangling; mkfifo pipe; chmod 640 pipe; /usr/bin/python3 -c "{make}"')
    new_states = {change.path: change.after for change in effect.files}
    assert new_states == {"dangling": FileState("link", target="gone"), "pipe": FileState("fifo", 0o640)}
    assert [each.path for each in effect.uncaptured] == ["sock"]


def test_a_link_is_never_followed(views: Views, tmp_path: Path) -> None:  # S-01
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s\n")
    (views.root / "dir").mkdir()
    (views.root / "dir/f").write_text("x\n")
    view = views.run(f"echo y > dir/f; mkdir out; rm -r out; ln -s {outside} out")
    (views.root / "dir/f").unlink()
    (views.root / "dir").rmdir()
    (views.root / "dir").symlink_to(outside)
    changes = {change.path: change for change in effects.read(Root(str(views.root)), str(view)).files}
    assert changes["out"].after == FileState("link", target=str(outside))
    assert "dir/secret" not in changes
    assert changes["dir"].before == FileState("link", target=str(outside))


def test_writing_to_one_of_several_names_of_a_file_changes_that_name(views: Views) -> None:  # fault 31, hard links
    (views.root / "a").write_text("x\n")
    os.link(views.root / "a", views.root / "b")
    changes = views.changes("echo y >> a; ln b c")
    assert set(changes) == {"a", "c"}
    assert changes["a"].after == file("x\ny\n")


def test_names_of_any_bytes(views: Views) -> None:
    odd = os.fsdecode(b"caf\xe9")
    (views.root / odd).write_text("x\n")
    changes = views.changes("echo y > $'caf\\xe9'; echo n > $'new\\nline'; echo e > $'\\x1b[31m'")
    assert {decode_path(path) for path in changes} == {odd, "new\nline", "\x1b[31m"}
    view = views.run("echo z > $'caf\\xe9'; echo n > $'new\\nline'")
    root = Root(str(views.root))
    text = effects.describe(root, str(view), effects.read(root, str(view)))
    assert "new script" not in text
    assert "new\\nline" in text
    assert "\x1b" not in text


def test_what_gitignore_names_is_marked(views: Views) -> None:
    (views.root / ".gitignore").write_text("build/\n*.log\n!keep.log\n")
    (views.root / "sub").mkdir()
    (views.root / "sub/.gitignore").write_text("local\n")
    (views.root / "build").mkdir()
    (views.root / "build/old").write_text("x\n")
    changes = views.changes(
        "mkdir -p build/deep .git/objects; touch build/deep/f a.log keep.log sub/local sub/b.log local .git/x.log; "
        "rm build/old; mkdir new; echo secret > new/.gitignore; touch new/secret"
    )
    ignored = {path for path, change in changes.items() if change.ignored}
    assert ignored == {"build/deep", "build/deep/f", "build/old", "a.log", "sub/local", "sub/b.log"}


def test_permissions_that_were_taken_away_are_read_as_the_command_left_them(views: Views) -> None:
    (views.root / "f").write_text("x\n")
    view = views.run("chmod 000 f; mkdir -p d/e; echo y > d/e/g; chmod 000 d/e/g; chmod 0 d/e; chmod 111 d")
    for _ in range(2):  # the first look may have to open them
        new_states = {change.path: change.after for change in effects.read(Root(str(views.root)), str(view)).files}
        assert new_states == {
            "f": file("x\n", 0),
            "d": FileState("directory", 0o111),
            "d/e": FileState("directory", 0),
            "d/e/g": file("y\n", 0),
        }


def test_binary_and_very_long_files_are_told_without_lines(views: Views) -> None:
    (views.root / "b").write_bytes(b"\0\1")
    (views.root / "long").write_text("x\n" * 200_000)
    changes = views.changes("printf '\\0\\2\\3' > b; echo y >> long; head -c 300000 /dev/zero > z")
    assert [(changes[name].added, changes[name].removed) for name in ("b", "long", "z")] == [(0, 0)] * 3


def test_what_somebody_else_changed_meanwhile_is_a_conflict(views: Views) -> None:  # fault 31
    for name in ("a", "b", "same", "untouched"):
        (views.root / name).write_text("x\n")
    (views.root / "d").mkdir()
    (views.root / "d/f").write_text("x\n")

    def edit() -> None:
        (views.root / "a").write_text("mine\n")
        (views.root / "b").write_text("mine\n")
        (views.root / "same").write_text("y\n")
        (views.root / "untouched").write_text("mine\n")
        (views.root / "new").write_text("mine\n")
        (views.root / "d/mine").write_text("mine\n")

    effect = views.effect("for f in a same; do echo y > $f; done; rm b; echo y > new; rm -r d", edit)
    reasons = {each.path: each.reason for each in effect.conflicts}
    assert reasons == {"a": CHANGED, "b": CHANGED, "new": CHANGED, "d": CHANGED, "d/mine": CHANGED}
    diff = next(each.diff for each in effect.conflicts if each.path == "a")
    assert "-y\n+mine" in diff
    assert not {change.path for change in effect.files} & {"same", "untouched"}


def test_a_file_that_somebody_removed_meanwhile_is_a_conflict_and_one_that_was_moved_is_none(views: Views) -> None:
    (views.root / "d").mkdir()
    for name in ("a", "b", "d/f"):
        (views.root / name).write_text("x\n")

    def remove() -> None:
        (views.root / "a").unlink()
        (views.root / "d/f").unlink()
        (views.root / "d").rmdir()

    effect = views.effect("echo y > a; echo y > d/f; ln b c", remove)
    assert {each.path: each.reason for each in effect.conflicts} == {"a": GONE, "d/f": GONE}
    assert views.effect("mv b e").conflicts == ()


def test_a_change_of_somebody_else_that_the_command_saw_is_none(views: Views) -> None:
    (views.root / "a").write_text("x\n")
    view = views.view()
    (views.root / "a").write_text("mine\n")
    effect = effects.read(Root(str(views.root)), str(views.run("echo y >> a", view=view)))
    assert effect.conflicts == ()
    assert effect.files[0].after == file("mine\ny\n")


def test_a_clock_that_was_set_back_hides_no_conflict(views: Views) -> None:  # fault 15
    (views.root / "a").write_text("x\n")
    view = views.run("echo y > a")
    wall, steady = (view / "began").read_text().split()
    (views.root / "a").write_text("mine\n")
    hour = 3600 * 10**9
    # As if an hour had been taken off the clock since: by it, the edit is older than the command.
    (view / "began").write_text(f"{int(wall) + hour} {steady}")
    assert Upper(str(view)).began_ns < (view / "began").stat().st_ctime_ns - hour // 2
    assert [each.path for each in effects.read(Root(str(views.root)), str(view)).conflicts] == ["a"]


def test_a_view_that_is_gone_is_an_error_and_no_empty_effect(views: Views, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="are lost"):
        effects.read(Root(str(views.root)), str(tmp_path / "none"))


def test_new_scripts_are_named_which_nothing_else_would_show(views: Views) -> None:
    (views.root / "old").write_text("#!/bin/sh\n")
    make = "for f in new ready; do printf '#!/bin/sh\\n' > $f; done; chmod +x ready; echo >> old; echo '# !' > text"
    root, view = Root(str(views.root)), str(views.run(make))
    text = effects.describe(root, view, effects.read(root, view))
    assert [line for line in text.split("\n") if "script" in line] == ["[a new script, not executable: new]"]


@pytest.mark.thorough(one_of=8)
def test_the_description_is_bounded_and_the_same_for_the_same_effect(views: Views) -> None:  # W-09, S-08
    for number in range(300):
        (views.root / f"f{number:03}").write_text("line\n" * 50)
    view = views.run("for f in f*; do sed s/line/other/ $f > t; mv t $f; done; mkdir .git; touch .git/x; ln -s a link")
    root = Root(str(views.root))
    effect = effects.read(root, str(view))
    text = effects.describe(root, str(view), effect)
    assert text == effects.describe(root, str(view), effects.read(root, str(view)))
    assert text.startswith("301 changes, +15,000 -15,000\nM f000 +50 -50\n")
    assert "[241 more files +12,000 -12,000]" in text
    assert "[.git: 1 file]" in text
    assert "-line\n" in text
    assert len(text) < 60_000
    nothing = effects.read(root, str(views.run("true")))
    assert effects.describe(root, "", nothing) == "It changes nothing in the project."


@pytest.mark.thorough(one_of=8)
def test_many_changes(views: Views) -> None:  # fault 31: 10,000 changed files
    (views.root / "old").mkdir()
    for number in range(1_000):
        (views.root / f"old/{number}").write_text("x\n")
    changes = views.changes("rm -r old; mkdir new; for i in $(seq 9000); do echo $i > new/$i; done")
    assert len(changes) == 10_002
    assert sum(change.action == "deleted" for change in changes.values()) == 1_001


def test_the_permissions_of_the_root_itself_are_left_and_it_is_said(views: Views) -> None:
    effect = views.effect("chmod 700 .; touch f")
    assert [each.path for each in effect.uncaptured] == ["."]
    assert [each.path for each in effect.files] == ["f"]


@pytest.mark.thorough(one_of=8)
def test_very_deep_folders_are_refused_in_words(views: Views) -> None:
    view = views.run("for i in $(seq 300); do mkdir d; cd d; done")
    with pytest.raises(ToolError, match="250 folders"):
        effects.read(Root(str(views.root)), str(view))


def test_sockets_of_the_project_are_passed_over(views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(views.root)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s")
        changes = views.changes("rm s; touch f")
    assert changes["s"].before == FileState("other", stat.S_IMODE(os.lstat(views.root / "s").st_mode))


def test_a_frozen_layer_counts_the_lines_of_its_copies(views: Views, tmp_path: Path) -> None:  # W-10
    """A command cannot hide that it overwrote a file by doing so between the reading and the copying of its layer."""
    (views.root / "notes.txt").write_text("".join(f"line {number}\n" for number in range(20)))
    view = views.run("sed -i 's/line 3$/line three/' notes.txt")
    upper, root = Upper(str(view)), Root(str(views.root))

    def read_layer_and_overwrite() -> LayerReading:
        layer = effects.read_layer(root, upper, None)
        assert [change.removed for change in layer.effect.files] == [1]
        (view / "upper" / "notes.txt").write_text("all other\n")
        return layer

    into = str(tmp_path / "frozen")
    freeze_layer(upper, read_layer_and_overwrite, into, lambda file, copy: effects.count_copied_lines(root, file, copy))
    (change,) = read_frozen(into).effect.files
    assert (change.added, change.removed) == (1, 20)
