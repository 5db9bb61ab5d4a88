"""A home that cannot be written (D-06, fault 13), really mounted so: what only looks works; what writes says that
it cannot, and changes nothing."""

import shutil
import subprocess
import sys

import pytest

from tests.scenario.command_line import TIMEOUT_S, CommandLine, Ended
from treadle.adapters.sandbox.choose import find_bubblewrap

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

    def __call__(self, *arguments: str) -> Ended:
        done = subprocess.run(
            [*self.bubblewrap, sys.executable, "-m", "treadle", *arguments],
            cwd=self.cli.project,
            env=self.cli.environment | {"TMPDIR": str(self.temporary)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def elsewhere(self, *arguments: str) -> Ended:
        return self.cli(*arguments, env={"TREADLE_HOME": str(self.twin)})


def mounted(cli: CommandLine, state: str) -> Mounted:
    """`rests`: everything is in the database · `killed`: a process left its log and its lock · `moved`: what it left
    was copied without what lies in memory."""
    cli("run", "Work.", "--model", cli.script(ASK), "--mode", "confirm", "--interactive")
    assert cli("run", "Write.", "--model", cli.script(WRITE)).code == 0
    if state != "rests":
        assert cli("run", "Again.", "--chat", "last", env={"TREADLE_FAULTS": "kill@store.after_commit"}).code == -9
        assert (cli.home / "treadle.db-wal").stat().st_size
    if state == "moved":
        (cli.home / "treadle.db-shm").unlink()
    return Mounted(cli)


@pytest.mark.parametrize("state", ["rests", "killed", "moved"])
def test_what_only_looks_works(cli: CommandLine, state: str) -> None:
    home = mounted(cli, state)
    for command in READING:
        found, wanted = home(*command), home.elsewhere(*command)
        assert (command, found.code, found.out, found.err) == (command, 0, wanted.out, wanted.err)
        assert found.out, "there is something to see"
        assert not list(home.temporary.glob("treadle-*")), "no copy is left behind"


def test_what_writes_says_that_it_cannot(cli: CommandLine) -> None:
    home = mounted(cli, "rests")
    before = (cli.project / "a").read_bytes()
    for command in (("run", "Write.", "--model", cli.script(WRITE)), *WRITING):
        found = home(*command)
        assert found.code == 1, (command, found)
        assert "read-only" in found.err, (command, found)
        assert "Traceback" not in found.err
        assert len(found.err.splitlines()) <= 2, (command, found)
    assert (cli.project / "a").read_bytes() == before
