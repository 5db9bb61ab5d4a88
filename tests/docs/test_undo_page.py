"""The guide to undo: its example runs as it stands (E-05)."""

from pathlib import Path

import pytest

from tests.docs.test_examples import blocks, execute, make_scripted_model
from treadle import Agent
from treadle.adapters.models.scripted import Call, Say


async def test_the_example_from_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("one\n")
    change = Call("write_file", path="notes.txt", content="two\n")
    async with Agent(
        model=make_scripted_model([Call("read_file", path="notes.txt")], [change], [Say("Done.")])
    ) as agent:
        chat = agent.chat(root=str(tmp_path))
        await chat.ask("Change it.")
        await execute(blocks("docs/guide/undo.md")["From Python"], {"chat": chat})
        assert capsys.readouterr().out == "['notes.txt'] []\nnotes.txt [1]\n"
        assert (tmp_path / "notes.txt").read_text() == "two\n"
        assert await chat.files.changes() == ()  # all of it was kept
