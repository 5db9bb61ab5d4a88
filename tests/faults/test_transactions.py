"""Killed at every point of a set of changes (W-02, W-08; faults 3, 31): the project is exactly before or exactly after,
also if another process completes it; a user's edit in between stays."""

import json
import os
import sys
from itertools import product

import pytest

from tests import forked
from tests.faults.chance import some
from tests.unit.adapters.workspace.trees import fast_folder

pytestmark = pytest.mark.thorough(one_of=8)

NOBODY = "65534"


CASES = ("commit", "meanwhile", "discard", "restore", "failing")


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize(("case", "uid"), some([*product(CASES, ("", NOBODY))], 2, "transactions"))
def test_killed_at_every_point(case: str, uid: str) -> None:
    if uid and os.geteuid() != 0:
        pytest.skip("this is an ordinary user already")
    with fast_folder() as folder:
        line = [sys.executable, "-m", "tests.faults.transaction_driver", str(folder), case, *([uid] if uid else [])]
        ran = forked.run(line, env=forked.OURS, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    report = json.loads(ran.stdout)
    assert report["wrong"] == {}, ran.stderr[-3000:]
    assert report["points"] > 20
