"""Housekeeping keeps the images that undoing needs and removes others, the oldest first; nothing in use goes."""

import os
import shutil
import time
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tests.trees import measure_size
from tests.unit.library.housekeeping.kit import Home
from treadle.adapters.sandbox.supervisor.commands import SupervisedCommands
from treadle.adapters.workspace.history.capture import make_copy
from treadle.adapters.workspace.history.journal import Ending, Journal
from treadle.adapters.workspace.history.overlay_upper import Beginnings
from treadle.base.types import CallKey, ChatId
from treadle.library.housekeeping.collecting import collect, collect_briefly, collect_some
from treadle.library.housekeeping.retention import DAY_S, Retention, get_stamp_path, is_due, read_stamp
from treadle.library.worlds.record import World, WorldFolders
from treadle.ports.commands import CommandSpec
from treadle.ports.store import Commit
from treadle.protocol import wire
from treadle.protocol.events import Envelope, ExecutionStart, FilesChanged
from treadle.protocol.files import DiffStat, FileState, make_file_change
from treadle.protocol.wire import Record


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


async def test_what_recent_chats_refer_to_stays(home: Home) -> None:
    await home.chat("c_new", b"new", b"both", days=29)
    await home.chat("c_old", b"old", b"both", days=31)
    home.image(b"nobody's")
    home.image(b"nobody's, young", days=0.5)
    forecast = await collect(home.store, home.path, Retention(), dry=True)
    assert (forecast.images, forecast.bytes, forecast.kept_images) == (2, 11, 3)
    assert len(home.read_images()) == 5
    result = await collect(home.store, home.path, Retention())
    assert replace(result, line=forecast.line) == forecast
    assert home.read_images() == {b"new", b"both", b"nobody's, young"}


async def test_what_a_chat_at_work_refers_to_stays_however_old(home: Home) -> None:
    await home.chat("c_waits", b"waits", days=99, status="requires_action")
    await home.chat("c_runs", b"runs", days=99, runnable=True)
    await home.chat("c_idle", b"idle", days=99)
    await collect(home.store, home.path, Retention(days=0, cap=0))
    assert home.read_images() == {b"waits", b"runs"}


async def test_beyond_the_cap_the_oldest_go_first(home: Home) -> None:
    for days in range(1, 6):
        await home.chat(f"c_{days}", bytes([days]) * 100, b"shared by all", days=days)
    result = await collect(home.store, home.path, Retention(cap=320))
    assert home.read_images() == {b"\1" * 100, b"\2" * 100, b"\3" * 100, b"shared by all"}
    assert result.kept_bytes == 313
    assert time.time() - 4 * DAY_S == pytest.approx(read_stamp(home.path).line, abs=60)
    await collect(home.store, home.path, Retention())
    assert time.time() - 4 * DAY_S == pytest.approx(read_stamp(home.path).line, abs=60), "what is gone stays gone"


async def test_the_cap_takes_nothing_that_was_used_within_a_day(home: Home) -> None:
    await home.chat("c_1", b"one", days=3)
    home.age_all(0.5)
    await collect(home.store, home.path, Retention(cap=0))
    assert home.read_images() == {b"one"}


async def test_what_a_tree_relies_on_stays_as_long_as_the_tree(home: Home) -> None:
    """Else the next command would start without what was there before (W-01)."""
    (home.top / "a").write_bytes(b"in the tree")
    home.captures.capture("c/1.0")
    home.captures.release("c/1.0")
    home.age_all()
    assert (await collect(home.store, home.path, Retention())).images == 0
    assert home.read_images() == {b"in the tree"}
    for tree in (home.folder / "trees").iterdir():
        os.utime(tree, (time.time() - 8 * DAY_S,) * 2)
    result = await collect(home.store, home.path, Retention())
    assert (result.images, result.trees) == (1, 1)
    home.captures.capture("c/2.0")
    assert home.read_images() == {b"in the tree"}


async def test_the_cap_takes_the_trees_along(home: Home) -> None:
    (home.top / "a").write_bytes(b"in the tree")
    home.captures.capture("c/1.0")
    home.captures.release("c/1.0")
    home.age_all()
    for tree in (home.folder / "trees").iterdir():
        os.utime(tree, (time.time() - 2 * DAY_S,) * 2)
    result = await collect(home.store, home.path, Retention(cap=0))
    assert (result.images, result.trees) == (1, 1)
    home.captures.capture("c/2.0")
    assert home.read_images() == {b"in the tree"}


async def test_a_capture_holds_what_it_needs_until_it_is_forgotten(home: Home) -> None:
    (home.top / "a").write_bytes(b"captured")
    home.captures.capture("c_1/1.0")
    home.age_all()
    for tree in (home.folder / "trees").iterdir():
        os.utime(tree, (time.time() - 8 * DAY_S,) * 2)
    await collect(home.store, home.path, Retention(cap=0))
    (home.top / "a").unlink()
    assert [file.path for file in home.captures.compare("c_1/1.0").files] == ["a"]
    assert home.read_images() == {b"captured"}


async def test_what_a_world_began_with_stays_as_long_as_the_world(home: Home) -> None:  # W-13
    (home.top / "a").write_bytes(b"copied")
    folders = WorldFolders(str(home.path))
    copy = World("", str(home.top), how="copy", why="for a test")
    copy_world = folders.make(copy, lambda view: make_copy(str(home.top), view, home.images, str(home.path)))
    layers = folders.make(World("", str(home.top)))
    began = FileState("file", 0o644, home.image(b"beneath layers"), 14)
    Beginnings(folders.locate_view(layers)).add({"a": began})
    home.age_all()
    await collect(home.store, home.path, Retention(cap=0))
    assert home.read_images() == {b"copied", b"beneath layers"}
    for world in (copy_world, layers):
        folders.remove(world)
    await collect(home.store, home.path, Retention(cap=0))
    assert home.read_images() == set()


async def test_captures_that_nobody_came_back_to_go(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    await home.chat("c_open", days=99, status="requires_action")
    past_ns = time.time_ns() - int(31 * DAY_S * 1e9)
    with monkeypatch.context() as patched:
        patched.setattr(time, "time_ns", lambda: past_ns)
        home.captures.capture("c_gone/1.0")
        home.captures.capture("c_open/1.0")
    result = await collect(home.store, home.path, Retention())
    assert result.captures == 1
    assert len(list((home.folder / "captures").glob("*.json"))) == 1
    assert home.captures.compare("c_open/1.0").files == ()


async def test_a_capture_of_a_chat_that_rests_is_worth_no_more_than_the_chat(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    await home.chat("c_idle", days=3)
    (home.top / "a").write_bytes(b"captured")
    past_ns = time.time_ns() - int(4 * DAY_S * 1e9)
    with monkeypatch.context() as patched:
        patched.setattr(time, "time_ns", lambda: past_ns)
        home.captures.capture("c_idle/1.0")
    home.age_all()
    shutil.rmtree(home.folder / "trees")
    assert (await collect(home.store, home.path, Retention())).captures == 0
    assert home.read_images() == {b"captured"}
    assert (await collect(home.store, home.path, Retention(cap=0))).captures == 1
    assert home.read_images() == set()


async def test_what_an_unfinished_undo_needs_stays(home: Home) -> None:
    state = FileState("file", 0o644, home.image(b"goal"), 4)
    journal = Journal("c/undo", str(home.top), "restore", "", (make_file_change("a", None, state, DiffStat()),))
    home.journals.decide(journal)
    await collect(home.store, home.path, Retention(days=0, cap=0))
    assert home.read_images() == {b"goal"}
    home.journals.record_ending("c/undo", Ending())
    await collect(home.store, home.path, Retention(days=0, cap=0))
    assert home.read_images() == set()


async def test_what_an_intent_refers_to_stays(
    home: Home,
) -> None:  # W-01, D-02: whether it took effect is not known yet
    plan = {"steps": [{"path": "a", "pre": home.image(b"before"), "post": None}]}
    await home.log("c_1", ExecutionStart(CallKey("1.0"), "write_file", plan=plan), days=3, status="running")
    await collect(home.store, home.path, Retention())
    assert home.read_images() == {b"before"}


async def test_what_a_manifest_lists_stays(home: Home) -> None:  # D-06
    state = FileState("file", 0o644, home.image(b"listed"), 6)
    listed = msgspec.json.encode([make_file_change("a", state, None, DiffStat())])
    await home.log("c_1", FilesChanged((), manifest=await home.store.put_blob(listed), total=1), days=3)
    await collect(home.store, home.path, Retention())
    assert home.read_images() == {b"listed"}


async def test_a_lost_manifest_costs_only_what_it_alone_listed(home: Home) -> None:  # D-06
    listed_change = make_file_change("a", FileState("file", 0o644, home.image(b"shown"), 5), None, DiffStat())
    unread = await home.store.put_blob(b"no list")
    await home.log(
        "c_1", FilesChanged((listed_change,), manifest="0" * 64, total=250), FilesChanged((), manifest=unread)
    )
    await home.chat("c_2", b"of another")
    home.image(b"nobody's")
    assert (await collect(home.store, home.path, Retention())).images == 1
    assert home.read_images() == {b"shown", b"of another"}


@pytest.mark.thorough(one_of=8)
async def test_passes_too_short_for_all_of_it_bring_it_below_the_cap_together(home: Home) -> None:  # W-01
    for number in range(30):
        await home.chat(f"c_{number}", b"%d" % number * 500, days=3 + number)
    await home.chat("c_waits", b"waits", days=99, status="requires_action")
    passes, cap = 0, 5_000
    removal_counts = []
    while not passes or not read_stamp(home.path).done:
        old_count = len(home.read_images())
        await collect_some(home.store, home.path, Retention(days=100, cap=cap), seconds=0)
        assert is_due(home.path) != read_stamp(home.path).done, "what was left is gone on with, by whoever comes next"
        removal_counts.append(old_count - len(home.read_images()))
        passes += 1
        assert passes < 200
    assert max(removal_counts) < 3, "each did a little"
    assert measure_size(home.images) <= cap
    assert home.read_images() == {b"waits", *(b"%d" % number * 500 for number in range(9))}, "the oldest went"


async def test_a_pass_that_goes_on_leaves_what_came_to_be_needed_meanwhile(home: Home) -> None:
    for number in range(30):
        home.image(b"%d" % number)
    while not read_stamp(home.path).shard:
        await collect_some(home.store, home.path, Retention(), seconds=0)
    images = home.read_images()
    await home.chat("c_1", *images)
    await collect_some(home.store, home.path, Retention())
    assert read_stamp(home.path).done
    assert home.read_images() == images
    assert len(images) > 20


async def test_a_pass_reads_a_log_again_only_if_it_has_changed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    chats = [await home.chat(f"c_{number}", b"%d" % number, days=3) for number in range(3)]
    read: list[str] = []
    real = home.store.read

    async def record_read(chat: ChatId, after_seq: int = 0, limit: int = 0) -> list[Record]:
        read.append(chat)
        return await real(chat, after_seq, limit)

    monkeypatch.setattr(home.store, "read", record_read)
    await collect_some(home.store, home.path, Retention())
    assert set(read) == set(chats)
    read.clear()
    image = home.image(b"more")
    change = make_file_change("a", FileState("file", 0o644, image, 4), None, DiffStat())
    record = wire.encode(Envelope(2, chats[1], time.time_ns() // 10**6, FilesChanged((change,))))
    summary = replace((await home.store.get(chats[1])).summary, head=2)
    await home.store.append(Commit(chats[1], [record], summary, durable=True))
    await collect_some(home.store, home.path, Retention())
    assert set(read) == {chats[1]}
    assert home.read_images() == {b"0", b"1", b"2", b"more"}
    (home.folder / "marks").write_bytes(b"damaged")
    await collect_some(home.store, home.path, Retention())
    assert home.read_images() == {b"0", b"1", b"2", b"more"}


async def test_a_pass_ends_when_it_is_told_to(home: Home) -> None:
    for number in range(30):
        home.image(b"%d" % number)
    await home.chat("c_1", b"one", days=3)
    await collect_some(home.store, home.path, Retention(), going=lambda: False)
    assert len(home.read_images()) == 31
    assert is_due(home.path)


async def test_what_processes_that_died_left_goes_after_a_day(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.captures.capture("c/1.0")
    (home.folder / "stage" / "ready").mkdir(parents=True)
    for path in ("trees/.tree_x", "captures/t_x.tree", "captures/t_x.new", "stage/ready/1"):
        (home.folder / path).write_bytes(b"half")
    old_files = {path for path in home.folder.rglob("*") if path.is_file()}
    await collect(home.store, home.path, Retention())
    assert {path for path in home.folder.rglob("*") if path.is_file()} - {get_stamp_path(home.path)} == old_files
    later = time.time() + 1.5 * DAY_S
    monkeypatch.setattr(time, "time", lambda: later)
    await collect(home.store, home.path, Retention())
    folder_names = {
        str(path.relative_to(home.folder)).split("/")[0] for path in home.folder.rglob("*") if path.is_file()
    }
    assert folder_names == {"trees", "captures", "collected", "incoming"}
    assert home.captures.compare("c/1.0").files == ()


async def test_by_itself_it_waits_for_nobody(home: Home) -> None:
    home.image(b"nobody's")
    with home.images.open_batch():
        await collect_briefly(home.store, home.path, Retention())
        assert home.read_images() == {b"nobody's"}
    assert is_due(home.path), "the next one does it"
    await collect_briefly(home.store, home.path, Retention())
    assert home.read_images() == set()


async def test_by_itself_once_a_day(home: Home) -> None:
    assert not is_due(home.path)
    assert not home.folder.exists()
    home.image(b"nobody's")
    assert not is_due(home.path)  # the clock is set
    yesterday = time.time() - 1.1 * DAY_S
    os.utime(get_stamp_path(home.path), (yesterday, yesterday))
    assert is_due(home.path)
    await collect_briefly(home.store, home.path, Retention())
    assert home.read_images() == set()
    assert not is_due(home.path)


async def test_without_snapshots_there_is_nothing_to_do(home: Home) -> None:
    await home.chat("c_1", days=3)
    result = await collect(home.store, home.path, Retention())
    assert (result.images, result.kept_images) == (0, 0)
    assert not home.folder.exists()


async def test_outputs_of_commands_that_ended_long_ago_go(home: Home) -> None:
    commands = SupervisedCommands(home.path / "commands")
    for name, status in (("c_idle", "idle"), ("c_open", "requires_action")):
        chat = await home.chat(name, days=99, status=status)
        command = await commands.start(
            chat, CallKey("1.0"), CommandSpec(("echo", "hello"), str(home.top), dict(os.environ))
        )
        await command.wait()
        exit_file = Path(command.folder) / "exit"
        os.utime(exit_file, (time.time() - 31 * DAY_S,) * 2)
    result = await collect(home.store, home.path, Retention())
    assert result.commands == 1
    assert os.listdir(home.path / "commands" / "c_idle" / "1.0") == ["exit"]
    assert (home.path / "commands" / "c_open" / "1.0" / "output.0").exists()
    assert (await collect(home.store, home.path, Retention())).commands == 0
