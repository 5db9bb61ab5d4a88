"""Struck at every point of opening, committing, rebasing and dropping a world (W-11 to W-13; faults 3, 31): killed, as
root and as an ordinary user, or by an exception. A commit is made once and whole, and nothing half-made is ever
seen."""

import json
import sys
from itertools import product

import pytest

from tests import forked
from tests.faults.chance import some
from tests.unit.adapters.sandbox.grounds import NOBODY, grounds, missing

pytestmark = pytest.mark.thorough(one_of=12)

ACTS = ("open", "commit", "drop", "rebase")


@pytest.mark.parametrize(("act", "user"), some([*product(ACTS, (None, NOBODY))], 2, "killed"))
def test_killed_at_every_point(act: str, user: int | None) -> None:
    strike(act, "kill", user=user)


@pytest.mark.parametrize("act", ["open", "commit", "rebase"])
def test_a_copy_is_killed_at_every_point(act: str) -> None:
    strike(act, "kill", "copy")


@pytest.mark.parametrize(("act", "fault"), some([*product(ACTS, ("memory", "full", "cancel"))], 2, "exceptions"))
def test_an_exception_at_every_point(act: str, fault: str) -> None:
    strike(act, fault)


def strike(act: str, strike: str, world_kind: str = "overlay", user: int | None = None) -> None:
    if world_kind == "overlay" and (reason := missing("view", user)):
        pytest.skip(reason)
    with grounds(user) as place:
        folder = place.folder / "worlds"
        folder.mkdir()
        more = [] if user is None else [str(user), place.launcher.python, place.launcher.package]
        line = [sys.executable, "-m", "tests.faults.world_driver", str(folder), act, strike, world_kind, *more]
        ran = forked.run(line, env=forked.OURS, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    report = json.loads(ran.stdout)
    assert report["wrong"] == {}, ran.stderr[-3000:]
    assert report["points"] >= (8 if act in ("commit", "rebase") else 1)
