"""Killed at each point of a command on a view: start, run, end, effect read, pre-images, journal, changes, outcome. The
project is exactly before or exactly after, the command took effect once, and its output is there (W-08, D-02; faults 2
and 31)."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.homes import seed
from tests.unit.adapters.sandbox.grounds import NOBODY, becoming, grounds, missing, python_for_everyone

pytestmark = pytest.mark.thorough(one_of=12)

ROOT = Path(__file__).parents[2]


def run(folder: Path, home: Path, scenario: str, step: int, user: int | None = None) -> None:
    python = sys.executable if user is None else python_for_everyone()
    libraries = os.pathsep.join([str(ROOT), str(ROOT / "src"), sysconfig.get_path("purelib")])
    ran = subprocess.run(
        [python, "-m", "tests.faults.view_driver", str(folder), str(home), scenario, str(step)],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": libraries, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        **becoming(user),
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    report = json.loads(ran.stdout)
    if reason := report.get("skip"):
        pytest.skip(reason)
    assert report["problems"] == [], ran.stderr[-3000:]
    assert report["points"] > 25, "it was not killed at the points that matter"


@pytest.mark.parametrize(("scenario", "step"), [("settle", 1), ("stop", 2), ("lost", 2)])
def test_killed_at_every_point(scenario: str, step: int) -> None:
    if reason := missing("view"):
        pytest.skip(reason)
    with grounds() as place:
        run(place.root, seed(place.scratch), scenario, step)


def test_killed_at_points_as_an_ordinary_user() -> None:
    if reason := missing("view", NOBODY):
        pytest.skip(reason)
    try:
        import_check = [python_for_everyone(), "-c", "import msgspec, hypothesis"]
        environment = {"PYTHONPATH": sysconfig.get_path("purelib")}
        subprocess.run(import_check, env=environment, check=True, capture_output=True, **becoming(NOBODY))
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("what Treadle needs cannot be read by everyone here")
    with grounds(NOBODY) as place:
        run(place.root, place.scratch, "settle", 4, NOBODY)
