"""A home that cannot be written (D-06, fault 13), really mounted so: commands that only look work; those that write
say that they cannot, and change nothing."""

import shutil
import subprocess
import sys

import pytest

from tests.scenario.command_line import TIMEOUT_S, CommandLine, CommandResult
from treadle.adapters.sandbox.choose import find_bubblewrap

pytestmark = pytest.mark.thorough(one_of=8)

READING = (
    ("chats", "--all", "--json"),
    ("chats", "--search", "done", "--json"),
    ("show", "last"),
    ("export", "last"),
    ("diff", "last"),
    ("pending",),
)
WRITING = (
    ("undo", "last", "--yes"),
    ("keep", "last"),
    ("resume", "last"),
    ("fork", "last"),
    ("gc",),
    ("worker",),
    ("serve", "--port", "0"),
)
ASK = '[[turn]]\ncall = [{ name = "run_command", args = { command = "touch b" } }]\n'
WRITE = '[[turn]]\ncall = [{ name = "write_file", args = { path = "a", content = "new" } }]\n[[turn]]\ntext = "Done."\n'


class Mounted:
    """The command line with its home mounted read-only, and the same home elsewhere, which can be written."""

    def __init__(self, cli: CommandLine) -> None:
        self.cli = cli
        self.twin = cli.folder / "twin"
        shutil.copytree(cli.home, self.twin)
        self.temporary = cli.folder / "temporary"
        self.temporary.mkdir()
        self.bubblewrap = [find_bubblewrap(), "--bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        self.bubblewrap += ["--ro-bind", str(cli.home), str(cli.home)]
        if not self.bubblewrap[0] or subprocess.run([*self.bubblewrap, "true"], capture_output=True).returncode:
            pytest.skip("no file system can be mounted read-only here")

    def __call__(self, *arguments: str) -> CommandResult:
        process = subprocess.run(
            [*self.bubblewrap, sys.executable, "-m", "treadle", *arguments],
            cwd=self.cli.project,
            env=self.cli.environment | {"TMPDIR": str(self.temporary)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        return CommandResult(process.returncode, process.stdout, process.stderr)

    def elsewhere(self, *arguments: str) -> CommandResult:
        return self.cli(*arguments, env={"TREADLE_HOME": str(self.twin)})


def mount_home(cli: CommandLine, state: str) -> Mounted:
    """`rests`: everything is in the database · `killed`: a process left its log and its lock · `moved`: its files
    were copied without those in shared memory."""
    cli("run", "Work.", "--model", cli.script(ASK), "--mode", "confirm", "--interactive")
    assert cli("run", "Write.", "--model", cli.script(WRITE)).code == 0
    if state != "rests":
        assert cli("run", "Again.", "--chat", "last", env={"TREADLE_FAULTS": "kill@store.after_commit"}).code == -9
        assert (cli.home / "treadle.db-wal").stat().st_size
    if state == "moved":
        (cli.home / "treadle.db-shm").unlink()
    return Mounted(cli)


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("state", ["rests", "killed", "moved"])
def test_what_only_looks_works(cli: CommandLine, state: str) -> None:
    home = mount_home(cli, state)
    for command in READING:
        result, expected = home(*command), home.elsewhere(*command)
        assert (command, result.code, result.out, result.err) == (command, 0, expected.out, expected.err)
        assert result.out, "there is something to see"
        assert not list(home.temporary.glob("treadle-*")), "no copy is left behind"


@pytest.mark.thorough(one_of=8)
def test_what_writes_says_that_it_cannot(cli: CommandLine) -> None:
    home = mount_home(cli, "rests")
    old_bytes = (cli.project / "a").read_bytes()
    for command in (("run", "Write.", "--model", cli.script(WRITE)), *WRITING):
        result = home(*command)
        assert result.code == 1, (command, result)
        assert "read-only" in result.err, (command, result)
        assert "Traceback" not in result.err
        assert len(result.err.splitlines()) <= 2, (command, result)
    assert (cli.project / "a").read_bytes() == old_bytes
