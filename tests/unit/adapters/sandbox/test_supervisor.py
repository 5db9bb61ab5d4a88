"""Commands under their supervisors: one start, one end, nothing left (D-02, S-14, faults 11 and 12)."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.adapters.sandbox.grounds import missing, python_for_everyone
from treadle.adapters.sandbox.supervisor import command as supervised
from treadle.adapters.sandbox.supervisor import folder as names
from treadle.adapters.sandbox.supervisor.commands import SupervisedCommands
from treadle.base.types import CallKey, ChatId
from treadle.errors import ToolError
from treadle.ports.commands import Command, CommandExit, CommandSpec
from treadle.ports.sandbox import LAID

CHAT, CALL = ChatId("c_1"), CallKey("1.0")


@pytest.fixture
async def commands(tmp_path: Path) -> AsyncIterator[SupervisedCommands]:
    new_commands = SupervisedCommands(tmp_path / "commands")
    yield new_commands
    await new_commands.close()


def job(script: str, cwd: Path | str = "/", **changes: Any) -> CommandSpec:
    return CommandSpec(("/bin/bash", "-c", script), str(cwd), {"PATH": os.environ["PATH"]}, **changes)


async def run(
    commands: SupervisedCommands, script: str, call: str = CALL, **changes: Any
) -> tuple[Command, CommandExit]:
    command = await commands.start(CHAT, CallKey(call), job(script, **changes))
    outcome = await command.wait(60)
    assert outcome is not None
    return command, outcome


def supervisor(command: Command) -> int:
    return int((Path(command.folder) / names.OWNER).read_text().split()[0])


def alive(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    return False


async def until(fact: Any) -> None:
    async with asyncio.timeout(30):
        while not fact():  # noqa: ASYNC110 - a fact of other processes
            await asyncio.sleep(0.01)


async def output(command: Command, piece: bytes) -> bytes:
    await until(lambda: piece in command.read(0, 1 << 20).data)
    return command.read(0, 1 << 20).data


async def test_whoever_waits_does_not_look_all_the_time(
    commands: SupervisedCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_event, woken = asyncio.Event.set, 0

    def count_and_set(event: asyncio.Event) -> None:
        nonlocal woken
        woken += 1
        set_event(event)

    monkeypatch.setattr(supervised, "_SETTLE_S", 0.2)
    monkeypatch.setattr(asyncio.Event, "set", count_and_set)
    await run(commands, "sleep 0.1")
    assert woken < 20


async def test_output_end_and_where_it_ran(commands: SupervisedCommands, tmp_path: Path) -> None:
    command, outcome = await run(commands, "pwd; echo err >&2; exit 3", cwd=tmp_path)
    assert outcome == CommandExit("exited", 3, size=len(str(tmp_path)) + 5, lines=2)
    assert command.read(0, 1000).data == f"{tmp_path}\nerr\n".encode()
    assert command.read(3, 2).data == str(tmp_path)[3:5].encode()
    assert command.read(-4, 100).data == b"err\n"
    await until(lambda: command.durable)


async def test_its_files_are_the_users_own(commands: SupervisedCommands) -> None:
    command, _ = await run(commands, "umask; env")
    assert os.stat(command.folder).st_mode & 0o777 == 0o700
    text = command.read(0, 10_000).data.decode()
    assert text.startswith(f"{_umask():04o}\n"), "the supervisor's own umask leaked into the command"
    assert "HOME=" not in text, "only what the job says is in the environment"


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


async def test_a_call_starts_once_however_many_ask(commands: SupervisedCommands, tmp_path: Path) -> None:  # D-02
    line = f"echo ran >> {tmp_path}/counter; sleep 0.1; echo out"
    supervisors = [SupervisedCommands(tmp_path / "commands") for _ in range(6)]
    started_commands = await asyncio.gather(*(one.start(CHAT, CALL, job(line)) for one in [*supervisors, *supervisors]))
    ends = await asyncio.gather(*(command.wait(60) for command in started_commands))
    assert {end.code for end in ends if end} == {0}
    assert (tmp_path / "counter").read_text() == "ran\n"
    again = await commands.start(CHAT, CALL, job(line))
    assert await again.wait(60) == ends[0]
    assert (tmp_path / "counter").read_text() == "ran\n"
    for one in supervisors:
        one._reap()


@pytest.mark.thorough(one_of=8)
def test_racing_processes_start_it_once(tmp_path: Path) -> None:  # D-02
    script = (
        "import asyncio, sys\n"
        "from treadle.adapters.sandbox.supervisor.commands import SupervisedCommands\n"
        "from treadle.ports.commands import CommandSpec\n"
        "async def main():\n"
        "    job = CommandSpec(('/bin/sh', '-c', 'echo ran >> counter'), sys.argv[1], {})\n"
        "    command = await SupervisedCommands(sys.argv[1] + '/commands').start('c_1', '1.0', job)\n"
        "    print((await command.wait()).code)\n"
        "asyncio.run(main())\n"
    )
    racers = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE) for _ in range(4)]
    assert [racer.communicate(timeout=60)[0] for racer in racers] == [b"0\n"] * 4
    assert (tmp_path / "counter").read_text() == "ran\n"


async def test_a_supervisor_that_comes_late_starts_nothing(commands: SupervisedCommands, tmp_path: Path) -> None:
    command, _ = await run(commands, f"echo ran >> {tmp_path}/counter")
    await until(lambda: names.is_locked(command.folder) is False)
    os.unlink(f"{command.folder}/{names.EXIT}")
    assert names.read_state(command.folder) == names.LOST
    await commands._launch(command.folder)
    assert (tmp_path / "counter").read_text() == "ran\n"


async def test_it_outlives_whoever_started_it(commands: SupervisedCommands, tmp_path: Path) -> None:  # D-02
    script = (
        "import asyncio, os, sys\n"
        "from treadle.adapters.sandbox.supervisor.commands import SupervisedCommands\n"
        "from treadle.ports.commands import CommandSpec\n"
        "async def main():\n"
        "    line = 'until [ -e go ]; do sleep 0.02; done; echo out; exit 7'\n"
        "    job = CommandSpec(('/bin/sh', '-c', line), sys.argv[1], {'PATH': os.environ['PATH']})\n"
        "    await SupervisedCommands(sys.argv[1] + '/commands').start('c_1', '1.0', job)\n"
        "    os.killpg(0, 9)\n"
        "asyncio.run(main())\n"
    )
    dead = await asyncio.create_subprocess_exec(sys.executable, "-c", script, str(tmp_path), start_new_session=True)
    assert await dead.wait() == -9
    command = await commands.find(CHAT, CALL)
    assert command is not None
    assert await command.wait(0.05) is None
    (tmp_path / "go").touch()
    assert await command.wait(60) == CommandExit("exited", 7, size=4, lines=1)
    assert command.read(0, 100).data == b"out\n"


async def test_nothing_of_the_worker_is_inherited(commands: SupervisedCommands) -> None:
    inside, outside = os.pipe()
    os.set_inheritable(outside, True)
    try:
        command, _ = await run(commands, "ls -l /proc/self/fd /proc/$PPID/fd")
        os.close(outside)
        os.set_blocking(inside, False)
        assert os.read(inside, 1) == b"", "somebody else holds the other end"
        assert b"pipe" in command.read(0, 10_000).data
    finally:
        os.close(inside)


@pytest.mark.parametrize(
    "script",
    [
        "sleep 1000",
        "trap '' TERM INT HUP; sleep 1000 & wait; sleep 1000",
        "setsid sleep 1000; true",
        "setsid sh -c 'setsid sleep 1000 & sleep 1000' & sleep 1000",
        "exec > /dev/null 2>&1 < /dev/null; sleep 1000",
        "exec >&- 2>&- <&-; sleep 1000",
        "(trap '' TERM; setsid sleep 1000 >/dev/null 2>&1 </dev/null &) ; sleep 1000",
        "cat > /dev/null; read line; sleep 1000",
        "f() { sleep 1000 & f; }; f",
    ],
)
async def test_a_time_out_ends_all_of_it(commands: SupervisedCommands, script: str) -> None:  # fault 12
    command, outcome = await run(commands, f"ulimit -u 4000; {script}", timeout_s=0.4)
    assert outcome.ending == "timed_out"
    assert not _find_marked_processes(command)


def _find_marked_processes(command: Command) -> list[str]:
    """Return the processes that still carry the command's mark in their environment."""
    mark = command._read_job()["env"]["TREADLE_CALL"].encode()  # type: ignore[attr-defined]
    pids = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and alive(int(entry)):
            with suppress(OSError):
                if mark in Path(f"/proc/{entry}/environ").read_bytes():
                    pids.append(entry)
    return pids


async def test_a_daemon_ends_with_its_command_and_it_is_said(commands: SupervisedCommands) -> None:  # S-14, fault 12
    command, outcome = await run(commands, "setsid setsid sleep 1000 & echo $!; sleep 0.05")
    assert (outcome.ending, outcome.code, outcome.left_behind) == ("exited", 0, True)
    assert command.read_shell_state() == b"left=sleep\0"
    assert not _find_marked_processes(command)


async def test_nothing_left_is_nothing_said(commands: SupervisedCommands) -> None:
    """A process that ends just after its command was not left behind. On a busy machine it may end too late for that,
    but not every time."""
    leftovers = []
    for number in range(10):
        _, outcome = await run(commands, "sleep 0.05 & echo x > >(sleep 0.05; cat)", f"{number}.0")
        leftovers.append(outcome.left_behind)
        if not outcome.left_behind:
            assert outcome.size == 2
            break
    assert leftovers[-1] is False, leftovers


async def test_a_command_that_kills_its_supervisor_is_lost_and_nothing_is_left(commands: SupervisedCommands) -> None:
    command, outcome = await run(commands, "setsid sleep 1000 & kill -9 $PPID; sleep 1000")  # fault 12
    assert outcome.ending == "lost"
    await until(lambda: not _find_marked_processes(command))
    assert await (await commands.start(CHAT, CALL, job("echo again"))).wait(10) == outcome


async def test_a_supervisor_that_is_asked_to_end_ends_its_command(commands: SupervisedCommands) -> None:
    command = await commands.start(CHAT, CALL, job("echo up; sleep 1000"))
    await output(command, b"up")
    os.kill(supervisor(command), signal.SIGTERM)
    outcome = await command.wait(60)
    assert outcome is not None
    assert (outcome.ending, outcome.size) == ("stopped", 3)
    assert not _find_marked_processes(command)


async def test_stop_gives_a_moment_to_tidy_up(commands: SupervisedCommands) -> None:
    """A moment that a busy machine may use up otherwise, but not every time."""
    script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.02; done"
    for number in range(5):
        command = await commands.start(CHAT, CallKey(f"{number}.0"), job(script))
        await output(command, b"up")
        outcome = await command.stop()
        assert outcome.ending == "stopped"
        assert await command.stop() == outcome
        if command.read(0, 1000).data.endswith(b"bye\n"):
            return
    raise AssertionError("it never came to its last word")


async def test_what_was_prevented_never_starts(commands: SupervisedCommands, tmp_path: Path) -> None:  # L-07, fault 4
    await commands.prevent(CHAT, CALL)
    late, outcome = await run(commands, f"touch {tmp_path}/ran")
    assert outcome.ending == "stopped"
    assert late.read(0, 10).data == b""
    claimed = commands._make_path(CHAT, CallKey("2.0"))
    commands._claim(claimed, job(f"touch {tmp_path}/ran"))
    assert await commands.find(CHAT, CallKey("2.0")) is None
    await commands.prevent(CHAT, CallKey("2.0"))
    _, outcome = await run(commands, f"touch {tmp_path}/ran", "2.0")
    assert outcome.ending == "stopped"
    assert not (tmp_path / "ran").exists()


async def test_a_start_and_a_stop_that_race_leave_nothing_running(commands: SupervisedCommands) -> None:
    for number in range(8):
        call = CallKey(f"{number}.0")
        starting = asyncio.create_task(commands.start(CHAT, call, job("sleep 1000")))
        await asyncio.sleep(number * 0.004)
        await commands.prevent(CHAT, call)
        outcome = await (await starting).wait(60)
        assert outcome is not None
        assert outcome.ending == "stopped"
    assert not await commands.list_running(CHAT)


async def test_what_was_forgotten_is_known_to_have_ended(commands: SupervisedCommands, tmp_path: Path) -> None:
    command, outcome = await run(commands, f"echo ran >> {tmp_path}/counter; seq 1000")
    await until(lambda: not names.is_locked(command.folder))
    await commands.forget(CHAT, CALL)
    assert os.listdir(command.folder) == [names.EXIT]
    assert await commands.list_commands(CHAT) == []
    again, second_outcome = await run(commands, f"echo ran >> {tmp_path}/counter")
    assert second_outcome == outcome
    assert again.read(0, 10).data == b""
    assert (tmp_path / "counter").read_text() == "ran\n"


async def test_what_runs_is_not_forgotten(commands: SupervisedCommands) -> None:
    command = await commands.start(CHAT, CALL, job("echo up; sleep 1000", background=True, title="a server"))
    await commands.forget(CHAT, CALL)
    await output(command, b"up")
    (info,) = await commands.list_commands(CHAT)
    assert (info.call, info.running, info.background, info.title) == (CALL, True, True, "a server")
    assert await commands.list_running(CHAT) == [CALL]
    assert await commands.list_running(ChatId("c_2")) == []


async def test_tidying_spares_open_calls_and_background_processes(commands: SupervisedCommands) -> None:  # S-14
    for call, background in (("1.0", False), ("2.0", False), ("3.0", True)):
        await commands.start(CHAT, CallKey(call), job("sleep 1000", background=background))
    await commands.tidy(CHAT, [CallKey("2.0")])
    assert sorted(await commands.list_running(CHAT)) == ["2.0", "3.0"]


async def test_input_comes_in_order_and_once_a_token(commands: SupervisedCommands) -> None:
    command = await commands.start(CHAT, CALL, job("cat; echo end", input=True))
    long = b"".join(b"%d\n" % number for number in range(20_000))
    await command.write(b"first\n", token="a")
    await command.write(b"first\n", token="a")
    await command.write(long, token="b")
    await command.write(b"", token="c", end=True)
    assert await command.wait(60) == CommandExit("exited", 0, size=10 + len(long), lines=20_002)
    assert command.read(0, 1 << 20).data == b"first\n" + long + b"end\n"
    with pytest.raises(ToolError, match="has ended"):
        await command.write(b"x", token="d")


async def test_stop_where_no_file_can_be_made(commands: SupervisedCommands) -> None:  # a full file system
    command = await commands.start(CHAT, CALL, job("echo up; sleep 1000"))
    await output(command, b"up")
    os.symlink("/nonexistent/stop", f"{command.folder}/stop")  # a name that cannot be opened, not even by root
    async with asyncio.timeout(60):
        assert (await command.stop()).ending == "stopped"


async def test_input_that_nobody_reads_blocks_neither_the_worker_nor_the_end(
    commands: SupervisedCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised, "_INPUT_S", 0.5)  # the input is never read, so the time does not matter
    command = await commands.start(CHAT, CALL, job("echo up; sleep 1000", input=True))
    await output(command, b"up")
    with pytest.raises(ToolError, match="does not read its input"):
        await command.write(bytes(3 << 20), token="a")
    assert (await command.stop()).ending == "stopped"


async def test_a_command_without_input_says_so(commands: SupervisedCommands) -> None:
    command = await commands.start(CHAT, CALL, job("echo up; sleep 1000"))
    with pytest.raises(ToolError, match="takes no input"):
        await command.write(b"x", token="a")


async def test_a_terminal(commands: SupervisedCommands) -> None:
    script = "tty; stty size; [ -t 0 ] && [ -t 1 ] && echo both; read line; echo got $line; sleep 1000"
    command = await commands.start(CHAT, CALL, job(script, pty=True, input=True))
    assert b"40 120\r\nboth" in await output(command, b"both")
    await command.write(b"hello\n", token="a")
    await output(command, b"got hello")
    await command.write(b"\x03", token="b")
    outcome = await command.wait(60)
    assert outcome is not None
    assert (outcome.ending, outcome.code) == ("exited", -signal.SIGINT)


async def test_the_end_of_a_terminals_input(commands: SupervisedCommands) -> None:
    command = await commands.start(CHAT, CALL, job("stty -echo; echo up; cat; echo end", pty=True, input=True))
    await output(command, b"up")
    await command.write(b"line\n", token="a", end=True)
    assert b"line\r\nend" in await output(command, b"end")


async def test_what_cannot_be_started(commands: SupervisedCommands, tmp_path: Path) -> None:
    _, outcome = await run(commands, "x" * 200_000)
    assert (outcome.ending, outcome.error) == ("failed", "Argument list too long")
    _, outcome = await run(commands, "true", "2.0", cwd=tmp_path / "none")
    assert (outcome.ending, outcome.error) == ("failed", "No such file or directory")
    broken = SupervisedCommands(tmp_path / "commands", python="/bin/false")
    with pytest.raises(ToolError, match="supervisor could not be started"):
        await broken.start(CHAT, CallKey("3.0"), job("true"))
    missing = SupervisedCommands(tmp_path / "commands", python="/nowhere/python")
    with pytest.raises(ToolError, match="could not be started: No such file"):
        await missing.start(CHAT, CallKey("3.0"), job("true"))
    _, outcome = await run(commands, "true", "3.0")
    assert outcome.code == 0, "a start that failed may be tried again"


async def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:  # fault 13
    (tmp_path / "file").touch()
    with pytest.raises(ToolError, match="could not be started"):
        await SupervisedCommands(tmp_path / "file" / "commands").start(CHAT, CALL, job("true"))


async def test_output_is_exact_up_to_its_cap_and_keeps_both_ends_beyond(commands: SupervisedCommands) -> None:
    lines = b"".join(b"%07d\n" % number for number in range(1, 8193))  # 64 KiB  # fault 11
    exact, outcome = await run(commands, "seq -f %07.0f 1 8192", output_cap=1 << 16)
    assert (outcome.size, outcome.lines) == (1 << 16, 8192)
    assert _all(exact) == [(0, lines)]
    over, outcome = await run(commands, "seq -f %07.0f 1 20000", "2.0", output_cap=1 << 16)
    assert outcome.lines == 20_000
    (start, head), (begin, tail) = _all(over)
    assert (start, head) == (0, lines[: 1 << 15])
    assert tail.endswith(b"0019999\n0020000\n")
    assert begin + len(tail) == outcome.size == 160_000
    assert 1 << 14 <= len(tail) <= 1 << 15
    assert over.read(1 << 15, 10).offset == begin, "what was dropped is passed over"


def _all(command: Command) -> list[tuple[int, bytes]]:
    """Return the kept output as stretches without a gap."""
    stretches: list[tuple[int, bytes]] = []
    at = 0
    while (piece := command.read(at, 5_000)).data:
        if stretches and piece.offset == at:
            stretches[-1] = (stretches[-1][0], stretches[-1][1] + piece.data)
        else:
            stretches.append((piece.offset, piece.data))
        at = piece.offset + len(piece.data)
    return stretches


async def test_news_since_the_last_look(commands: SupervisedCommands, tmp_path: Path) -> None:
    command = await commands.start(
        CHAT, CALL, job("echo one; until [ -e go ]; do sleep 0.01; done; echo two", tmp_path)
    )
    await output(command, b"one")
    assert command.locate_new_output("a") == (0, 4)
    assert command.locate_new_output("b") == (4, 4)
    (tmp_path / "go").touch()
    await command.wait(60)
    assert command.locate_new_output("b") == (4, 8), "asked again after a crash, it begins where it began"
    assert command.locate_new_output("c") == (8, 8)


async def test_what_the_shell_tells(commands: SupervisedCommands) -> None:  # T-14
    command, _ = await run(commands, "printf told >&9", state_fd=9)
    assert command.read_shell_state() == b"told"
    cut_short, _ = await run(commands, "printf told >&9; sleep 1000", "2.0", state_fd=9, timeout_s=0.3)
    assert cut_short.read_shell_state() == b""
    flood, outcome = await run(commands, "head -c 3000000 /dev/zero >&9; echo out", "3.0", state_fd=9, state_cap=70_000)
    assert (flood.read_shell_state(), outcome.size) == (bytes(70_000), 4)


async def test_no_worker_keeps_dead_supervisors(commands: SupervisedCommands) -> None:
    command, _ = await run(commands, "true")
    await until(lambda: not alive(supervisor(command)))
    await commands.list_running(CHAT)
    assert commands._children == set()


async def test_the_place_is_of_this_home_and_this_boot(commands: SupervisedCommands, tmp_path: Path) -> None:
    assert commands.place == SupervisedCommands(tmp_path / "commands").place
    assert commands.place != SupervisedCommands(tmp_path / "other").place


async def test_names_that_are_no_file_names(commands: SupervisedCommands, tmp_path: Path) -> None:
    command = await commands.start(ChatId("../../x/" + "y" * 300), CallKey("../1"), job("echo hi"))
    assert command.folder.startswith(f"{tmp_path}/commands/")
    assert await command.wait(60) is not None


@pytest.mark.thorough(one_of=8)
@pytest.mark.skipif(not python_for_everyone(), reason="needs root, and a Python that everyone can run")
def test_as_another_user() -> None:
    """Everything works for an ordinary user, who has an own home."""
    with tempfile.TemporaryDirectory() as place:  # pytest's own folder is closed to others
        os.chmod(place, 0o755)
        _as_another_user(Path(place))


def _as_another_user(place: Path) -> None:
    home = place / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    script = (
        "import asyncio, os, sys\n"
        "from treadle.adapters.sandbox.supervisor.commands import SupervisedCommands\n"
        "from treadle.ports.commands import CommandSpec\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "async def main():\n"
        "    commands = SupervisedCommands(sys.argv[1] + '/commands')\n"
        "    line = 'id -u; setsid sleep 1000 & sleep 0.05'\n"
        "    job = CommandSpec(('/bin/sh', '-c', line), '/', {'PATH': os.environ['PATH']})\n"
        "    command = await commands.start('c_1', '1.0', job)\n"
        "    ended = await command.wait()\n"
        "    print(ended.code, ended.left_behind, command.read(0, 100).data.decode())\n"
        "    await commands.close()\n"
        "asyncio.run(main())\n"
    )
    source = shutil.copytree(Path(names.__file__).parents[4], place / "src", ignore=shutil.ignore_patterns("*.pyc"))
    packages = Path(msgspec.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": f"{source}:{packages}", "PYTHONDONTWRITEBYTECODE": "1"}
    python = next((path for path in (sys.executable, "/usr/bin/python3") if _open_to_all(path)), None)
    if python is None:
        pytest.skip("an ordinary user cannot run this interpreter, and there is no other")
    process = subprocess.run([python, "-c", script, str(home)], env=env, capture_output=True, timeout=60)
    assert (process.stdout.decode().split(), process.stderr.decode()) == (["0", "True", "65534"], "")


def _open_to_all(python: str) -> bool:
    """Return if every user can run this interpreter, and it is of our version."""
    command = [python, "-c", "import sys; print(sys.version_info[:2], sys.prefix, sys.base_prefix, sep='\\n')"]
    try:
        version, *folders = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    except (OSError, ValueError):
        return False
    paths = [
        path
        for folder in (*folders, os.path.dirname(os.path.realpath(python)))
        for path in (Path(folder), *Path(folder).parents)
    ]
    return version == str(sys.version_info[:2]) and all(os.stat(path).st_mode & 0o005 == 0o005 for path in paths)


# -- background commands that are no longer needed ------------------------------------------------------------------


async def test_one_that_is_idle_for_too_long_ends(commands: SupervisedCommands) -> None:  # S-14
    _, outcome = await run(commands, "sleep 1000", background=True, idle_s=0.3)
    assert (outcome.ending, outcome.code) == ("idle", -15)


async def test_one_that_writes_is_not_idle(commands: SupervisedCommands) -> None:
    script = "for n in 1 2 3 4 5 6 7 8 9 10; do echo $n; sleep 0.8; done"
    _, outcome = await run(commands, script, background=True, idle_s=6)
    assert (outcome.ending, outcome.lines) == ("exited", 10)


async def test_one_that_somebody_asks_about_is_not_idle(commands: SupervisedCommands) -> None:
    command = await commands.start(CHAT, CallKey(CALL), job("sleep 1000", background=True, idle_s=6))
    for _ in range(8):
        command.touch()
        assert await command.wait(1) is None
    outcome = await command.wait(30)
    assert outcome is not None
    assert outcome.ending == "idle"


@pytest.mark.parametrize("is_removed", [False, True])
async def test_sockets_are_covered_with_the_view(tmp_path: Path, is_removed: bool) -> None:  # S-18
    if skip_reason := missing("view"):
        pytest.skip(skip_reason)
    (tmp_path / "project").mkdir()
    path = tmp_path / "daemon.sock"
    commands = SupervisedCommands(tmp_path / "commands")
    connect = f"import socket; socket.socket(socket.AF_UNIX).connect({str(path)!r}); print('connected')"
    argv = (sys.executable, "-c", connect)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen()
            if is_removed:
                path.unlink()
            for call, sockets in (("1.0", ()), ("2.0", (str(path),))):
                spec = CommandSpec(argv, "/", {}, view=str(tmp_path / "project"), lays=LAID, covered_sockets=sockets)
                command = await commands.start(CHAT, CallKey(call), spec)
                assert (outcome := await command.wait(60)) is not None
                assert (outcome.ending, outcome.code) == ("exited", 1 if sockets or is_removed else 0)
    finally:
        await commands.close()
