"""Going back to a message, and keeping: killed half-way, they are completed by asking again (W-02, L-09, fault 3)."""

from pathlib import Path

import pytest

from tests.scenario.command_line import CommandLine
from tests.scenario.test_cli_undo import AGENT, at_work, files, text

pytestmark = pytest.mark.thorough(one_of=8)


def messages(cli: CommandLine, chat: str) -> list[int]:
    return [each["seq"] for each in cli("export", chat).lines if each.get("type") == "user.message"]


def test_a_killed_way_back_to_a_message_is_completed_by_asking_again(tmp_path: Path) -> None:
    cli = CommandLine(tmp_path)
    chat = at_work(cli)
    first, _ = messages(cli, chat)
    assert cli("undo", "--to", str(first), env={"TREADLE_FAULTS": "kill@transaction.put"}).code < 0
    again = cli("undo", "--to", str(first))
    assert again.code == 0, again
    assert "completed first" in again.err
    assert files(cli) == {"a.txt": text()}
    undone = [each for each in cli("export", chat).lines if each.get("type") == "workspace.undone"]
    assert len(undone) == 1


@pytest.mark.thorough(one_of=8)
def test_a_killed_keep_is_completed_by_asking_again(tmp_path: Path) -> None:
    cli = CommandLine(tmp_path)
    at_work(cli)
    assert cli("keep", env={"TREADLE_FAULTS": "kill@restore.after"}).code < 0
    again = cli("keep")
    assert again.code == 0, again
    assert "the keep that was begun before and did not end is completed first" in again.err
    assert files(cli) == {"a.txt": AGENT, "made/new.txt": "agent\n", "b.txt": "more\n"}
    assert cli("undo", "--all").code == 0  # the last run was kept, and no other
    assert files(cli) == {"a.txt": text(), "b.txt": "more\n"}
    assert cli("undo", "--all", "--even-kept").code == 0
    assert files(cli) == {"a.txt": text()}
