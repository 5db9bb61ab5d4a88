"""The demo keeps its promise, and leaves nothing behind."""

import os
import re
import tempfile
from pathlib import Path

import pytest

from tests.scenario.command_line import CommandLine

pytestmark = pytest.mark.thorough(one_of=8)

TRANSCRIPT = Path(__file__).parents[2] / "docs" / "images" / "demo.txt"


@pytest.mark.thorough(one_of=8)
def test_the_demo_is_killed_resumed_and_checked(cli: CommandLine) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # a short one: lines with its path are cut
        demo_result = cli("demo", env={"TMPDIR": name, "TREADLE_MODEL": "openai:none"})
        assert os.listdir(name) == []
    assert demo_result.code == 0, demo_result.err
    assert "The model is a script" in demo_result.out
    assert re.search(r"kill -9 \d+", demo_result.out)
    assert "(Found done after a restart.)" in demo_result.out
    assert demo_result.out.count("  ✓ ") == 4
    assert 'treadle run "Why' in demo_result.out
    assert not (cli.home / "treadle.db").exists()
    assert [without_chance(line) for line in demo_result.out.splitlines()] == [
        without_chance(line) for line in TRANSCRIPT.read_text(encoding="utf-8").splitlines()
    ]


@pytest.mark.thorough(one_of=8)
def test_the_folder_can_be_kept(cli: CommandLine) -> None:
    temporary = cli.folder / "tmp"
    temporary.mkdir()
    demo_result = cli("demo", "--keep", env={"TMPDIR": str(temporary)})
    (demo_folder,) = temporary.iterdir()
    assert str(demo_folder) in demo_result.out
    assert "/ len(numbers)" in (demo_folder / "project" / "stats.py").read_text(encoding="utf-8")
    show_result = cli("show", "last", env={"TREADLE_HOME": str(demo_folder / "home")})
    assert "mean() now divides" in show_result.out


def without_chance(line: str) -> str:
    """Process ids, folders and times differ from run to run; of two reads at once either may be first."""
    line = re.sub(r"kill -9 \d+", "kill -9 N", line)
    line = re.sub(r'File ".*/project/', 'File "', line)
    line = re.sub(r"in \d\.\d+s", "in N s", line)
    line = re.sub(r", \d+\.\d s$", "", line)  # how long a call took is said only if it was long
    return re.sub(r"● read_file \w+\.py … \d+ of \d+ lines", "● read_file", line)
