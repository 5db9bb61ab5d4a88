"""run_command with real processes: output, endings, and that nothing is left behind (T-05, T-11, faults 11 and 12)."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from treadle import faultpoint
from treadle.errors import ToolError
from treadle.tools.builtin.capture import Capture, clean
from treadle.tools.builtin.command import RunCommand
from treadle.tools.builtin.environment import without_secrets
from treadle.tools.validate import problem
from treadle.workspace.root import Root

COMMAND = RunCommand(Root)

pytestmark = pytest.mark.timeout(30)


def alive(pid: int) -> bool:
    """A zombie is dead, only not yet buried."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    if sys.platform == "linux":
        return False
    return subprocess.run(["ps", "-p", str(pid)], capture_output=True, check=False).returncode == 0


async def gone(pid: int) -> bool:
    for _ in range(200):
        if not alive(pid):
            return True
        await asyncio.sleep(0.01)
    return False


class Seen:
    """Live output, and a way to wait for a piece of it."""

    def __init__(self) -> None:
        self.text = ""
        self._news = asyncio.Event()

    def __call__(self, text: str) -> None:
        self.text += text
        self._news.set()

    async def wait_for(self, piece: str) -> str:
        while piece not in self.text:
            self._news.clear()
            await self._news.wait()
        return self.text


async def test_output_and_exit_code(call) -> None:
    outcome = await COMMAND.run(call(command="echo out; echo err >&2; printf x | tr x y"))
    assert outcome.text == "out\nerr\ny\n[exit 0]"
    assert (outcome.success, outcome.summary) == (True, "exit 0, 3 lines")


@pytest.mark.parametrize(
    ("command", "summary"),
    [
        ("exit 3", "exit 3, 0 lines"),
        ("echo no; false", "exit 1, 1 line"),
        ("nonsense-command", "exit 127, 1 line"),
        ("kill -9 $$", "killed by signal 9, 0 lines"),
        ("if", "exit 2"),
    ],
)
async def test_failures_are_results(call, command: str, summary: str) -> None:
    outcome = await COMMAND.run(call(command=command))
    assert not outcome.success
    assert outcome.summary.startswith(summary)
    assert f"[{summary.split(',')[0]}]" in outcome.text


async def test_where_it_runs(call, project: Path) -> None:
    (project / "sub").mkdir()
    assert (await COMMAND.run(call(command="pwd"))).text == f"{project}\n[exit 0]"
    assert (await COMMAND.run(call(command="pwd", cwd="sub"))).text == f"{project}/sub\n[exit 0]"
    outside = (await COMMAND.run(call(command="pwd", cwd="../.."))).text
    assert "outside the project root" in outside
    assert f"\n{project}\n" in outside
    with pytest.raises(ToolError, match="does not exist"):
        await COMMAND.run(call(command="pwd", cwd="none"))


async def test_there_is_no_input(call) -> None:
    assert (await COMMAND.run(call(command="cat; read x; echo done"))).text == "done\n[exit 0]"


async def test_a_timeout_kills_everything(call) -> None:
    seen = Seen()
    script = "sleep 1000 & echo pid=$!; (trap '' TERM; sleep 1000 & echo pid=$!; wait; sleep 1000) & wait"
    started = time.monotonic()
    outcome = await COMMAND.run(call(command=script, timeout_s=0.5, _emit=seen))
    assert time.monotonic() - started < 10
    assert not outcome.success
    assert "timed out after 0.5 s" in outcome.text
    assert outcome.summary.startswith("timed out after 0.5 s")
    pids = [int(line[4:]) for line in outcome.text.split("\n") if line.startswith("pid=")]
    assert len(pids) == 2
    for pid in pids:
        assert await gone(pid)


async def test_cancelling_kills_everything_before_it_returns(call) -> None:  # L-07
    seen = Seen()
    task = asyncio.create_task(
        COMMAND.run(
            call(command="sleep 1000 & echo pid=$!; trap 'echo term' TERM; echo ready; wait; sleep 1000", _emit=seen)
        )
    )
    text = await seen.wait_for("ready")
    pid = int(text.split("pid=")[1].split("\n")[0])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(pid)


async def test_cancelling_twice_still_waits(call) -> None:
    seen = Seen()
    task = asyncio.create_task(
        COMMAND.run(call(command="trap '' TERM; echo $$ ready; while :; do sleep 0.1; done", _emit=seen))
    )
    pid = int((await seen.wait_for("ready")).split()[0])
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(pid)


async def test_background_processes_end_with_the_command_and_it_is_said(call) -> None:  # S-14
    outcome = await COMMAND.run(call(command="sleep 1000 > /dev/null 2>&1 & echo $!"))
    assert outcome.success
    assert "in the background were stopped" in outcome.text
    assert await gone(int(outcome.text.split("\n")[0]))


async def test_a_process_that_leaves_the_group_with_the_output_open_is_not_waited_for(call) -> None:  # fault 12
    script = (
        "import os, time; os.setsid(); open(str(os.getpid()), 'w'); os.rename(str(os.getpid()), 'left'); time.sleep(99)"
    )
    wait = "until [ -e left ]; do sleep 0.01; done"
    started = time.monotonic()
    outcome = await COMMAND.run(call(command=f'{sys.executable} -c "{script}" & echo $!; {wait}'))
    pid = int(outcome.text.split("\n")[0])
    try:
        assert alive(pid)
        assert outcome.success
        assert time.monotonic() - started < 10
    finally:
        os.kill(pid, signal.SIGKILL)


async def test_closing_the_output_is_not_the_end(call, project: Path) -> None:  # fault 12
    outcome = await COMMAND.run(call(command="exec >&- 2>&-; sleep 0.2; touch late"))
    assert outcome.success
    assert (project / "late").exists()


async def test_output_that_comes_late_through_a_process_substitution_is_kept(call, project: Path) -> None:
    outcome = await COMMAND.run(call(command="echo hello > >(sleep 0.05; tee log)"))
    assert outcome.text == "hello\n[exit 0]"
    assert (project / "log").read_text() == "hello\n"


async def test_long_output_keeps_its_head_and_its_tail(call) -> None:  # T-11
    outcome = await COMMAND.run(call(command="seq 1 5000"))
    lines = outcome.text.split("\n")
    assert lines[:15] == [str(i) for i in range(1, 16)]
    assert lines[15] == "[4,900 lines truncated]"
    assert lines[16:] == [*(str(i) for i in range(4916, 5001)), "[exit 0]"]
    assert outcome.summary == "exit 0, 5,000 lines"


async def test_a_flood_costs_bounded_memory_and_keeps_its_tail(call) -> None:  # fault 11
    import tracemalloc

    seen = Seen()
    tracemalloc.start()
    try:
        outcome = await COMMAND.run(
            call(command="head -c 50000000 /dev/zero | tr '\\0' 'y'; echo; echo the end", _emit=seen)
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000
    assert outcome.text.endswith("the end\n[exit 0]")
    assert len(outcome.text.encode()) < 50_000
    assert "bytes truncated" in outcome.text
    assert outcome.summary == "exit 0, 2 lines"


async def test_endless_output_ends_with_the_timeout(call) -> None:  # fault 11
    outcome = await COMMAND.run(call(command="yes", timeout_s=0.3))
    assert outcome.text.startswith("y\ny\n")
    assert "lines truncated]" in outcome.text
    assert "timed out" in outcome.text


async def test_binary_output_is_shown_and_can_be_stored(call) -> None:  # fault 11
    outcome = await COMMAND.run(
        call(command="printf 'a\\0b\\377c\\033[31mred\\033[0m\\033]633;A\\007x\\033]0;t\\033\\\\y\\n'")
    )
    assert outcome.text == "a␀b\ufffdcredxy\n[exit 0]"
    noise = await COMMAND.run(call(command="head -c 300000 /dev/urandom"))
    noise.text.encode()
    assert len(noise.text.encode()) < 50_000


async def test_live_output_arrives_before_the_end(call, project: Path) -> None:
    seen = Seen()
    task = asyncio.create_task(
        COMMAND.run(call(command="echo first; until [ -e go ]; do sleep 0.01; done", _emit=seen))
    )
    await seen.wait_for("first")
    assert not task.done()
    (project / "go").touch()
    assert (await task).success


async def test_secrets_are_not_passed_on(call, monkeypatch: pytest.MonkeyPatch) -> None:  # M-13
    monkeypatch.setenv("OPENAI_API_KEY", "leak-1")
    monkeypatch.setenv("MY_TOKEN", "leak-2")
    monkeypatch.setenv("DATABASE_URL", "postgres://me:leak-3@host/db")
    monkeypatch.setenv("HARMLESS", "kept")
    text = (await COMMAND.run(call(command="env | sort"))).text
    assert "leak" not in text
    assert "HARMLESS=kept" in text
    assert "PATH=" in text


@pytest.mark.parametrize(
    "name", ["aws_secret_access_key", "GITHUB_TOKEN", "DB_PASSWORD", "PGPASSFILE", "NPM_AUTH", "X_PAT"]
)
def test_names_of_secrets(name: str) -> None:
    assert name not in without_secrets({name: "x"})


@pytest.mark.parametrize("name", ["PATH", "HOME", "LANG", "PWD", "OLDPWD", "SSH_AUTH_SOCK", "VIRTUAL_ENV", "XPATH"])
def test_names_that_are_kept(name: str) -> None:
    assert without_secrets({name: "x"})[name] == "x"


async def test_a_failure_after_the_start_leaves_no_process(call, project: Path) -> None:
    def fail(name: str) -> None:
        if name == "tool.command_started":
            while not (project / "pid").exists():
                time.sleep(0.005)
            raise RuntimeError("struck")

    faultpoint.install(fail)
    try:
        with pytest.raises(RuntimeError, match="struck"):
            await COMMAND.run(call(command="echo $$ > tmp; mv tmp pid; sleep 1000"))
    finally:
        faultpoint.install(None)
    assert await gone(int((project / "pid").read_text()))


async def test_what_cannot_be_started(call) -> None:
    with pytest.raises(ToolError, match="NUL"):
        await COMMAND.run(call(command="a\0b"))
    with pytest.raises(ToolError, match="could not be started"):
        await COMMAND.run(call(command="x" * 3_000_000))


async def test_many_at_once_need_no_pool(call) -> None:
    started = time.monotonic()
    outcomes = await asyncio.gather(*(COMMAND.run(call(command="sleep 0.5")) for _ in range(20)))
    assert all(outcome.success for outcome in outcomes)
    assert time.monotonic() - started < 5  # one after the other it would be 10


async def test_nothing_is_left_open(call) -> None:
    await COMMAND.run(call(command="true"))
    before = len(os.listdir("/dev/fd"))
    for command, timeout in (("true", 5), ("sleep 9", 0.05), ("exec >&-", 5)):
        await COMMAND.run(call(command=command, timeout_s=timeout))
    assert len(os.listdir("/dev/fd")) == before


async def test_a_command_is_never_run_again_by_itself(call) -> None:  # D-02
    assert await COMMAND.prepare(call(command="x")) is None
    assert await COMMAND.settle(call(command="x")) == "unknown"


def test_limits_of_the_timeout() -> None:
    schema: dict[str, Any] = COMMAND.spec.parameters
    assert problem(schema, {"command": "x", "timeout_s": 600}) == ""
    for wrong in (0, -1, 601):
        assert "timeout_s" in problem(schema, {"command": "x", "timeout_s": wrong})


@pytest.mark.parametrize("size", [1, 7, 1000, 65536])
def test_capture_does_not_depend_on_how_output_is_cut(size: int) -> None:
    data = "".join(f"line {i} ü\n" for i in range(20_000)).encode()
    whole, cut = Capture(), Capture()
    whole.feed(data)
    for at in range(0, len(data) if size > 7 else 5_000, size):
        cut.feed(data[at : at + size])
    if size <= 7:
        whole = Capture()
        whole.feed(data[: at + size])
    assert cut.render() == whole.render()
    assert cut.lines == whole.lines


@pytest.mark.parametrize("text", ["", "a", "a\n", "a\nb", "\n\n", "a\n\n"])
def test_short_output_is_whole(text: str) -> None:
    capture = Capture()
    capture.feed(text.encode())
    assert capture.render() == text.removesuffix("\n")
    assert capture.lines == len(text.splitlines())


def test_cleaning_is_linear() -> None:
    started = time.monotonic()
    for piece in ("\x1b]", "\x1bP", "\x1b[", "\x1b", "\x1b[0"):
        clean((piece * 100_000).encode())
    assert time.monotonic() - started < 5
