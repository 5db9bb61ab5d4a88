"""Undo data stays below its cap where no `treadle run` ends: real processes of `serve` and `worker`."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.command_line import CommandLine, end
from tests.trees import measure_size
from treadle.adapters.workspace.history.content_store import ContentStore
from treadle.library.housekeeping.retention import get_stamp_path, read_stamp

pytestmark = pytest.mark.thorough(one_of=8)

DAY_S = 86_400
CAP = {"TREADLE_SNAPSHOT_CAP_GB": "0.0000025"}  # 2,500 bytes
WAIT_S = 60.0
COMMANDS = {"serve": ("serve", "--port", "0"), "worker": ("worker",)}


def until(fact: Callable[[], Any], description: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not fact():
        assert time.monotonic() < deadline, f"never: {description}"
        time.sleep(0.02)


def writing(content: str) -> str:
    call = f'{{ name = "write_file", args = {{ path = "a", content = "{content}" }} }}'
    read = '{ name = "read_file", args = { path = "a" } }'
    return f'[[turn]]\ncall = [{read}]\n[[turn]]\ncall = [{call}]\n[[turn]]\ntext = "Done."\n'


def made_old(file: Path) -> None:
    os.utime(file, (time.time() - 2 * DAY_S,) * 2)


class Crowded:
    """A home with two chats that overwrote a file, and far more unused data; all of it is two days old."""

    def __init__(self, cli: CommandLine) -> None:
        self.cli = cli
        self.images = ContentStore(cli.home / "snapshots")
        self.file = cli.project / "a"
        self.file.write_text("0" * 3000)
        for content in ("1" * 2000, "2" * 1000):
            assert cli("run", "Write.", "--model", cli.script(writing(content))).code == 0
        for number in range(300):
            self.images.put(b"nobody's %d" % number)
        for image in list(self.images.iterate_objects()):
            made_old(self.images.folder / "objects" / image.digest[:2] / image.digest)
        made_old(get_stamp_path(cli.home))

    def count(self) -> int:
        return len(list(self.images.iterate_objects()))

    def is_done(self) -> bool:
        stamp = read_stamp(self.cli.home)
        return stamp.done and stamp.goal > 0

    def start(self, command: str, **env: str) -> "subprocess.Popen[str]":
        return self.cli.start(*COMMANDS[command], env=CAP | env)


@pytest.fixture
def crowded_home(cli: CommandLine) -> Crowded:
    return Crowded(cli)


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("command", COMMANDS)
def test_the_cap_holds_where_a_process_stays(crowded_home: Crowded, command: str) -> None:  # W-01
    process = crowded_home.start(command)
    try:
        until(crowded_home.is_done, "a pass is done")
    finally:
        process.terminate()
        assert end(process).code == 0
    assert measure_size(crowded_home.images) <= 2500
    cli = crowded_home.cli
    assert cli("undo", "last", "--yes").code == 0
    assert crowded_home.file.read_text() == "1" * 2000, "what the newest run needs was there"
    older = cli("chats", "--json").lines[1]["chat"]
    assert "no longer stored" in cli("undo", older, "--yes").out
    assert cli("fsck").code == 0, "what was collected is not missed"


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_signal_ends_a_pass_at_once_and_the_next_goes_on(crowded_home: Crowded, command: str) -> None:  # fault 17
    fault_list = crowded_home.cli.folder / "passed"
    faults = f"delay@snapshot.swept#*=0.3;list={fault_list}"  # all of it would take a minute and a half
    process = crowded_home.start(command, TREADLE_FAULTS=faults)
    until(lambda: fault_list.exists() and "snapshot.swept" in fault_list.read_text(), "it removes")
    began = time.monotonic()
    process.terminate()
    assert end(process).code == 0
    assert time.monotonic() - began < 20
    assert crowded_home.count() > 200
    assert not read_stamp(crowded_home.cli.home).done
    again = crowded_home.start(command)
    try:
        until(crowded_home.is_done, "the next pass ends")
    finally:
        again.terminate()
        end(again)
    assert measure_size(crowded_home.images) <= 2500


@pytest.mark.thorough(one_of=8)
def test_runs_together_bring_very_many_below_the_cap(crowded_home: Crowded) -> None:
    hello = crowded_home.cli.script('[[turn]]\ntext = "Hello."\n')
    env = CAP | {"TREADLE_FAULTS": "delay@snapshot.swept#*=0.01"}
    counts = [crowded_home.count()]
    while not crowded_home.is_done():
        assert crowded_home.cli("run", "Hello.", "--model", hello, env=env).code == 0
        counts.append(crowded_home.count())
        # The last one may find that all is removed already: the one before it had no time left to say so.
        assert counts[-1] < counts[-2] or crowded_home.is_done(), "each removes some"
    assert len(counts) > 3, "one alone did not do it"
    assert measure_size(crowded_home.images) <= 2500
