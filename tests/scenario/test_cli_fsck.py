"""`treadle fsck` always ends with what is sound, what is lost, and a database to go on with (D-06, fault 14)."""

import os

import pytest

from tests.scenario.command_line import CommandLine

pytestmark = pytest.mark.thorough(one_of=8)

HELLO = '[[turn]]\ntext = "Hello."\n'
MODES = """
[[turn]]
call = [{ name = "run_command", args = { command = "chmod 755 a" } }]
[[turn]]
text = "Done."
"""


def strike(cli: CommandLine, first: int, count: int) -> None:
    with open(cli.home / "treadle.db", "r+b") as file:
        for page in range(first, first + count):
            file.seek(page * 4096)
            file.write(b"\xff" * 4096)


@pytest.mark.parametrize(
    ("first", "count", "repair", "message"),
    [
        (0, 1, (), "sound: 1 chat of 1, 6 records in all"),
        (1, 1, ("--repair",), "lost: what else was known of c_"),  # the table of chats: their ids are in an index, too
        (1, 200, (), "lost: everything"),
    ],
)
def test_damaged_pages_end_in_a_salvaged_database(
    cli: CommandLine, first: int, count: int, repair: tuple[str, ...], message: str
) -> None:
    cli("run", "Hello?", "--model", cli.script(HELLO))
    size = os.stat(cli.home / "treadle.db").st_size // 4096
    strike(cli, first, min(count, size - first))
    checked = cli("fsck", *repair)
    assert checked.code == 1
    assert "Traceback" not in checked.err
    assert "treadle fsck" not in checked.out + checked.err, "it is no answer to be told to do what was just done"
    assert checked.out.startswith("found: database: ")
    saved = cli.home / "treadle.db.salvaged"
    assert f"salvaged into {saved}" in checked.err
    assert message in checked.out
    saved.replace(cli.home / "treadle.db")
    assert cli("fsck").code == 0
    assert len(cli("chats", "--json").lines) == (1 if count == 1 else 0)
    assert cli("run", "And now?", "--model", cli.script(HELLO * 2)).code == 0


def test_a_change_of_modes_alone_is_no_damage(cli: CommandLine) -> None:
    (cli.project / "a").write_text("a\n")
    assert cli("run", "Make it so.", "--model", cli.script(MODES), "--auto-approve-commands").code == 0
    checked = cli("fsck")
    assert (checked.code, checked.out) == (0, "")
