"""Tests that leave a process behind fail, and so does a run that leaves a file behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.leftovers import RUN_FOLDER

CONFTEST = """
from tests import leftovers
from tests.leftovers import no_process_is_left, process_watch, pytest_sessionfinish

leftovers.GRACE_S = 1.0
leftovers.run_folder()
"""
TESTS = """
import subprocess, tempfile

def test_child():
    subprocess.Popen(["sleep", "601"])

def test_orphan(tmp_path):
    subprocess.run(["sh", "-c", "sleep 602 > /dev/null 2>&1 &"], cwd=tmp_path)

def test_clean():
    subprocess.run(["true"])

def test_file():
    tempfile.mkdtemp(prefix="kept-")
"""


@pytest.mark.thorough(one_of=8)
@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_what_is_left_behind_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    env = {name: value for name, value in os.environ.items() if name != RUN_FOLDER and not name.startswith("PYTEST_")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:asyncio",
        "-c",
        os.devnull,
        ".",
    ]
    root = str(Path(__file__).parents[3])
    process = subprocess.run(
        command,
        cwd=tmp_path,
        env=env | {"PYTHONPATH": root, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 1
    assert "4 passed, 2 errors" in process.stdout
    assert "ERROR test_some.py::test_child" in process.stdout
    assert "sleep 601" in process.stdout
    assert "ERROR test_some.py::test_orphan" in process.stdout
    assert "sleep 602" in process.stdout
    leftovers = process.stdout.partition("Left behind by the tests:")[2].partition("\n=")[0]
    assert "/kept-" in leftovers
    assert "sleep" not in leftovers, "what a test left is ended, so that no other is blamed for it"
