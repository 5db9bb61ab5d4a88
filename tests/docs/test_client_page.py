"""The examples of the client's guide are run, each as it stands, against a real server (A-09)."""

from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_examples import blocks, execute
from tests.scenario.http_kit import serving
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.memory import MemoryStore

GUIDE = blocks("docs/guide/client.md")
SCRIPTS: dict[str, tuple[list[Any], str]] = {
    "A chat": ([Say("Rain."), Say("Sun.")], "Rain.\nSun.\n"),
    "Tools": ([[Call("weather", city="Oslo"), Call("weather", city="Rome")], Say("Rain.")], "Rain.\n"),
    "Approvals and questions": ([[Call("run_command", command="rm notes.txt")], Say("Deleted.")], "Deleted.\n"),
    "Files": (
        [[Call("edit_file", path="notes.txt", old_str="old", new_str="OLD")], Say("Written.")],
        "Written.\nnotes.txt +1 -1\n['notes.txt'] ()\n",
    ),
    "Races, sub-agents and worlds": (
        [Call("edit_file", path="notes.txt", old_str="old", new_str="new"), Say("Fixed.")],
        "True ['notes.txt']\n1 idle\n2 idle\n",
    ),
    "Events": ([Say("Once upon a time.")], "Once upon a time.\n"),
}


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("heading", GUIDE)
async def test_example(heading: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps, printed = SCRIPTS[heading]
    project = tmp_path / "project"
    project.mkdir()
    (project / "notes.txt").write_text("old\n")
    async with serving(MemoryStore(), tmp_path, steps, builtin=True) as server:
        names = {"url": server.address, "token": server.local.token, "model": "scripted:test", "root": str(project)}
        await execute(GUIDE[heading], names)
    output = capsys.readouterr().out
    assert output.endswith(printed)
    if heading == "Approvals and questions":
        assert output.startswith("permission ")
        assert not (project / "notes.txt").exists()
    else:
        assert output == printed
