"""Sandboxed commands under their supervisors: the sandbox's own processes outlive the command and finish their work,
however the command ends (S-03, S-14)."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.adapters.sandbox.grounds import Grounds
from tests.unit.adapters.sandbox.test_supervisor import CALL, CHAT, alive, output, supervisor
from treadle.adapters.sandbox.supervisor.commands import SupervisedCommands
from treadle.base.types import CallKey
from treadle.ports.commands import Command, CommandSpec, Limits
from treadle.ports.sandbox import Confinement, Hosts

_DEAF = "trap '' TERM; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; echo up; "


@pytest.fixture
async def commands(tmp_path: Path) -> AsyncIterator[SupervisedCommands]:
    new_commands = SupervisedCommands(tmp_path / "commands")
    yield new_commands
    await new_commands.close()


def job(place: Grounds, level: Any, script: str, confinement: Confinement, **changes: Any) -> CommandSpec:
    argv = tuple(place.line(level, script, confinement))
    return CommandSpec(argv, str(place.root), {"PATH": os.environ["PATH"]}, sandbox=level, **changes)


def protecting(place: Grounds, **more: object) -> Confinement:
    (place.root / ".git").mkdir(exist_ok=True)
    return place.confinement(protected=(f"{place.root}/.git/hooks",), **more)


def child_of(parent: int) -> int:
    return int(Path(f"/proc/{parent}/task/{parent}/children").read_text().split()[0])


@pytest.mark.parametrize(
    ("ending", "script", "changes"),
    [
        ("timed_out", "sleep 1000", {"timeout_s": 1.0}),
        ("stopped", "sleep 1000", {}),
        ("exceeded", "for _ in {1..40}; do sleep 1000 & done; wait", {"limits": Limits(20, 0, 0, 0, 0, 0)}),
        ("idle", "sleep 1000", {"idle_s": 1.0}),
    ],
)
async def test_landlock_puts_protected_paths_back_however_the_command_ends(
    commands: SupervisedCommands, landlock: Grounds, ending: str, script: str, changes: dict[str, Any]
) -> None:
    spec = job(landlock, "landlock", _DEAF + script, protecting(landlock), **changes)
    command = await commands.start(CHAT, CALL, spec)
    await output(command, b"up")
    outcome = await (command.stop() if ending == "stopped" else command.wait(60))
    assert outcome is not None
    assert outcome.ending == ending
    assert os.listdir(landlock.root / ".git") == []
    assert b"is protected and was put back" in command.read(0, 10_000).data


async def test_landlock_puts_protected_paths_back_after_its_launcher_was_suspended(
    commands: SupervisedCommands, landlock: Grounds
) -> None:
    command = await commands.start(CHAT, CALL, job(landlock, "landlock", f"{_DEAF} sleep 1000", protecting(landlock)))
    await output(command, b"up")
    os.kill(child_of(supervisor(command)), signal.SIGSTOP)
    await command.stop()
    assert os.listdir(landlock.root / ".git") == []


@pytest.mark.thorough(one_of=6)
async def test_a_launcher_that_does_not_end_is_killed(commands: SupervisedCommands, place: Grounds) -> None:
    script = "trap '' TERM; echo up; while :; do sleep 1; done"
    spec = CommandSpec(("/bin/bash", "-c", script), "/", {"PATH": os.environ["PATH"]}, sandbox="landlock")
    command = await commands.start(CHAT, CALL, spec)
    await output(command, b"up")
    pid = child_of(supervisor(command))
    assert (await command.stop()).ending == "stopped"
    assert not alive(pid)


async def _stop(commands: SupervisedCommands, call: str, spec: CommandSpec) -> Command:
    command = await commands.start(CHAT, CallKey(call), spec)
    await output(command, b"up")
    assert (await command.stop()).ending == "stopped"
    return command


@pytest.mark.parametrize("hosts", [(), ("web.test",)], ids=["no host", "a host"])
async def test_stop_gives_a_command_in_bubblewrap_a_moment_to_tidy_up(
    commands: SupervisedCommands, bubblewrap: Grounds, hosts: tuple[str, ...]
) -> None:
    """A moment that a busy machine may use up otherwise, but not every time."""
    network = {"network": Hosts(hosts, str(bubblewrap.scratch / "network"))} if hosts else {}
    script = "trap 'sleep 0.2; echo bye; exit 0' TERM; echo up; while :; do sleep 0.02; done"
    for number in range(5):
        spec = job(bubblewrap, "bubblewrap", script, protecting(bubblewrap, **network))
        command = await _stop(commands, f"{number}.0", spec)
        assert os.listdir(bubblewrap.root / ".git") == []
        if command.read(0, 1000).data.endswith(b"\nbye\n"):  # bash may say before it that `sleep` was terminated
            return
    raise AssertionError("it never came to its last word")


_SLOW_TO_TIDY_UP = """import os, time
read = os.read
def slow_read(*arguments):
    data = read(*arguments)
    time.sleep(0.5)
    return data
os.read = slow_read
"""


async def test_places_that_bubblewrap_holds_are_free_after_a_command_was_killed(
    commands: SupervisedCommands, bubblewrap: Grounds
) -> None:
    script = "for _ in {1..60}; do sleep 1000 & done; wait"
    limits = Limits(40, 0, 0, 0, 0, 0)
    spec = job(bubblewrap, "bubblewrap", script, protecting(bubblewrap), limits=limits)
    python, *flags, boot, package = spec.argv[:6]
    argv = (python, *flags, _SLOW_TO_TIDY_UP + boot, package, *spec.argv[6:])
    spec = msgspec.structs.replace(spec, argv=argv)
    outcome = await (await commands.start(CHAT, CALL, spec)).wait(60)
    assert outcome is not None
    assert outcome.ending == "exceeded"
    assert os.listdir(bubblewrap.root / ".git") == []
