"""The Python examples of README and the library guide are run, each as it stands, against real parts (E-05)."""

import ast
import asyncio
import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, DynamicTool, ScriptedModel, tool
from treadle.adapters.models.scripted import Call, Say, Turn
from treadle.ports.model import Model
from treadle.testing.fake_openai import FakeOpenAI, Reply

ROOT = Path(__file__).parents[2]


def blocks(page: str) -> dict[str, str]:
    """The Python blocks of a page, by the heading that they stand under."""
    code_blocks: dict[str, str] = {}
    for section in re.split(r"^## ", (ROOT / page).read_text(), flags=re.M):
        heading = section.partition("\n")[0].strip()
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", section, flags=re.S)):
            code_blocks[heading if not number else f"{heading} {number}"] = block
    return code_blocks


def make_scripted_model(*turns: Sequence[Any]) -> ScriptedModel:
    return ScriptedModel([Turn(tuple(parts)) for parts in turns], follow="calls")


async def execute(code: str, names: dict[str, Any]) -> dict[str, Any]:
    """Run an example that may await at its top level."""
    compiled = compile(code, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = eval(compiled, names)
    if inspect.iscoroutine(running):
        await running
    return names


GUIDE = blocks("docs/guide/library.md")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "notes.txt").write_text("hello\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_a_chat_and_resuming_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = await execute(GUIDE["A chat"], {"project": project})
    assert capsys.readouterr().out == "Let me look.\nIt says hello.\n"
    await execute(GUIDE["Resuming"], {**names, "chat_id": names["chat"].id})
    assert capsys.readouterr().out == "session.idle\n"


async def test_answers_as_values(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = make_scripted_model([Say("Yes.")], [Say('{"good": true, "why": "tests pass"}')])
    names: dict[str, Any] = {"project": project, "__name__": "example"}
    async with Agent(model=model) as names["agent"]:
        await execute(GUIDE["Answers as values"], names)
    assert capsys.readouterr().out == "True tests pass\n"


async def test_tools_of_your_own(project: Path) -> None:
    names = await execute(GUIDE["Tools of your own"], {})
    schema = names["population"].spec.parameters
    assert schema["required"] == ["city"]
    model = make_scripted_model([Call("population", city="Bern")], [Say("443,000 people live there.")])
    async with Agent(model=model, tools=[names["population"]]) as agent:
        assert (await agent.chat(root=project).ask("How many?")).text.startswith("443,000")


async def test_tools_that_run_elsewhere(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = make_scripted_model([Call("lookup", name="Ada")], [Say("Customer 1815.")])
    names: dict[str, Any] = {"project": project, "DynamicTool": DynamicTool}
    async with Agent(model=model) as names["agent"]:
        await execute(GUIDE["Tools that run elsewhere"], names)
        assert await names["chat"].status() == "idle"
    assert capsys.readouterr().out == "lookup {'name': 'Ada'}\n"


async def test_approvals(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = make_scripted_model([Call("run_command", command="rm notes.txt")], [Say("Deleted.")])
    names: dict[str, Any] = {"project": project}
    async with Agent(model=model) as names["agent"]:
        await execute(GUIDE["Approvals and questions"], names)
    assert "rm notes.txt" in capsys.readouterr().out
    assert not (project / "notes.txt").exists()


async def test_while_it_runs(project: Path) -> None:
    """The queue and steering, on a chat that is busy with a tool until both are sent."""
    sent_signal = asyncio.Event()

    @tool
    async def busy() -> str:
        """Work until the others have spoken."""
        await sent_signal.wait()
        return "done"

    model = make_scripted_model([Call("busy")], [Say("I use the other file.")], [Say("The changelog is updated.")])
    names: dict[str, Any] = {}
    async with Agent(model=model, tools=[busy]) as agent:
        chat = names["chat"] = agent.chat(root=project, verify=False)  # this model only talks
        await chat.send("Begin.")
        await execute(GUIDE["While it runs"], names)
        sent_signal.set()
        for _run in range(2):
            async for _event in chat.resume():
                pass
        messages = [event.data.content for event in await chat.events() if event.type == "user.message"]  # type: ignore[attr-defined]
    assert messages == ["Begin.", "Use the other file.", "Also update the changelog."]


async def test_plain_chat_and_applying(project: Path, capsys: pytest.CaptureFixture[str]) -> None:  # L-18
    names: dict[str, Any] = {"project": project}
    async with Agent(model=make_scripted_model([Say("```python\nprint('hello')\n```")])) as names["agent"]:
        await execute(GUIDE["Plain chat, and applying what it says"], names)
    assert capsys.readouterr().out.startswith("True Created hello.py (+1 -0).")
    assert (project / "hello.py").read_text() == "print('hello')\n"


def test_without_async(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model: Model = make_scripted_model([Say("They say hello.")])
    exec(GUIDE["Without async"], {"project": project, "model": model})
    assert capsys.readouterr().out.splitlines()[-1] == "session.idle"


def test_readme(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    script = [Reply(calls=[("population", {"city": "Zürich"})]), Reply(text="443,000 people live in Zürich.")]
    with FakeOpenAI(script) as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.base_url)
        exec(blocks("README.md")["Use it"], {"__name__": "example"})
    printed = capsys.readouterr().out
    assert "443,000 people live in Zürich." in printed
    assert printed.splitlines()[-1].startswith("session.idle")


def test_every_example_is_run() -> None:
    """An example that is added to the guide needs its test here."""
    tested = inspect.getsource(inspect.getmodule(test_every_example_is_run) or pytest)
    assert [heading for heading in GUIDE if f'"{heading}"' not in tested] == []
