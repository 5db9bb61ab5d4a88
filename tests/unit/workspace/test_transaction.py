"""Sets of changes, all or none (W-02, W-08; faults 20, 31). Kills are in tests/faults/test_transactions.py."""

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings

from tests.unit.workspace.trees import Bench, Node, build, fast_folder, nodes, picture, taken_back


@settings(max_examples=150, database=None)
@given(nodes(), nodes())
def test_a_tree_becomes_another_and_back_and_again(old: dict[bytes, Node], new: dict[bytes, Node]) -> None:
    with fast_folder() as folder:
        bench = Bench(folder)
        build(bench.project, old)
        build(bench.goal, new)
        before, after = picture(bench.project), picture(bench.goal)
        effect = bench.commit()
        assert not effect.conflicts
        assert picture(bench.project) == after
        undone = bench.restore("c_1/u_1", taken_back(effect))
        assert not undone.conflicts
        assert picture(bench.project) == before
        redone = bench.restore("c_1/u_2", taken_back(undone))
        assert not redone.conflicts
        assert picture(bench.project) == after
        assert bench.left_over() == []


AS_NOBODY = """
import os
from hypothesis import Phase, given, settings
from tests.unit.workspace import test_transaction as tests
test = tests.test_a_tree_becomes_another_and_back_and_again
test.hypothesis.inner_test({}, {b"a": tests.Node("file")})  # so that all is loaded
os.setgroups([]); os.setgid(65534); os.setuid(65534)
settings(max_examples=150, phases=[Phase.generate], database=None, deadline=None)(
    given(tests.nodes(), tests.nodes())(test.hypothesis.inner_test))()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="this is an ordinary user already")
def test_the_same_as_an_ordinary_user() -> None:
    done = subprocess.run([sys.executable, "-c", AS_NOBODY], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
