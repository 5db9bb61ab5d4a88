"""A database that is older than its home: a backup was put back. The chat goes on from what the database has; commands
that were run in the future that was lost are neither taken for its own nor run again for it, and what is on disk is
said (D-02, D-06, fault 14)."""

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import pytest

from tests.scenario.command_line import CommandLine, CommandResult

pytestmark = [pytest.mark.thorough(one_of=8), pytest.mark.timeout(300)]
SCRIPT = """
[[turn]]
text = "Hello."
[[turn]]
call = [{ name = "run_command", args = { command = "echo x >> count; echo one" } }]
[[turn]]
call = [{ name = "run_command", args = { command = "echo y >> count; echo two" } }]
[[turn]]
text = "Done."
"""
TABLES = ("chats", "events", "snapshots", "blobs", "blob_parts")


class Backups:
    """Backups of the database that the command line uses."""

    def __init__(self, cli: CommandLine, address: str) -> None:
        self._file = cli.home / "treadle.db"
        self._address = address

    def make(self) -> None:
        if self._address:
            return asyncio.run(self._execute(*(f"CREATE TABLE old_{t} AS SELECT * FROM {t}" for t in TABLES)))
        with closing(sqlite3.connect(self._file)) as source, closing(sqlite3.connect(self._copy)) as copy:
            source.backup(copy)

    def put_back(self) -> None:
        if self._address:
            again = [f"DELETE FROM {t}" for t in TABLES]
            again += [f"INSERT INTO {t} OVERRIDING SYSTEM VALUE SELECT * FROM old_{t}" for t in TABLES]
            return asyncio.run(self._execute(*again))
        for file in self._file.parent.glob(f"{self._file.name}-*"):
            file.unlink()
        shutil.copy(self._copy, self._file)

    def cut_log(self, chat: str, head: int) -> None:
        """As if the backup had been made when the log ended with `head`, in the middle of a run."""
        if self._address:
            return asyncio.run(
                self._execute(
                    f"DELETE FROM events WHERE seq > {head}",
                    "DELETE FROM snapshots",
                    f"UPDATE chats SET head = {head}, runnable = true, status = 'running'",
                )
            )
        with closing(sqlite3.connect(self._file)) as connection, connection:
            connection.execute("DELETE FROM events WHERE place > (1 << 32) + ?", (head,))
            connection.execute("DELETE FROM snapshots")
            connection.execute("UPDATE chats SET head = ?, runnable = 1, status = 'running'", (head,))

    @property
    def _copy(self) -> Path:
        return self._file.with_name("backup")

    async def _execute(self, *statements: str) -> None:
        connection = await asyncpg.connect(self._address)
        for statement in statements:
            await connection.execute(statement)
        await connection.close()


@pytest.fixture(params=["sqlite", "postgres"])
def backups(request: pytest.FixtureRequest, cli: CommandLine) -> Backups:
    address = request.getfixturevalue("postgres") if request.param == "postgres" else ""
    if address:
        cli.environment["TREADLE_STORE"] = address
    return Backups(cli, address)


@pytest.fixture(params=["view", "through"])
def way(request: pytest.FixtureRequest, cli: CommandLine) -> str:
    """How commands reach the project: on a view, where one can be made, or directly."""
    cli.environment["TREADLE_COMMAND_VIEW"] = "true" if request.param == "view" else "false"
    return str(request.param)


def begin(cli: CommandLine, backups: Backups) -> str:
    """A chat whose second run is lost."""
    chat = str(cli("run", "Hi.", "--model", cli.script(SCRIPT), "--json").events[0]["chat"])
    backups.make()
    assert go(cli, chat).code == 0
    assert (cli.project / "count").read_text() == "x\ny\n"
    backups.put_back()
    return chat


def go(cli: CommandLine, chat: str) -> CommandResult:
    return cli("run", "Go.", "--chat", chat, "--auto-approve-commands", "--json")


@pytest.mark.thorough(one_of=8)
def test_a_chat_goes_on_from_what_the_database_has(cli: CommandLine, backups: Backups, way: str) -> None:
    chat = begin(cli, backups)
    ran = go(cli, chat)
    assert ran.code == 0, ran.err
    completions = ran.of("tool.execution_complete")
    assert [one["success"] for one in completions] == [True, True], completions
    assert "one" in completions[0]["result"]
    assert "two" in completions[1]["result"]
    assert "in a log that was lost" in completions[0]["result"]
    assert [notice["kind"] for notice in ran.of("model.notice")] == ["log_put_back"] * 2
    assert (cli.project / "count").read_text() == "x\ny\n" * 2
    assert [file["path"] for files in ran.of("workspace.files_changed") for file in files["files"]] == ["count"] * 2


@pytest.mark.thorough(one_of=8)
def test_it_is_put_back_again_and_undone(cli: CommandLine) -> None:
    backups = Backups(cli, "")
    chat = begin(cli, backups)
    assert go(cli, chat).code == 0
    backups.put_back()
    assert go(cli, chat).code == 0
    assert (cli.project / "count").read_text() == "x\ny\n" * 3
    assert cli("undo", chat, "--yes").code == 0
    assert (cli.project / "count").read_text() == "x\ny\n" * 2  # lost effects stay
    assert cli("replay", chat).code == 0


@pytest.mark.thorough(one_of=8)
def test_fsck_tells_what_the_home_knows_and_sets_it_aside(cli: CommandLine, backups: Backups) -> None:
    begin(cli, backups)
    fsck_result = cli("fsck")
    assert fsck_result.code == 1
    assert "older than the home" in fsck_result.out
    assert "2.0" in fsck_result.out
    assert cli("fsck", "--repair").code == 0
    assert cli("fsck").code == 0


@pytest.mark.thorough(one_of=8)
def test_a_command_that_ended_after_the_backup_is_not_run_again(cli: CommandLine, backups: Backups, way: str) -> None:
    """The backup has the intent; its outcome was recorded in the future that was lost."""
    count, model = cli.project / "count", cli.script(SCRIPT)
    ran = cli("run", "Hi.", "--model", model, "--json")
    chat = ran.events[0]["chat"]
    lost_run = cli("run", "Go.", "--chat", chat, "--auto-approve-commands", "--json")
    start_seq = next(event["seq"] for event in lost_run.events if event["type"] == "tool.execution_start")
    assert count.read_text() == "x\ny\n"
    backups.cut_log(chat, start_seq)
    resumed = cli("resume", chat, "--json")
    assert resumed.code == 0, resumed.err
    first = resumed.of("tool.execution_complete")[0]
    assert (first["success"], "was not run again" in first["error"]) == (False, True), first
    assert "in a log that was lost" in resumed.of("tool.execution_complete")[1]["result"]
    assert count.read_text() == "x\ny\ny\n"
