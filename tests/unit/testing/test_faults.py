"""The fault language itself: each fault happens where and when the text says (fault 1)."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from treadle.base.file_system import reach_faultpoint
from treadle.errors import InvalidInput
from treadle.testing.faults import Fault, InjectedFault, faults, install_from_environment, parse


def test_the_language_is_read() -> None:
    assert parse("kill@append.before:assistant.message#2; delay@a.b=0.5;list=/tmp/x;raise@*#7") == (
        Fault("kill", "append.before:assistant.message", 2),
        Fault("delay", "a.b", 1, 0.5),
        Fault("list", file="/tmp/x"),
        Fault("raise", "*", 7),
    )


@pytest.mark.parametrize("text", ["kill", "kill@", "kill@a#0", "delay@a", "kill@a=3", "list=", "hit@a", "kill@a b"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="kill@NAME"):
        parse(text)


def test_a_strike_happens_once_at_its_passing() -> None:
    with faults("raise@a#2") as injector:
        reach_faultpoint("a")
        reach_faultpoint("b")
        with pytest.raises(InjectedFault, match="at a, passing 2"):
            reach_faultpoint("a")
        reach_faultpoint("a")
    reach_faultpoint("a")
    assert injector.passed == ["a", "b", "a", "a"]
    assert injector.struck == [Fault("raise", "a", 2)]


def test_a_strike_may_happen_at_every_passing() -> None:
    with faults("raise@a#*"):
        for _ in range(3):
            with pytest.raises(InjectedFault):
                reach_faultpoint("a")
        reach_faultpoint("b")


def test_any_point_counts_all_of_them() -> None:
    with faults("raise@*#3"):
        reach_faultpoint("a")
        reach_faultpoint("b")
        with pytest.raises(InjectedFault, match="at c"):
            reach_faultpoint("c")


def test_a_delay_delays() -> None:
    with faults("delay@a=0.05"):
        began = time.monotonic()
        reach_faultpoint("a")
        assert time.monotonic() - began >= 0.05


def test_nothing_in_the_environment_installs_nothing() -> None:
    assert install_from_environment({}) is None


def test_a_process_is_killed_by_its_environment_and_leaves_its_list(tmp_path: Path) -> None:
    code = (
        "from treadle.testing.faults import install_from_environment as go\n"
        "from treadle.base.file_system import reach_faultpoint\n"
        "go()\n"
        "for name in 'a', 'b:c.d', 'a', 'after': reach_faultpoint(name)\n"
    )
    env = {**os.environ, "TREADLE_FAULTS": f"list={tmp_path / 'points'};kill@a#2"}
    process = subprocess.run([sys.executable, "-c", code], env=env, check=False)
    assert process.returncode == -signal.SIGKILL
    assert (tmp_path / "points").read_text().split() == ["a", "b:c.d", "a"]
