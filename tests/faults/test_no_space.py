"""A disk that is full, or cannot be written (fault 13): a real, small file system of its own for each case. The write
does not happen, the error says why, nothing is left behind, and all works again when there is space."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.adapters.sandbox.choose import find_bubblewrap

pytestmark = pytest.mark.thorough(one_of=8)

SIZE = 1 << 20
SCRIPT = r"""
import asyncio, os, sys
from pathlib import Path
from treadle import Agent
from treadle.adapters.models.scripted import Call, Say, ScriptedModel
from treadle.protocol.content import ResultsEntry

async def results(agent, root):
    chat = agent.chat(root=str(root), verify=False, context_window=10_000_000)
    async for _ in chat.send("Go."):
        pass
    state = await chat.state()
    return [result.text for entry in state.history if isinstance(entry, ResultsEntry) for result in entry.results]

async def main(place, case):
    root = place / "project" if case != "database" else Path(sys.argv[3])
    root.mkdir(exist_ok=True)
    store = place / "chats.db" if case == "database" else None
    big = "x" * 900_000
    patch = "*** Begin Patch\n*** Update File: a\n@@\n-one\n+two\n*** Add File: b\n+" + big + "\n*** End Patch\n"
    steps = {
        "project": [Call("write_file", path="new", content=big), Call("apply_patch", patch=patch), Say("Oh.")],
        "read-only": [Call("write_file", path="new", content="x"), Call("apply_patch", patch=patch), Say("Oh.")],
        "database": [Say(big)],
    }[case]
    if case == "project":
        (root / "a").write_text("one\n")
        (place / "filler").write_bytes(b"f" * 400_000)
    async with Agent(store, model=ScriptedModel(steps)) as agent:
        if case == "database":
            chat = agent.chat(summarize=False)
            await chat.open()
            (place / "filler").write_bytes(b"f" * 500_000)
            try:
                async for _ in chat.send(big):
                    pass
                print("no error")
            except Exception as error:
                print(type(error).__name__, error)
            (place / "filler").unlink()
            print((await chat.state()).head, await chat.status())
            return
        for text in await results(agent, root):
            print(text[:300].replace("\n", " "))
    print(sorted(path.name for path in root.iterdir()), (root / "a").read_text().strip())
    if case == "project":
        (place / "filler").unlink()
        async with Agent(model=ScriptedModel([Call("write_file", path="new", content=big), Say("Good.")])) as agent:
            print((await results(agent, root))[0][:20])

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


def strike(tmp_path: Path, case: str) -> str:
    """The output of the script, with a file system of a megabyte, or one that cannot be written, at its place."""
    place, elsewhere = tmp_path / "small", tmp_path / "elsewhere"
    (place / "project").mkdir(parents=True)
    elsewhere.mkdir()
    (place / "project" / "a").write_text("one\n")
    mount = (
        ["--ro-bind", str(place), str(place)] if case == "read-only" else ["--size", str(SIZE), "--tmpfs", str(place)]
    )
    bubblewrap = [find_bubblewrap(), "--bind", "/", "/", "--dev", "/dev", *mount]
    if not bubblewrap[0] or subprocess.run([*bubblewrap, "true"], capture_output=True).returncode:
        pytest.skip("no small file system can be mounted here")
    process = subprocess.run(
        [*bubblewrap, sys.executable, "-c", SCRIPT, str(place), case, str(elsewhere)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert not process.returncode, process.stderr
    return process.stdout


@pytest.mark.thorough(one_of=8)
def test_a_project_without_space_is_left_as_it_was(tmp_path: Path) -> None:
    write_error, patched, project_state, again = strike(tmp_path, "project").splitlines()
    assert "No space left" in write_error
    assert "No space left" in patched
    assert project_state == "['a'] one"
    assert again.startswith("Created new")


@pytest.mark.thorough(one_of=8)
def test_a_project_that_cannot_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    write_error, patched, project_state = strike(tmp_path, "read-only").splitlines()
    assert "Read-only file system" in write_error
    assert "read-only" in patched
    assert project_state == "['a'] one"


def test_a_database_without_space_says_so_and_loses_nothing(tmp_path: Path) -> None:
    error_line, chat_state = strike(tmp_path, "database").splitlines()
    assert error_line.startswith("StoreError")
    assert "no space left" in error_line
    assert chat_state == "1 idle"
