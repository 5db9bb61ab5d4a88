"""Limits of a supervisor (S-18). That commands are really ended is shown by the scenario `command_confinement`."""

import os
from pathlib import Path

import pytest

from treadle.adapters.sandbox.supervisor import limits
from treadle.adapters.sandbox.supervisor.folder import VIEW

NONE = dict.fromkeys(("processes", "memory", "disk", "file", "cpu_s", "open_files"), 0)


class Machine:
    """A fake of the kernel's facts about the whole machine, and a clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.used = {"processes": 100, "memory": -(8 << 30), "disk": -(100 << 30)}
        self.own = dict.fromkeys(self.used, 0)
        self.counted: list[str] = []
        self.now = 0.0
        monkeypatch.setattr(limits, "_machine", lambda _folder: dict(self.used))
        monkeypatch.setattr(limits, "_total_memory", lambda: 16 << 30)
        monkeypatch.setattr(limits.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(limits, "_OWN", {name: lambda _most, name=name: self._count(name) for name in self.used})

    def _count(self, name: str) -> int:
        self.counted.append(name)
        return self.own[name]

    def look(self, watch: limits.Watch) -> str:
        self.now += 0.5
        self.counted.clear()
        return watch.look()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_without_limits_nothing_is_looked_at() -> None:
    watch = limits.Watch(NONE, ".")
    assert watch.next is None
    assert watch.choose_earlier(3.0) == 3.0
    assert watch.look() == ""


def test_files_are_counted_only_when_the_disk_has_become_fuller(machine: Machine) -> None:
    watch = limits.Watch({**NONE, "disk": 4 << 30}, ".")
    for _ in range(20):
        assert machine.look(watch) == ""
        assert machine.counted == []
    machine.used["disk"] += 3 << 30
    machine.own["disk"] = 3 << 30
    assert machine.look(watch) == ""
    assert machine.counted == ["disk"]
    assert machine.look(watch) == ""
    assert machine.counted == [], "not again before it may have written the rest"
    machine.used["disk"] += 2 << 30
    machine.own["disk"] = 5 << 30
    assert machine.look(watch) == "it wrote more than 4 GB to the disk (limit_disk_gb)"


def test_what_others_use_is_not_held_against_a_command(machine: Machine) -> None:
    watch = limits.Watch({**NONE, "processes": 50, "memory": 1 << 30}, ".")
    machine.used |= {"processes": 5_000, "memory": -(4 << 30)}
    assert machine.look(watch) == ""
    machine.own["processes"] = 51
    machine.now += 10
    assert machine.look(watch) == "it had started more than 50 processes (limit_processes)"


@pytest.mark.parametrize(
    ("name", "free_bytes", "words"),
    [("disk", 1 << 29, "the disk is nearly full"), ("memory", 1 << 29, "nearly used up")],
)
def test_a_machine_that_runs_out(machine: Machine, name: str, free_bytes: int, words: str) -> None:
    watch = limits.Watch({**NONE, "disk": 1 << 40, "memory": 1 << 40}, ".")
    machine.used[name] = -free_bytes
    assert words in machine.look(watch)


def test_a_machine_that_was_short_before(machine: Machine) -> None:
    machine.used["disk"] = -(1 << 29)
    watch = limits.Watch({**NONE, "disk": 1 << 40}, ".")
    assert machine.look(watch) == ""


def test_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert limits._count_disk_bytes(VIEW) == 0
    (tmp_path / VIEW / "upper" / "deep").mkdir(parents=True)
    (tmp_path / VIEW / "upper" / "deep" / "file").write_bytes(os.urandom(1 << 20))
    (tmp_path / VIEW / "upper" / "link").symlink_to("/usr")
    assert 1 << 20 <= limits._count_disk_bytes(VIEW) < 1 << 21
