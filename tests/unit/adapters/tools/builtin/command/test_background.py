"""Background processes: started, checked, talked to and stopped by their handle (T-05, W-10, S-14)."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from tests.unit.adapters.tools.builtin.command.commanding import CHAT, Bench, alive, until
from treadle.adapters.policy.redaction import Redactor
from treadle.adapters.sandbox.supervisor import folder as names
from treadle.adapters.tools.builtin.command import background
from treadle.base.types import CallKey
from treadle.errors import ToolError
from treadle.ports.toolset import Outcome
from treadle.protocol.events import JobEnded, JobStarted

HOST = os.uname().nodename


async def begin(bench: Bench, command: str, **arguments: object) -> str:
    call = bench.call(command=command, background=True, **arguments)
    outcome = await bench.run(call)
    assert f'[handle "{call.call}", running' in outcome.text
    return call.call


async def check_until(bench: Bench, handle: str, piece: str, text: str = "") -> str:
    """Check until a piece of output was seen; `text` is what was seen already."""
    async with asyncio.timeout(30):
        while piece not in text:
            text += (await bench.use("check_command", handle=handle, wait_s=20)).text
    return text


async def test_it_returns_at_once_and_outlives_the_call(bench: Bench) -> None:
    call = bench.call(command="echo up; echo $$ > pid; sleep 1000\n# more", background=True)
    [fact] = (await bench.run(call)).facts
    handle = call.call
    assert fact == JobStarted(handle, call.arguments["command"].partition("\n")[0], bench.commands.place, HOST)
    assert "running]" in (await bench.use("check_command", handle=handle)).text
    await until((bench.project / "pid").exists)
    await until(lambda: (bench.project / "pid").read_text().endswith("\n"))
    pid = int((bench.project / "pid").read_text())
    assert alive(pid)
    assert (await bench("echo meanwhile")).success
    stopped = await bench.use("stop_command", handle=handle)
    assert stopped.text.endswith("[stopped]")
    assert stopped.success
    assert stopped.facts == (JobEnded(handle, "stopped", -15, "model"),)
    assert not alive(pid)
    assert (await bench.use("stop_command", handle=handle)).text == "(nothing new)\n[stopped]"


async def test_a_check_shows_what_is_new_and_how_it_ended(bench: Bench) -> None:
    handle = await begin(bench, "echo one; until [ -e go ]; do sleep 0.01; done; echo two; exit 3")
    command = await bench.commands.find(CHAT, CallKey(handle))
    assert command is not None
    await until(lambda: command.read(0, 10).data == b"one\n")
    await bench.use("check_command", handle=handle)
    quiet = await bench.use("check_command", handle=handle)
    assert quiet.text == "(nothing new)\n[running]"
    (bench.project / "go").touch()
    text = await check_until(bench, handle, "exit 3")
    assert (await bench.use("check_command", handle=handle)).facts == ()  # the first one said it
    assert "two\n" in text
    assert "one" not in text
    last = await bench.use("check_command", handle=handle)
    assert (last.text, last.success) == ("(nothing new)\n[exit 3]", False)


async def test_a_check_that_is_run_again_after_a_crash_shows_the_same(bench: Bench) -> None:  # D-02
    handle = await begin(bench, "until [ -e go ]; do sleep 0.01; done; echo news; sleep 1000")
    (bench.project / "go").touch()
    call = bench.call("check_command", handle=handle, wait_s=20)
    await bench.tools["check_command"].prepare(call)
    first = await bench.run(call)
    assert first.text == "news\n[running]"
    assert await bench.run(call) == first
    assert (await bench.use("check_command", handle=handle)).text == "(nothing new)\n[running]"


async def test_one_that_fails_at_once_says_so_at_once(bench: Bench) -> None:
    async with asyncio.timeout(30):
        while True:  # unless the machine is so busy that it looks as if it ran
            outcome = await bench("echo no such port; exit 2", background=True)
            if "running" not in outcome.text:
                break
    assert outcome.text.startswith("no such port\n[handle")
    assert "exit 2" in outcome.summary
    assert not outcome.success


async def test_input_and_its_end(bench: Bench) -> None:
    handle = await begin(bench, "while read line; do echo got:$line; done; echo end")
    reply = await bench.use("send_input", handle=handle, text="hello")
    await check_until(bench, handle, "got:hello\n", reply.text)
    assert "got" not in (await bench.use("send_input", handle=handle, text="half", enter=False)).text
    reply = await bench.use("send_input", handle=handle, text=" line")
    await check_until(bench, handle, "got:half line\n", reply.text)
    reply = await bench.use("send_input", handle=handle, end=True)
    assert "end\n" in await check_until(bench, handle, "exit 0", reply.text)
    with pytest.raises(ToolError, match="has ended"):
        await bench.use("send_input", handle=handle, text="x")


async def test_input_that_is_sent_again_after_a_crash_arrives_once(bench: Bench) -> None:  # D-02
    handle = await begin(bench, "while read line; do echo $line >> got; done")
    call = bench.call("send_input", handle=handle, text="once")
    await bench.run(call)
    assert await bench.tools["send_input"].settle(call) == "run_again"
    await bench.run(call)
    await bench.use("send_input", handle=handle, text="last")
    await until(lambda: "last\n" in (bench.project / "got").read_text())
    assert (bench.project / "got").read_text() == "once\nlast\n"


async def test_an_interactive_program_in_a_terminal(bench: Bench) -> None:
    call = bench.call(command="python3 -I -q", background=True, pty=True)  # isolated: it keeps no history in the home
    handle = call.call
    await check_until(bench, handle, ">>>", (await bench.run(call)).text)
    reply = await bench.use("send_input", handle=handle, text="print(6 * 7)")
    assert "\x1b" not in await check_until(bench, handle, "\n42\n", reply.text)
    reply = await bench.use("send_input", handle=handle, text="import time; print('w' + 'ait'); time.sleep(1000)")
    await check_until(bench, handle, "\nwait\n", reply.text)
    reply = await bench.use("send_input", handle=handle, text="\x03", enter=False)
    await check_until(bench, handle, "KeyboardInterrupt", reply.text)
    reply = await bench.use("send_input", handle=handle, text="exit(5)")
    await check_until(bench, handle, "exit 5]", reply.text)


async def test_handles_that_are_none(bench: Bench) -> None:
    await bench("true")
    for name in ("check_command", "send_input", "stop_command"):
        with pytest.raises(ToolError, match=r"no background command with the handle '1\.0'"):
            await bench.use(name, handle="1.0")
    handle = await begin(bench, "sleep 1000")
    with pytest.raises(ToolError, match=f'"{handle}" running: sleep 1000'):
        await bench.use("stop_command", handle="nonsense")
    assert (await bench.use("check_command")).text == f'"{handle}" running: sleep 1000'


async def test_another_chats_processes_are_out_of_reach(bench: Bench) -> None:
    handle = await begin(bench, "sleep 1000")
    call = bench.call("stop_command", handle=handle)
    foreign = type(call)(**{name: getattr(call, name) for name in call.__struct_fields__} | {"chat": "c_2"})
    with pytest.raises(ToolError, match="no background command"):
        await bench.run(foreign)
    assert await bench.commands.list_running(CHAT) == [handle]


async def test_only_so_many_run_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "MAX_RUNNING", 2)
    first, second = [await begin(bench, "sleep 1000") for _ in range(2)]
    with pytest.raises(ToolError, match="2 background commands run already") as refused:
        await bench("sleep 1000", background=True)
    assert f'"{second}" running: sleep 1000' in str(refused.value)
    assert (await bench("echo fine")).success
    await bench.use("stop_command", handle=first)
    await begin(bench, "sleep 1000")


async def test_of_ended_ones_so_many_are_kept_for_so_long(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "KEPT", 2)
    handles = []
    for _ in range(4):
        handles.append(await begin(bench, "sleep 1000"))
        await bench.use("stop_command", handle=handles[-1])
    await bench("true")
    assert [command.call for command in await bench.commands.list_commands(CHAT) if command.background] == handles[2:]
    old = time.time() - 4000
    os.utime(Path(bench.commands._make_path(CHAT, handles[2])) / names.EXIT, (old, old))
    await bench("true")
    assert [command.call for command in await bench.commands.list_commands(CHAT) if command.background] == handles[3:]


async def test_much_news_is_shown_by_its_ends(bench: Bench) -> None:
    handle = await begin(bench, "until [ -e go ]; do sleep 0.01; done; seq 100000; echo done; sleep 1000")
    (bench.project / "go").touch()
    command = await bench.commands.find(CHAT, CallKey(handle))
    assert command is not None
    await until(lambda: command.read(-5, 5).data == b"done\n")
    outcome: Outcome = await bench.use("check_command", handle=handle)
    lines = outcome.text.split("\n")
    assert lines[:2] == ["1", "2"]
    assert "[99,901 lines truncated]" in lines
    assert lines[-2:] == ["done", "[running]"]


async def test_nothing_of_it_ends_with_an_interrupt_of_a_later_call(bench: Bench) -> None:
    handle = await begin(bench, "sleep 1000")
    later = bench.call(command="sleep 1000")
    task = asyncio.create_task(bench.run(later))
    await until(lambda: os.path.exists(bench.commands._make_path(CHAT, later.call) + "/owner"))
    task.cancel()
    await bench.tools["run_command"].stop(later)
    assert await bench.commands.list_running(CHAT) == [handle]


async def test_a_background_start_that_is_interrupted_is_stopped(bench: Bench) -> None:  # L-07
    call = bench.call(command="sleep 1000", background=True)
    await bench.run(call)
    await bench.tools["run_command"].stop(call)
    assert not await bench.commands.list_running(CHAT)


TOKEN = "ghp_0123456789abcdefghijABCDEFGHIJ012345"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [("caf\\303", "\\251 is open", "é is open"), (f"key: {TOKEN[:20]}", TOKEN[20:], "[redacted: GitHub token]")],
)
async def test_nothing_is_cut_between_two_looks(tmp_path: Path, first: str, second: str, expected: str) -> None:  # S-11
    redactor = Redactor({})
    bench = Bench(tmp_path, redact=redactor, finished_length=redactor.measure_finished)
    line = f"printf 'up\n{first}'; until [ -e go ]; do sleep 0.02; done; printf '{second}\nfin\n'; sleep 1000"
    call = bench.call(command=line, background=True)
    first_text = (await bench.run(call)).text
    assert "of unfinished output not shown yet]" in await check_until(bench, call.call, "not shown yet]", first_text)
    (bench.project / "go").touch()
    text = await check_until(bench, call.call, "fin\n", first_text)
    assert expected in text
    assert not any(piece in text for piece in (TOKEN[:20], TOKEN[20:], "\\xc3", "\\xa9"))
    await bench.commands.close()


async def test_a_secret_whose_first_letters_were_shown_is_redacted(tmp_path: Path) -> None:  # S-11
    redactor = Redactor({"SERVICE_TOKEN": "wxyz-secret-91"})
    bench = Bench(tmp_path, redact=redactor, finished_length=redactor.measure_finished)
    line = "printf 'up: wxy'; until [ -e go ]; do sleep 0.02; done; printf 'z-secret-91 fin\\n'; sleep 1000"
    call = bench.call(command=line, background=True)
    shown_text = await check_until(bench, call.call, "up: wxy", (await bench.run(call)).text)
    (bench.project / "go").touch()
    text = await check_until(bench, call.call, "fin", shown_text)
    assert "z-secret-91" not in text
    assert "[redacted: SERVICE_TOKEN] fin" in text
    await bench.commands.close()


async def test_what_stays_unfinished_is_shown_at_the_end(tmp_path: Path) -> None:  # S-11
    redactor = Redactor({})
    bench = Bench(tmp_path, redact=redactor, finished_length=redactor.measure_finished)
    handle = await begin(bench, "printf 'up\\nBASE_URL='; sleep 1000")
    await check_until(bench, handle, "not shown yet]")
    assert "BASE_URL=" in (await bench.use("stop_command", handle=handle)).text
    await bench.commands.close()
