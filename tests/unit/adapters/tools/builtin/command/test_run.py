"""run_command with real supervisors: output, endings, and that nothing is left behind (T-05, faults 11 and 12)."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.adapters.tools.builtin.command.commanding import CHAT, Bench, OutputRecorder, alive, until
from treadle.adapters.sandbox.supervisor import folder as names
from treadle.adapters.sandbox.supervisor.commands import SupervisedCommands
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin.base import Guarded, ToolContext
from treadle.adapters.tools.builtin.command.tool import RunCommand
from treadle.adapters.tools.validate import find_problem
from treadle.adapters.workspace.root import Root
from treadle.errors import SandboxError, ToolError
from treadle.ports.commands import Allowance
from treadle.ports.sandbox import AllHosts, Confinement, Hosts, Level, NoNetwork
from treadle.ports.toolset import Invocation
from treadle.protocol.options import ChatOptions


async def test_output_and_exit_code(bench: Bench) -> None:
    outcome = await bench("echo out; echo err >&2; printf x | tr x y")
    assert outcome.text == "out\nerr\ny\n[exit 0]"
    assert (outcome.success, outcome.summary, outcome.output) == (True, "exit 0, 3 lines", "")


@pytest.mark.parametrize(
    ("command", "summary"),
    [
        ("exit 3", "exit 3, 0 lines"),
        ("echo no; false", "exit 1, 1 line"),
        ("nonsense-command", "exit 127, 1 line"),
        ("kill -9 $$", "killed by signal 9, 0 lines"),
        ("if", "exit 2"),
        ("set -e; false; echo never", "exit 1, 0 lines"),
        ("set -u; echo $nothing", "exit 127, 1 line"),
        ("exec sh -c 'exit 4'", "exit 4, 0 lines"),
        ("trap 'echo mine' EXIT; exit 5", "exit 5, 1 line"),
    ],
)
async def test_failures_are_results(bench: Bench, command: str, summary: str) -> None:
    outcome = await bench(command)
    assert not outcome.success
    assert outcome.summary.startswith(summary)
    assert f"[{summary.split(',')[0]}]" in outcome.text


async def test_the_wrapping_of_a_command_does_not_show(bench: Bench) -> None:
    assert (await bench('echo "$#:$1:$0"; set -x; true')).text == "0::bash\n+ true\n[exit 0]"
    assert (await bench("true\nnonsense")).text == "bash: line 2: nonsense: command not found\n[exit 127]"
    assert (await bench("cat <<'X'\n$a 'b' \"c\"\nX\n# a comment")).text == "$a 'b' \"c\"\n[exit 0]"
    assert (await bench("f() { echo $1; }; f 'x y'; (exit 3); echo $?")).text == "x y\n3\n[exit 0]"


async def test_where_it_runs(bench: Bench) -> None:
    (bench.project / "sub").mkdir()
    assert (await bench("pwd")).text == f"{bench.project}\n[exit 0]"
    assert (await bench("pwd", cwd="sub", fresh=True)).text == f"{bench.project}/sub\n[exit 0]"
    outside = (await bench("pwd", cwd="../..")).text
    assert "outside the project root" in outside
    assert f"\n{bench.project}\n" in outside
    with pytest.raises(ToolError, match="does not exist"):
        await bench("pwd", cwd="none")


async def test_there_is_no_input(bench: Bench) -> None:
    assert (await bench("cat; read x; echo done")).text == "done\n[exit 0]"


async def test_a_timeout_ends_everything(bench: Bench) -> None:  # fault 12
    script = "sleep 1000 & echo pid=$!; (trap '' TERM; sleep 1000 & echo pid=$!; wait; sleep 1000) & wait"
    outcome = await bench(script, timeout_s=5)
    assert not outcome.success
    assert "timed out after 5 s" in outcome.text
    assert outcome.summary.startswith("timed out after 5 s")
    pids = [int(line[4:]) for line in outcome.text.split("\n") if line.startswith("pid=")]
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)


async def test_cancelling_leaves_and_stopping_ends(bench: Bench) -> None:  # L-07, D-02
    recorder = OutputRecorder()
    call = bench.call(command="sleep 1000 & echo pid=$!; echo ready; wait", emit=recorder)
    task = asyncio.create_task(bench.run(call))
    pid = int((await recorder.wait_for("ready")).split("pid=")[1].split("\n")[0])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert alive(pid)
    await bench.tools["run_command"].stop(call)
    assert not alive(pid)
    assert "the command was stopped" in (await bench.run(call)).text


async def test_a_stop_before_the_start_holds(bench: Bench) -> None:  # L-07, fault 4
    call = bench.call(command="touch ran")
    await bench.tools["run_command"].stop(call)
    assert "the command was stopped" in (await bench.run(call)).text
    assert not (bench.project / "ran").exists()


async def test_background_processes_end_with_the_command_and_it_is_said(bench: Bench) -> None:  # S-14
    outcome = await bench("setsid sleep 1000 > /dev/null 2>&1 & echo $!")
    assert outcome.success
    assert "in the background were stopped" in outcome.text
    assert not alive(int(outcome.text.split("\n")[0]))


async def test_closing_the_output_is_not_the_end(bench: Bench) -> None:  # fault 12
    outcome = await bench("exec >&- 2>&-; sleep 0.2; touch late")
    assert outcome.success
    assert (bench.project / "late").exists()


async def test_output_that_comes_late_through_a_process_substitution_is_kept(bench: Bench) -> None:
    outcome = await bench("echo hello > >(sleep 0.05; tee log)")
    assert outcome.text == "hello\n[exit 0]"
    assert (bench.project / "log").read_text() == "hello\n"


async def test_a_command_that_kills_its_supervisor(bench: Bench) -> None:  # fault 12
    outcome = await bench("echo out; kill -9 $PPID; sleep 1000")
    assert not outcome.success
    assert "supervisor was killed" in outcome.text
    assert outcome.summary.startswith("lost")


async def test_long_output_keeps_its_head_and_its_tail(bench: Bench) -> None:  # T-11
    outcome = await bench("seq 1 5000")
    lines = outcome.text.split("\n")
    assert lines[:15] == [str(i) for i in range(1, 16)]
    assert lines[15] == "[4,900 lines truncated]"
    assert lines[16:101] == [str(i) for i in range(4916, 5001)]
    assert lines[101:] == ['[the whole output: read_output handle="1.0"]', "[exit 0]"]
    assert outcome.summary == "exit 0, 5,000 lines"
    assert await bench.context.blobs.get_blob(outcome.output) == "".join(f"{i}\n" for i in range(1, 5001)).encode()


async def test_endless_output_ends_with_the_timeout(bench: Bench) -> None:  # fault 11
    outcome = await bench("yes", timeout_s=3)
    assert outcome.text.startswith("y\ny\n")
    assert "lines truncated]" in outcome.text
    assert "timed out" in outcome.text


async def test_binary_output_is_shown_and_kept_as_it_is(bench: Bench) -> None:  # fault 11
    outcome = await bench("printf 'a\\0b\\377c\\033[31mred\\033[0m\\033]633;A\\007x\\033]0;t\\033\\\\y\\n'")
    assert outcome.text == "a␀b\\xffcredxy\n[exit 0]"
    assert (await bench.context.blobs.get_blob(outcome.output)).startswith(b"a\0b\xffc\x1b[31m")
    noise = await bench("head -c 300000 /dev/urandom")
    assert len(noise.text.encode()) < 50_000
    assert len(await bench.context.blobs.get_blob(noise.output)) == 300_000


async def test_a_terminal_on_request(bench: Bench) -> None:
    outcome = await bench("[ -t 1 ] && echo $TERM", pty=True)
    assert outcome.text == "xterm\n[exit 0]"


async def test_live_output_arrives_before_the_end(bench: Bench) -> None:
    recorder = OutputRecorder()
    call = bench.call(command="echo first; until [ -e go ]; do sleep 0.01; done; echo last", emit=recorder)
    task = asyncio.create_task(bench.run(call))
    await recorder.wait_for("first")
    assert not task.done()
    (bench.project / "go").touch()
    assert (await task).success
    assert recorder.text == "first\nlast\n"


async def test_secrets_are_not_passed_on(tmp_path: Path) -> None:  # M-13
    secrets = {"OPENAI_API_KEY": "leak-1", "MY_TOKEN": "leak-2", "DATABASE_URL": "postgres://me:leak-3@host/db"}
    env = {"PATH": os.environ["PATH"], "RUST_LOG": "kept", "NOBODY_KNOWS": "lost", **secrets}
    bench = Bench(tmp_path, env, allowance=Allowance(tuple(secrets)))
    text = (await bench("env | sort; cat /proc/$PPID/environ | tr '\\0' '\\n'")).text
    assert "leak" not in text
    assert "RUST_LOG=kept" in text
    assert "NOBODY_KNOWS" not in text


async def test_what_cannot_be_started(bench: Bench) -> None:
    with pytest.raises(ToolError, match="NUL"):
        await bench.tools["run_command"].prepare(bench.call(command="a\0b"))
    with pytest.raises(ToolError, match="could not be started: Argument list too long"):
        await bench("x" * 3_000_000)
    nothing = RunCommand(ToolContext(Root, MemoryStore()))
    with pytest.raises(ToolError, match="runs no commands"):
        await nothing.prepare(bench.call(command="true"))


@pytest.mark.thorough(one_of=8)
async def test_many_at_once(bench: Bench) -> None:
    """All of them wait for the last to come: none waits for a place in a pool."""
    script = "touch $NAME; until [ $(ls here-* | wc -l) = 12 ]; do sleep 0.02; done"
    outcomes = await asyncio.gather(*(bench(script.replace("$NAME", f"here-{n}"), timeout_s=60) for n in range(12)))
    assert all(outcome.success for outcome in outcomes)


async def test_nothing_is_left_open(bench: Bench) -> None:
    await bench("true")
    fd_count = len(os.listdir("/dev/fd"))
    for command, timeout in (("true", 5), ("sleep 9", 0.05), ("exec >&-", 5)):
        await bench(command, timeout_s=timeout)
    assert len(os.listdir("/dev/fd")) == fd_count


def test_limits_of_the_timeout() -> None:
    schema: dict[str, Any] = RunCommand.spec.parameters
    assert find_problem(schema, {"command": "x", "timeout_s": 600}) == ""
    for wrong in (0, -1, 601):
        assert "timeout_s" in find_problem(schema, {"command": "x", "timeout_s": wrong})


# -- recovery (D-02) --------------------------------------------------------------------------------------------------


async def prepare_call(bench: Bench, command: str, **arguments: Any) -> Invocation:
    call = bench.call(command=command, **arguments)
    return msgspec.structs.replace(call, plan=await bench.tools["run_command"].prepare(call))


async def test_what_was_not_started_may_be(bench: Bench) -> None:
    call = await prepare_call(bench, "echo ran >> counter")
    assert await bench.tools["run_command"].settle(call) == "run_again"


async def test_what_runs_or_has_ended_is_collected_and_runs_once(bench: Bench) -> None:
    call = await prepare_call(bench, "echo ran >> counter; until [ -e go ]; do sleep 0.02; done; echo out; exit 3")
    task = asyncio.create_task(bench.run(call))
    await until(lambda: (bench.project / "counter").exists())
    task.cancel()
    other_bench = Bench(bench.home.parent)  # another worker
    assert await other_bench.tools["run_command"].settle(call) == "run_again"
    collecting = asyncio.create_task(other_bench.run(call))
    (bench.project / "go").touch()
    outcome = await collecting
    assert outcome.text == "out\n[exit 3]"
    assert await other_bench.tools["run_command"].settle(call) == "run_again"
    assert await other_bench.run(call) == outcome
    assert (bench.project / "counter").read_text() == "ran\n"


async def test_what_was_lost_is_unknown(bench: Bench) -> None:
    call = await prepare_call(bench, "kill -9 $PPID; sleep 1000")
    await bench.run(call)
    assert await bench.tools["run_command"].settle(call) == "unknown"


async def test_what_was_started_elsewhere_is_unknown_unless_its_end_is_safe_here(bench: Bench) -> None:
    elsewhere = msgspec.structs.replace(bench.call(command="echo out"), plan={"place": "moon:h_1"})
    assert await bench.tools["run_command"].settle(elsewhere) == "unknown"
    no_plan = msgspec.structs.replace(elsewhere, plan=None)
    assert await bench.tools["run_command"].settle(no_plan) == "unknown"
    await bench.run(elsewhere)
    folder = Path(bench.commands._make_path(CHAT, elsewhere.call))
    await until((folder / names.SYNCED).exists)
    assert await bench.tools["run_command"].settle(elsewhere) == "run_again"
    (folder / names.SYNCED).unlink()
    assert await bench.tools["run_command"].settle(elsewhere) == "unknown"


async def test_earlier_commands_are_forgotten_when_the_next_begins(bench: Bench) -> None:
    first = bench.call(command="seq 5000")
    await bench.run(first)
    folder = Path(bench.commands._make_path(CHAT, first.call))
    await until(lambda: not names.is_locked(str(folder)))
    await bench("true")
    assert os.listdir(folder) == [names.EXIT]


# -- confinement (S-03, S-15) -----------------------------------------------------------------------------------------


class Box:
    """A sandbox that confines nothing, and tells what it was asked for."""

    views = False
    lays = False

    def __init__(self, level: Level = "bubblewrap") -> None:
        self.level: Level = level
        self.asked: list[tuple[Confinement, str]] = []

    def wrap(self, argv: Sequence[str], confinement: Confinement, cwd: str) -> list[str]:
        self.asked.append((confinement, cwd))
        return ["/usr/bin/env", "CONFINED=yes", *argv]

    def tidy(self) -> None:
        pass


def make_boxed_bench(folder: Path, box: Box, **context: Any) -> Bench:
    guarded = Guarded((f"{folder}/project/.git/hooks",), (f"{folder}/home",))
    return Bench(folder, sandbox_of=lambda _level: box, guarded=lambda _root: guarded, **context)


async def test_commands_run_confined_and_the_level_is_recorded(tmp_path: Path) -> None:  # S-03
    box = Box()
    bench = make_boxed_bench(tmp_path, box)
    outcome = await bench.run(await prepare_call(bench, "echo $CONFINED"))
    assert outcome.text == "yes\n[exit 0]"
    assert outcome.sandbox == "bubblewrap, no network"
    ((confinement, cwd),) = box.asked
    root = str(bench.project)
    assert (confinement.root, cwd, confinement.network) == (root, root, NoNetwork())
    assert confinement.protected == (f"{root}/.git/hooks",)
    assert confinement.hidden_paths == (str(tmp_path / "home"),)
    bench.options = ChatOptions(network=True)
    assert (await bench.run(await prepare_call(bench, "true"))).sandbox == "bubblewrap, network"
    assert box.asked[-1][0].network == AllHosts()


@pytest.mark.parametrize(
    ("level", "reached", "is_refused"),
    [("bubblewrap", "network: pypi", False), ("landlock", "no network", True), ("sandbox-exec", "no network", True)],
)
async def test_named_hosts_need_bubblewrap(
    tmp_path: Path, level: Level, reached: str, is_refused: bool
) -> None:  # S-03
    box = Box(level)
    bench = make_boxed_bench(tmp_path, box)
    bench.options = ChatOptions(network=("pypi",))
    outcome = await bench.run(await prepare_call(bench, "echo [$PIP_PROXY]"))
    assert outcome.sandbox == f"{level}, {reached}"
    assert ("only in the sandbox bubblewrap" in outcome.text) is is_refused
    assert ("[]" in outcome.text) is is_refused
    assert isinstance(box.asked[0][0].network, NoNetwork if is_refused else Hosts)


async def test_what_cannot_be_confined_does_not_run(tmp_path: Path) -> None:  # S-03
    def none(level: str) -> Box:
        raise SandboxError(f"no {level}")

    bench = Bench(tmp_path, sandbox_of=none)
    with pytest.raises(SandboxError):
        await bench.tools["run_command"].prepare(bench.call(command="touch ran"))
    with pytest.raises(SandboxError):
        await bench("touch ran")
    assert not (bench.project / "ran").exists()


async def test_the_strict_profile_refuses_before_it_runs(tmp_path: Path) -> None:  # S-15
    def outside(command: str, root: str) -> tuple[str, ...]:
        assert root == str(tmp_path / "project")
        return tuple(word for word in command.split() if word.startswith(".."))

    for box, options, refused in (
        (Box("none"), ChatOptions(), True),
        (Box(), ChatOptions(), False),
        (Box(), ChatOptions(strict_paths=True), True),
    ):
        bench = make_boxed_bench(tmp_path, box, outside=outside)
        bench.options = options
        if refused:
            with pytest.raises(ToolError, match=r"Not run: \.\./x leads out"):
                await bench.tools["run_command"].prepare(bench.call(command="cat ../x"))
        else:
            assert await bench.tools["run_command"].prepare(bench.call(command="cat ../x"))
    assert (
        await make_boxed_bench(tmp_path, Box("none"), outside=outside)
        .tools["run_command"]
        .prepare(bench.call(command="ls"))
    )


# -- a gigabyte (fault 11) --------------------------------------------------------------------------------------------

FLOOD = """
import asyncio, resource, sys
from pathlib import Path
from tests.unit.adapters.tools.builtin.command.commanding import Bench
from treadle.adapters.stores.sqlite import SqliteStore
import msgspec

async def main():
    bench = Bench(Path(sys.argv[1]))
    store = SqliteStore(Path(sys.argv[1]) / "chats.db")
    bench.tools["run_command"]._context = msgspec.structs.replace(bench.context, blobs=store)
    await bench("seq 100000")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = await bench(sys.argv[2], timeout_s=500)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kept = sum(file.stat().st_size for file in Path(sys.argv[1]).rglob("*") if file.is_file())
    print(msgspec.json.encode([after - before, kept, outcome.text[-200:], outcome.summary]).decode())
    await bench.commands.close()
    await store.close()

asyncio.run(main())
"""


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize(
    ("command", "end", "summary"),
    [
        ("yes 0123456789abcdef | head -c 1000000000; echo; echo the end", "the end\n", "exit 0, 58,823,531 lines"),
        ("head -c 50000000 /dev/zero; echo the end", "the end\n", "exit 0, 1 line"),
    ],
    ids=["a gigabyte", "one line of 50 MB"],
)
@pytest.mark.timeout(300)
async def test_a_flood_costs_no_memory_and_little_disk(tmp_path: Path, command: str, end: str, summary: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FLOOD, str(tmp_path), command, stdout=asyncio.subprocess.PIPE
    )
    grown, disk_bytes, tail, summary_text = msgspec.json.decode((await process.communicate())[0])
    assert grown < 12_000, f"the worker grew by {grown} KB"
    assert disk_bytes < 140_000_000, "64 MB of output, and the same again as a blob"
    assert end in tail
    assert summary_text == summary


async def test_a_supervisor_stays_small(bench: Bench) -> None:  # fault 11
    recorder = OutputRecorder()
    call = bench.call(command="head -c 200000000 /dev/zero; echo; echo full; sleep 1000", emit=recorder)
    task = asyncio.create_task(bench.run(call))
    await recorder.wait_for("full")
    owner = Path(SupervisedCommands(bench.home / "commands")._make_path(CHAT, call.call)) / names.OWNER
    assert _peak(owner) < 40_000, "KB"
    task.cancel()


def _peak(owner: Path) -> int:
    status = Path(f"/proc/{owner.read_text().split()[0]}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


async def test_live_output_that_begins_with_half_a_character_is_shown_once(bench: Bench) -> None:
    recorder = OutputRecorder()
    command = r"printf '\251abc'; while [ ! -e go ]; do sleep 0.01; done; echo END"
    running = asyncio.create_task(bench.run(bench.call(command=command, emit=recorder)))
    await recorder.wait_for("abc")
    (bench.project / "go").touch()
    await running
    assert recorder.text.count("c") == 1
    assert recorder.text.endswith("END\n")
