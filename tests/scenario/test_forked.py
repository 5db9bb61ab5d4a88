"""A process that the zygote of the tests forks behaves like a newly started interpreter, only sooner."""

import json
import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from tests.forked import SOURCES, Forked, fork_command, run
from tests.scenario.command_line import CommandLine

COMMANDS = (
    ("--version",),
    ("--help",),
    ("config", "--json"),
    ("models", "list", "--json"),
    ("fsck",),
    ("show", "none"),
    ("no", "such", "command"),
    ("run",),
)
ENDS = {"code": 300 & 255, "words": 1, "nothing": 0, "error": 1, "signal": -signal.SIGTERM, "interrupt": None}
"""How it ends; an interrupt is ignored where the parent of the tests ignores it."""
PROBE = """
    import atexit, gc, json, os, resource, signal, sys, tempfile, threading, time

    def stream(each):
        raw = each.buffer.raw
        kept = (each.name, each.mode, each.encoding, each.errors, each.line_buffering, each.write_through)
        return [*kept, each.isatty(), each.buffer.mode, raw.name, raw.closefd, type(each.buffer).__name__]

    KEPT = ("SigBlk", "SigIgn", "SigCgt")

    def signals():
        status = dict(line.split(":") for line in open("/proc/self/status") if line[:6] in KEPT)
        handlers = [str(signal.getsignal(each)).split(" at ")[0] for each in sorted(signal.valid_signals())]
        return [{name: value.strip() for name, value in status.items()}, handlers]

    facts = {
        "arguments": sys.argv,
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "paths": sys.path,
        "files": sorted(os.listdir("/proc/self/fd")),
        "streams": [stream(each) for each in (sys.stdin, sys.stdout, sys.stderr)],
        "same": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
        "signals": signals(),
        "parent": os.getppid(),
        "group": os.getpgid(0) == os.getpid() or os.getpgid(0),
        "session": os.getsid(0) == os.getpid() or os.getsid(0),
        "mask": os.umask(0),
        "limits": [resource.getrlimit(each) for each in range(10)],
        "nice": os.nice(0),
        "threads": [each.name for each in threading.enumerate()],
        "identity": threading.get_native_id() == threading.main_thread().native_id == os.getpid(),
        "temporary": tempfile.gettempdir(),
        "zone": time.tzname,
        "flags": list(sys.flags),
        "collector": [gc.isenabled(), gc.get_threshold()],
        "main": [__name__, sys.modules["__main__"].__dict__ is globals(), __spec__.name],
        "said": sys.stdin.read() if not sys.stdin.isatty() else "",
    }
    print(json.dumps(facts))
    atexit.register(print, "left")
    how = sys.argv[1]
    if how == "signal":
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGTERM)
    if how == "interrupt":
        signal.raise_signal(signal.SIGINT)
    if how == "error":
        raise RuntimeError("odd")
    threading.Timer(0.01, print, ["a thread's last word"]).start()
    sys.exit({"code": 300, "words": "over", "nothing": None}[how])
"""


@pytest.fixture
def probe(cli: CommandLine) -> CommandLine:
    """A program that tells all it can about its process."""
    (cli.folder / "programs").mkdir()
    (cli.folder / "programs" / "probe.py").write_text(textwrap.dedent(PROBE))
    cli.environment |= {"PYTHONPATH": f"{SOURCES}{os.pathsep}{cli.folder / 'programs'}", "TZ": "Asia/Tokyo"}
    return cli


@pytest.mark.thorough(one_of=8)
def test_commands_say_the_same(cli: CommandLine) -> None:
    for words in COMMANDS:
        assert cli(*words, input="odd") == cli(*words, input="odd", fresh=True), words


@pytest.mark.parametrize("ending", ENDS)
def test_a_process_is_as_one_that_was_started(probe: CommandLine, ending: str) -> None:
    def look(fresh: bool) -> tuple[int, str, list[str]]:
        words = [sys.executable, "-m", "probe", ending, "ü\udcff"]
        process = run(words, cwd=probe.project, env=probe.environment, input="hello\r\n", timeout=60, fresh=fresh)
        frames = [line for line in process.stderr.splitlines() if "zygote.py" not in line and "_as_main" not in line]
        return process.returncode, process.stdout, frames[-1:] if ending in ("error", "interrupt") else frames

    forked, fresh = look(False), look(True)
    assert forked == fresh
    assert ENDS[ending] in (None, forked[0])
    assert json.loads(forked[1].splitlines()[0])["parent"] == os.getpid()


def test_the_folder_is_not_imported_from_where_that_is_not_wanted(probe: CommandLine) -> None:
    def paths(fresh: bool, **more: str) -> list[str]:
        words = [sys.executable, "-m", "probe", "nothing"]
        process = run(words, cwd=probe.project, env=probe.environment | more, timeout=60, fresh=fresh)
        return list(json.loads(process.stdout.splitlines()[0])["paths"])

    assert str(probe.project) in paths(fresh=False)
    assert str(probe.project) not in paths(fresh=False, PYTHONSAFEPATH="1")
    assert paths(fresh=False, PYTHONSAFEPATH="1") == paths(fresh=True, PYTHONSAFEPATH="1")


def test_on_a_terminal_and_in_a_group_of_its_own(probe: CommandLine) -> None:
    def look(**more: Any) -> dict[str, Any]:
        leader, follower = pty.openpty()
        words = [sys.executable, "-m", "probe", "nothing"]
        ends = dict.fromkeys(("stdin", "stdout", "stderr"), follower)
        process = Forked(words, cwd=probe.project, env=probe.environment, **ends, **more)
        os.close(follower)
        with os.fdopen(leader, "rb") as terminal:
            line = terminal.readline()
            assert process.wait(60) == 0
        return dict(json.loads(line))

    for more in ({"terminal": True}, {"process_group": 0}, {"start_new_session": True}):
        assert look(**more) == look(**more, fresh=True)


def test_what_is_about_the_start_is_started(probe: CommandLine) -> None:
    def flags(**more: str) -> list[int]:
        words = [sys.executable, "-m", "probe", "nothing"]
        process = run(words, cwd=probe.project, env=probe.environment | more, timeout=60)
        return list(json.loads(process.stdout.splitlines()[0])["flags"])

    assert flags(PYTHONOPTIMIZE="1") != flags()
    with pytest.raises(FileNotFoundError):
        Forked([sys.executable, "-m", "probe"], cwd=probe.folder / "nowhere", env=probe.environment)


ECHO = 'import os, sys; print(sys.argv[1], os.environ["WORD"], os.getcwd(), sys.stdin.read()); sys.exit(7)'
WAIT = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


def test_a_program_that_starts_others_gets_a_fork_with_its_words_streams_and_exit_code(cli: CommandLine) -> None:
    (cli.folder / "echo.py").write_text(ECHO)
    environment = {**cli.environment, "WORD": "set", "PYTHONPATH": f"{SOURCES}{os.pathsep}{cli.folder}"}
    with fork_command("echo") as command:
        arguments = ["/bin/sh", "-c", f"{command} 'a b'"]
        result = subprocess.run(arguments, input="in", capture_output=True, text=True, cwd=cli.project, env=environment)
    assert (result.returncode, result.stdout) == (7, f"a b set {cli.project} in\n"), result.stderr


def test_a_fork_ends_with_the_program_that_asked_for_it(cli: CommandLine) -> None:
    (cli.folder / "wait.py").write_text(WAIT)
    environment = {**cli.environment, "PYTHONPATH": f"{SOURCES}{os.pathsep}{cli.folder}"}
    with fork_command("wait") as command:
        client = subprocess.Popen(shlex.split(command), stdout=subprocess.PIPE, text=True, env=environment)
        assert client.stdout is not None
        fork = os.pidfd_open(int(client.stdout.readline()))
        client.kill()
        client.communicate()
        assert select.select([fork], [], [], 60)[0]
        os.close(fork)
