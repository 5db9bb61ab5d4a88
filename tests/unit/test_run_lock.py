"""`make run` installs a part of the lock file, with the same versions and hashes (U-10)."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.run_lock import FULL, RUN, pins, run_lock

ROOT = Path(__file__).parents[2]


def test_the_part_for_running_is_up_to_date() -> None:
    assert RUN.read_text(encoding="utf-8") == run_lock(), "run: python -m scripts.run_lock"


def test_it_holds_what_running_needs_and_no_tools_of_tests() -> None:
    full, run = pins(FULL.read_text()), pins(RUN.read_text())
    assert all(full[name] == lines and "--hash=sha256:" in lines for name, lines in run.items())
    assert {"click", "msgspec", "textual", "rich", "starlette", "anyio", "hatchling"} <= run.keys()
    assert run.keys().isdisjoint({"pytest", "mypy", "ruff", "playwright", "hypothesis"})
    assert len(run) < len(full) / 2


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_running_needs_only_that_part() -> None:
    planned = subprocess.run(["make", "-n", "-B", "run"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "install_locked.py requirements-run.lock" in planned
    assert "install_locked.py requirements.lock" not in planned


@pytest.mark.thorough
def test_the_installation_says_how_far_it_is_and_why_it_failed(tmp_path: Path) -> None:
    lock = tmp_path / "some.lock"
    lock.write_text("".join(lines for name, lines in pins(RUN.read_text()).items() if name == "click"))
    command = [sys.executable, str(ROOT / "scripts" / "install_locked.py"), str(lock)]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert "package 1 of 1: click" in process.stderr
    lock.write_text("there-is-no-such-package==1.0 --hash=sha256:" + "0" * 64 + "\n")
    offline = subprocess.run(command, capture_output=True, text=True, env={"PIP_NO_INDEX": "1"})
    assert offline.returncode != 0
    assert "the installation failed" in offline.stderr
    assert "there-is-no-such-package" in offline.stderr
