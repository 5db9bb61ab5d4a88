"""Files without a name are let go of beside (W-08); no descriptor stays open."""

import os
import resource
import time
from contextlib import suppress
from pathlib import Path

import pytest

from treadle.adapters.workspace.paths import durable
from treadle.adapters.workspace.paths.durable import Freeing

pytestmark = pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="this system cannot hold a file without opening it")


def held_below(folder: Path) -> int:
    """How many descriptors of this process lead to what lies, or lay, in a folder."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}").startswith(f"{folder}/")
        except OSError:
            continue
    return count


def settle() -> None:
    until = time.monotonic() + 60
    while durable.count_pending() and time.monotonic() < until:
        time.sleep(0.001)


def test_a_file_lives_until_the_block_is_left(tmp_path: Path) -> None:
    file = tmp_path / "old"
    file.write_text("old")
    with Freeing() as afterwards:
        afterwards.hold(str(file))
        file.unlink()
        assert held_below(tmp_path) == 1
    settle()
    assert held_below(tmp_path) == 0


def test_an_error_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    afterwards = Freeing()
    with suppress(ValueError), afterwards:
        afterwards.hold(str(tmp_path / "old"))
        raise ValueError
    settle()
    assert held_below(tmp_path) == 0


def test_what_is_not_there_is_not_held(tmp_path: Path) -> None:
    with Freeing() as afterwards:
        afterwards.hold(str(tmp_path / "nothing"))
        assert held_below(tmp_path) == 0


def test_only_a_part_of_the_descriptors_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "_SHARE", resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
    files = [tmp_path / str(number) for number in range(5)]
    for file in files:
        file.write_text("old")
    for _ in range(2):  # a descriptor that is given back can be taken again
        with Freeing() as afterwards:
            for file in files:
                afterwards.hold(str(file))
                assert held_below(tmp_path) <= 2
        settle()
    assert held_below(tmp_path) == 0
