"""Starts, stops and ends that meet at every moment of a supervisor's start (D-02, S-14). Supervisors are held still
where it matters, and what another worker does is done at a fault point: nothing here depends on who is quicker."""

import asyncio
import fcntl
import os
import resource
import shlex
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from treadle.adapters.sandbox.supervisor import commands as worker_side
from treadle.adapters.sandbox.supervisor import folder as names
from treadle.adapters.sandbox.supervisor.commands import SupervisedCommands
from treadle.base import file_system
from treadle.base.file_system import replace_file
from treadle.base.types import CallKey, ChatId
from treadle.errors import ToolError
from treadle.ports.commands import CommandExit, CommandSpec

CHAT, CALL = ChatId("c_1"), CallKey("1.0")
HELD = """
import fcntl, os, runpy, sys, time
def hold(module, name, only=None):
    real = getattr(module, name)
    def held(*given):
        if only not in (None, *given):
            return real(*given)
        with open({place!r} + "/pid", "w") as file:
            file.write(str(os.getpid()))
        os.rename({place!r} + "/pid", {place!r} + "/held")
        while not os.access({place!r} + "/go", os.F_OK):
            time.sleep(0.005)
        setattr(module, name, real)
        return real(*given)
    setattr(module, name, held)
hold({point})
sys.argv = sys.argv[3:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Stands in for the interpreter: a supervisor that stops at one of its own steps until it may go on."""
POINTS = {
    "before it opens its folder": "os, 'chdir'",
    "before it has the lock": "fcntl, 'flock'",
    "with the lock, before it owns the command": "os, 'replace'",
    "before it looks for a stop": "os.path, 'exists', 'stop'",
    "before the fork": "os, 'fork'",
    "between fork and exec": "os, 'setsid'",
}
FULL_DISK = """
import errno, os, runpy, sys
real = getattr(os, {call!r})
def fail(path, *arguments, **options):
    if str(path).startswith({prefix!r}):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return real(path, *arguments, **options)
setattr(os, {call!r}, fail)
sys.argv = sys.argv[3:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Stands in for the interpreter: a supervisor for which one kind of system call finds a full disk."""


def make_interpreter(place: Path, script: str) -> str:
    """Make a program that runs the script in the place of the supervisor's interpreter."""
    (place / "script.py").write_text(script)
    python = place / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -IS {shlex.quote(str(place))}/script.py "$@"\n')
    python.chmod(0o700)
    return str(python)


class Slow:
    """Commands whose supervisors are held at a point."""

    def __init__(self, place: Path, point: str) -> None:
        self.place = place
        place.mkdir()
        python = make_interpreter(place, HELD.format(place=str(place), point=POINTS[point]))
        self.commands = SupervisedCommands(place.parent / "commands", python)

    async def wait_until_held(self) -> int:
        await until((self.place / "held").exists)
        return int((self.place / "held").read_text())

    def go(self) -> None:
        (self.place / "go").touch()


@pytest.fixture
async def commands(tmp_path: Path) -> AsyncIterator[SupervisedCommands]:
    new_commands = SupervisedCommands(tmp_path / "commands")
    yield new_commands
    await new_commands.close()


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    yield
    file_system.install_fault_hook(None)


def job(script: str, **changes: Any) -> CommandSpec:
    return CommandSpec(("/bin/bash", "-c", script), "/", {"PATH": os.environ["PATH"]}, **changes)


async def until(fact: Any) -> None:
    async with asyncio.timeout(30):
        while not fact():  # noqa: ASYNC110 - a fact of other processes
            await asyncio.sleep(0.005)


def owner(folder: str) -> int:
    return int(Path(folder, names.OWNER).read_text().split()[0])


def alive(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    return False


async def test_a_start_that_overtakes_a_stop_is_stopped(commands: SupervisedCommands, tmp_path: Path) -> None:  # L-07
    """The stop found nothing; before it could say so, the start had the folder, and had not started anything yet."""
    line = job(f"touch {tmp_path}/ran; sleep 1000")
    fault_points: list[str] = []

    def strike(name: str) -> None:
        if name == "command.before_burial":
            fault_points.append(name)
            commands._claim(commands._make_path(CHAT, CALL), line)

    file_system.install_fault_hook(strike)
    await commands.prevent(CHAT, CALL)
    file_system.install_fault_hook(None)
    assert fault_points
    assert await (await commands.start(CHAT, CALL, line)).wait(20) == CommandExit("stopped", -15)
    assert not (tmp_path / "ran").exists()


async def test_a_stop_that_overtakes_a_start_prevents_it(commands: SupervisedCommands, tmp_path: Path) -> None:
    line = job(f"touch {tmp_path}/ran; sleep 1000")
    for number, point in enumerate(("command.before_claim", "command.before_start")):
        call = CallKey(f"{number}.0")
        path = commands._make_path(CHAT, call)

        def strike(name: str, point: str = point, path: str = path) -> None:
            if name == point:
                worker_side._bury_unborn(path)

        file_system.install_fault_hook(strike)
        assert await (await commands.start(CHAT, call, line)).wait(20) == CommandExit("stopped", -15)
        file_system.install_fault_hook(None)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("tidying", [False, True], ids=["stop", "tidying"])
async def test_a_stop_at_any_moment_of_a_start(tmp_path: Path, point: str, tidying: bool) -> None:
    """By name, or because its call is not open any more (S-14)."""
    slow = Slow(tmp_path / "slow", point)
    starting = asyncio.create_task(slow.commands.start(CHAT, CALL, job("sleep 1000")))
    await slow.wait_until_held()
    stopping = asyncio.create_task(slow.commands.tidy(CHAT, []) if tidying else slow.commands.prevent(CHAT, CALL))
    await until(lambda: os.path.exists(f"{slow.commands._make_path(CHAT, CALL)}/{names.STOP}"))
    slow.go()
    async with asyncio.timeout(30):
        outcome = await (await starting).wait()
        await stopping
    assert outcome is not None
    assert outcome.ending == "stopped"
    await slow.commands.close()


async def test_nobody_waits_for_a_supervisor_that_died_before_the_command_was_its_own(
    commands: SupervisedCommands, tmp_path: Path
) -> None:
    slow = Slow(tmp_path / "slow", "with the lock, before it owns the command")
    starting = asyncio.create_task(slow.commands.start(CHAT, CALL, job(f"touch {tmp_path}/ran")))
    supervisor = await slow.wait_until_held()
    try:
        assert await commands.find(CHAT, CALL) is None, "this one may never start it"
        async with asyncio.timeout(60):
            await commands.prevent(CHAT, CALL)
    finally:
        os.kill(supervisor, signal.SIGKILL)
    with pytest.raises(ToolError, match="supervisor could not be started"):
        await starting
    assert await (await commands.start(CHAT, CALL, job(f"touch {tmp_path}/ran"))).wait(20) == CommandExit(
        "stopped", -15
    )
    assert not (tmp_path / "ran").exists()


async def test_another_supervisor_takes_over_from_one_that_died_early(
    commands: SupervisedCommands, tmp_path: Path
) -> None:  # D-02
    slow = Slow(tmp_path / "slow", "with the lock, before it owns the command")
    line = job(f"echo ran >> {tmp_path}/counter")
    first = asyncio.create_task(slow.commands.start(CHAT, CALL, line))
    supervisor = await slow.wait_until_held()
    second = asyncio.create_task(commands.start(CHAT, CALL, line))
    try:
        await until(lambda: commands._children)
    finally:
        os.kill(supervisor, signal.SIGKILL)
    assert await (await second).wait(20) == CommandExit("exited", 0)
    assert (tmp_path / "counter").read_text() == "ran\n"
    with suppress(ToolError):  # if it was told before the other one had the command
        await first


async def test_a_command_whose_supervisor_dies_before_it_begins_never_does(tmp_path: Path) -> None:  # fault 12
    slow = Slow(tmp_path / "slow", "between fork and exec")
    starting = asyncio.create_task(slow.commands.start(CHAT, CALL, job(f"touch {tmp_path}/ran")))
    child = await slow.wait_until_held()
    folder = slow.commands._make_path(CHAT, CALL)
    supervisor = owner(folder)
    os.kill(supervisor, signal.SIGKILL)
    await until(lambda: not alive(supervisor))
    slow.go()
    await until(lambda: not alive(child))
    assert not (tmp_path / "ran").exists()
    assert await (await starting).wait(20) == CommandExit("lost")


async def test_a_start_that_is_given_up_does_not_happen_later(
    commands: SupervisedCommands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_side, "_START_S", 0.2)
    slow = Slow(tmp_path / "slow", "before it has the lock")
    with pytest.raises(ToolError, match="said nothing for a minute"):
        await slow.commands.start(CHAT, CALL, job(f"touch {tmp_path}/ran"))
    await slow.wait_until_held()
    slow.go()
    await until(lambda: names.read_state(commands._make_path(CHAT, CALL)) == names.ENDED)
    assert not (tmp_path / "ran").exists()


async def test_nothing_starts_in_a_folder_that_is_gone(tmp_path: Path) -> None:
    slow = Slow(tmp_path / "slow", "before it looks for a stop")
    starting = asyncio.create_task(slow.commands.start(CHAT, CALL, job(f"touch {tmp_path}/ran")))
    supervisor = await slow.wait_until_held()
    shutil.rmtree(slow.commands._make_path(CHAT, CALL))
    slow.go()
    with pytest.raises(ToolError):
        await starting
    await until(lambda: not alive(supervisor))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("point", ["before it opens its folder", "before it has the lock"])
async def test_closing_ends_what_is_about_to_start(tmp_path: Path, point: str) -> None:
    slow = Slow(tmp_path / "slow", point)
    starting = asyncio.create_task(slow.commands.start(CHAT, CALL, job(f"touch {tmp_path}/ran")))
    await slow.wait_until_held()
    await slow.commands.close()
    slow.go()
    with pytest.raises(ToolError):
        await starting
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "commands").exists()


@pytest.mark.parametrize("claim_check", range(4))
def test_a_command_that_is_being_claimed_is_never_taken_for_lost(
    commands: SupervisedCommands, claim_check: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor takes the lock and writes its name between two questions of an observer."""
    folder = commands._make_path(CHAT, CALL)
    commands._claim(folder, job("true"))
    lock = os.open(f"{folder}/{names.LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
    check_count, real = 0, os.path.exists

    def exists(path: str) -> bool:
        nonlocal check_count
        if check_count == claim_check:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            Path(f"{folder}/{names.OWNER}").touch()
        check_count += 1
        return real(path)

    with monkeypatch.context() as patched:
        patched.setattr(os.path, "exists", exists)
        state = names.read_state(folder)
    os.close(lock)
    assert state in (names.UNSTARTED, names.RUNNING)


def test_a_look_that_fails_does_not_take_a_command_for_lost(commands: SupervisedCommands) -> None:
    folder = commands._make_path(CHAT, CALL)
    commands._claim(folder, job("true"))
    Path(f"{folder}/{names.OWNER}").touch()
    with open(f"{folder}/{names.LOCK}", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert names.read_state(folder) == names.RUNNING
        most = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.open(os.devnull, os.O_RDONLY)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, most[1]))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                names.read_state(folder)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, most)


def test_two_that_write_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers stop one command, or look at its news, at the same time."""
    file, real = str(tmp_path / names.CURSOR), os.replace

    def replace(source: str, target: str) -> None:
        monkeypatch.setattr(os, "replace", real)
        replace_file(file, b"the other")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    replace_file(file, b"the one")
    assert os.listdir(tmp_path) == [names.CURSOR]
    assert Path(file).read_bytes() == b"the one"


async def test_what_is_forgotten_while_others_wait_and_stop(commands: SupervisedCommands, tmp_path: Path) -> None:
    line = job(f"until [ -e {tmp_path}/go ]; do sleep 0.01; done; exit 3")
    command = await commands.start(CHAT, CALL, line)
    adopted = await SupervisedCommands(tmp_path / "commands").find(CHAT, CALL)
    assert adopted is not None
    waiting = [asyncio.create_task(one.wait()) for one in (command, adopted, adopted)]
    await asyncio.sleep(0)
    (tmp_path / "go").touch()
    await until(lambda: names.read_state(command.folder) == names.ENDED)
    await asyncio.gather(*(commands.forget(CHAT, CALL) for _ in range(3)))
    async with asyncio.timeout(60):
        assert await asyncio.gather(*waiting) == [CommandExit("exited", 3)] * 3
        assert await command.stop() == CommandExit("exited", 3)
    await until(lambda: not names.is_locked(command.folder))
    assert names.STOP not in os.listdir(command.folder), "a stop that came late leaves nothing"


async def test_those_who_wait_learn_at_once_that_a_supervisor_was_killed(commands: SupervisedCommands) -> None:
    command = await commands.start(CHAT, CALL, job("sleep 1000"))
    waiting = [asyncio.create_task(command.wait()) for _ in range(3)]
    stopping = [asyncio.create_task(command.stop()) for _ in range(2)]
    os.kill(owner(command.folder), signal.SIGKILL)
    async with asyncio.timeout(60):
        outcomes = await asyncio.gather(*waiting, *stopping)
    assert {end.ending for end in outcomes if end} == {"lost"}
    await asyncio.gather(*(commands.forget(CHAT, CALL) for _ in range(3)))
    assert await command.wait(0) == CommandExit("lost")


def owner_of(folder: str) -> int:
    return int(Path(folder, names.OWNER).read_text().split()[0])


async def test_whoever_waits_for_a_command_whose_folder_is_removed_is_told(tmp_path: Path) -> None:
    """And does not look for ever."""
    commands = SupervisedCommands(tmp_path / "commands")
    command = await commands.start(CHAT, CALL, job("sleep 1000"))
    owner = owner_of(command.folder)
    waiting = asyncio.create_task(command.wait())
    shutil.rmtree(command.folder)
    os.kill(owner, signal.SIGKILL)
    outcome = await asyncio.wait_for(waiting, 60)
    assert outcome is not None
    assert outcome.ending == "lost"


@pytest.mark.parametrize(("call", "prefix"), [("open", ".shell."), ("unlink", names.OUTPUT)])
async def test_a_full_disk_does_not_lose_a_command_that_ended(tmp_path: Path, call: str, prefix: str) -> None:
    """Fault 13: its changes are committed, so its end must be recorded."""
    python = make_interpreter(tmp_path, FULL_DISK.format(call=call, prefix=prefix))
    commands = SupervisedCommands(tmp_path / "commands", python)
    script = "printf folder >&9; head -c 100000 /dev/zero; exit 3"
    command = await commands.start(CHAT, CALL, job(script, state_fd=9, output_cap=16_384))
    outcome = await command.wait(60)
    assert outcome is not None
    assert (outcome.ending, outcome.code, outcome.size) == ("exited", 3, 100_000)
    is_state_lost = call == "open"
    assert command.read_shell_state() == (b"" if is_state_lost else b"folder")
    assert ("No space left" in outcome.error) == is_state_lost
    await commands.close()


@pytest.mark.parametrize("request_kind", ["stop", "input"])
async def test_a_supervisor_that_dies_before_it_is_asked(
    commands: SupervisedCommands, monkeypatch: pytest.MonkeyPatch, request_kind: str
) -> None:
    """Its end of the control FIFO is gone between opening and writing (L-07)."""
    command = await commands.start(CHAT, CALL, job("sleep 1000", input=True))
    supervisor, real = owner(command.folder), os.open

    def kill_after_open(path: str, *arguments: int, **options: Any) -> int:
        descriptor = real(path, *arguments, **options)
        if path == f"{command.folder}/{names.CONTROL}":
            monkeypatch.setattr(os, "open", real)
            os.kill(supervisor, signal.SIGKILL)
            os.waitpid(supervisor, 0)
        return descriptor

    monkeypatch.setattr(os, "open", kill_after_open)
    if request_kind == "stop":
        assert await command.stop() == CommandExit("lost")
    else:
        with pytest.raises(ToolError, match="takes no more input"):
            await command.write(b"text", token="t")
    assert os.open is real


async def test_a_supervisor_that_cannot_be_started_leaves_no_pipe_open(tmp_path: Path) -> None:
    commands = SupervisedCommands(tmp_path / "commands", str(tmp_path / "no-such-interpreter"))
    descriptors = os.listdir("/proc/self/fd")
    with pytest.raises(ToolError, match="could not be started"):
        await commands.start(CHAT, CALL, job("true"))
    assert os.listdir("/proc/self/fd") == descriptors
    await commands.close()
