"""The command line on a PostgreSQL: the setting `store` is all that changes (D-05)."""

import asyncio
import os
import time

import asyncpg  # type: ignore[import-untyped]
import pytest

from tests.scenario.command_line import CommandLine
from treadle.adapters.tools.builtin.command.shell import drop_secrets

pytestmark = pytest.mark.thorough(one_of=8)

SCRIPT = """
[[turn]]
call = [{ name = "run_command", args = { command = "echo store=$TREADLE_STORE" } }]
[[turn]]
text = "Hello."
"""


EDIT = """
[[turn]]
call = [{ name = "edit_file", args = { path = "a", old_str = "old", new_str = "new" } }]
[[turn]]
text = "Done."
"""


@pytest.fixture
def on_postgres(cli: CommandLine, postgres: str) -> CommandLine:
    cli.environment["TREADLE_STORE"] = postgres
    return cli


@pytest.mark.thorough(one_of=8)
def test_a_chat_in_postgresql(on_postgres: CommandLine, postgres: str) -> None:
    ran = on_postgres("run", "Hi.", "--model", on_postgres.script(SCRIPT), "--auto-approve-commands", "--json")
    assert ran.code == 0, ran.err
    assert [completion["result"] for completion in ran.of("tool.execution_complete")] == ["store=\n[exit 0]"]
    chat = ran.events[0]["chat"]
    assert [line["chat"] for line in on_postgres("chats", "--json").lines] == [chat]
    assert on_postgres("show", chat).out.endswith("Hello.\n")
    assert not (on_postgres.home / "treadle.db").exists()
    sound = on_postgres("fsck")
    assert (sound.code, "is sound" in sound.err) == (0, True)

    async def damage() -> None:
        connection = await asyncpg.connect(postgres)
        await connection.execute("UPDATE events SET crc = crc # 1 WHERE seq = 2")
        await connection.close()

    asyncio.run(damage())
    assert "record" in on_postgres("fsck").out
    assert on_postgres("fsck", "--repair").code == 0
    assert on_postgres("fsck").code == 0


def test_a_password_is_not_shown(cli: CommandLine) -> None:
    cli.environment["TREADLE_STORE"] = "postgresql://me:hidden1234@127.0.0.1:1/chats"
    for words in (["config"], ["config", "--json"], ["fsck"]):
        result = cli(*words)
        assert "hidden1234" not in result.out + result.err
        assert "postgresql://me@127.0.0.1:1/chats" in result.out + result.err


def test_an_address_of_something_else_is_a_mistake(cli: CommandLine) -> None:
    result = cli("chats", env={"TREADLE_STORE": "mysql://me:hidden1234@there/chats"})
    assert result.code == 2
    assert "postgresql://USER@HOST/NAME" in result.err
    assert "hidden1234" not in result.err


def test_commands_do_not_get_the_address() -> None:
    assert "TREADLE_STORE" not in drop_secrets({"TREADLE_STORE": "postgresql://there/chats?password=x"})


@pytest.mark.thorough(one_of=8)
def test_what_chats_in_postgresql_need_is_not_collected(on_postgres: CommandLine) -> None:
    """An SQLite file that lies there, too, says nothing about them (W-02)."""
    cli, there = on_postgres, on_postgres.environment["TREADLE_STORE"]
    assert cli("run", "Hi.", "--model", cli.script('[[turn]]\ntext = "Hello."\n'), env={"TREADLE_STORE": ""}).code == 0
    assert (cli.home / "treadle.db").exists()
    (cli.project / "a").write_text("old")
    edited = cli("run", "Edit it.", "--model", cli.script(EDIT), env={"TREADLE_STORE": there})
    assert (edited.code, (cli.project / "a").read_text()) == (0, "new"), edited.err
    two_days_ago = time.time() - 2 * 24 * 3600
    for path in cli.home.rglob("*"):
        os.utime(path, (two_days_ago, two_days_ago), follow_symlinks=False)
    assert cli("gc").code == 0
    undone = cli("undo")
    assert (undone.code, (cli.project / "a").read_text()) == (0, "old"), undone.err
