"""The model writes the title of a chat after its first run (L-02, L-11): recorded with its cost, never in the way."""

from pathlib import Path
from typing import Any

import pytest

from tests.scenario.kit import play
from treadle import Agent
from treadle.adapters.models.scripted import Fail, Hang, Say, ScriptedModel, Turn
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.library.replay import replay
from treadle.library.titles import clean_title
from treadle.library.transfer import read_chat
from treadle.ports.model import ModelInfo
from treadle.protocol import events as e
from treadle.protocol.commands import Rename
from treadle.protocol.options import Budget

PRICED = ModelInfo("other", "model", usd_per_million_input=1_000.0, usd_per_million_output=1_000.0)


def model(title: str | Turn = "Counting the apples", **settings: Any) -> ScriptedModel:
    return ScriptedModel([Say("There are three."), Say("Four.")], side_answers={"title": title}, **settings)


async def test_the_first_run_gives_a_title(tmp_path: Path) -> None:
    async with Agent(tmp_path / "t.db", model=model(info=PRICED), home=tmp_path, titles="auto") as agent:
        chat = agent.chat()
        await play(chat.send("How many apples are there?"))
        await agent.titles.finish()
        state = await chat.state()
        assert state.title == "Counting the apples"
        log = await read_chat(agent.deps.store, chat.id)
        call, change = log[-2].data, log[-1].data
        assert isinstance(call, e.ModelCall)
        answer = next(each.data for each in log if isinstance(each.data, e.AssistantMessage))
        assert state.totals.usage.usd == pytest.approx(answer.usage.usd + call.usage.usd)
        assert call.usage.usd > 0
        assert (call.purpose, call.text, call.usage.tokens > 0) == ("title", "Counting the apples", True)
        assert change == e.TitleChanged("Counting the apples", "model")
        await play(chat.send("And now?"))
        await agent.titles.finish()
        assert sum(isinstance(each.data, e.ModelCall) for each in await read_chat(agent.deps.store, chat.id)) == 1
        assert not (await replay(agent.deps.store, chat.id)).divergence


@pytest.mark.parametrize(
    ("choice", "info", "title"),
    [
        ("off", PRICED, "How many?"),
        ("auto", None, "How many?"),
        ("on", None, "Counting the apples"),
    ],
)
async def test_the_setting_decides(tmp_path: Path, choice: Any, info: ModelInfo | None, title: str) -> None:
    async with Agent(tmp_path / "t.db", model=model(info=info), home=tmp_path, titles=choice) as agent:
        chat = agent.chat()
        await play(chat.send("How many?"))
        await agent.titles.finish()
        assert (await chat.state()).title == title


async def test_no_call_breaks_a_budget(tmp_path: Path) -> None:  # L-11
    async with Agent(tmp_path / "t.db", model=model(), home=tmp_path, titles="on") as agent:
        chat = agent.chat()
        await play(chat.send("How many?"))
        token_count = (await chat.state()).totals.usage.tokens
        await agent.titles.finish()
        limited_chat = agent.chat(chat_budget=Budget(tokens=token_count + 50))
        await play(limited_chat.send("How many?"))
        await agent.titles.finish()
        assert (await limited_chat.state()).title == "How many?"
        assert not any(
            isinstance(each.data, e.ModelCall) for each in await read_chat(agent.deps.store, limited_chat.id)
        )


async def test_a_title_of_a_person_stays(tmp_path: Path) -> None:
    async with Agent(tmp_path / "t.db", model=model(), home=tmp_path, titles="on") as agent:
        chat = agent.chat()
        await play(chat.send("How many?"))
        await chat.command(Rename("Mine"))  # while the call is under way
        await agent.titles.finish()
        state = await chat.state()
        assert (state.title, state.titled) == ("Mine", True)


async def test_a_failure_is_recorded_and_not_repeated(tmp_path: Path) -> None:
    failing = model(Turn((Fail("auth", "the key was refused"),)))
    async with Agent(tmp_path / "t.db", model=failing, home=tmp_path, titles="on", retry_base_s=0) as agent:
        chat = agent.chat()
        await play(chat.send("How many?"))
        await agent.titles.finish()
        calls = [each.data for each in await read_chat(agent.deps.store, chat.id) if isinstance(each.data, e.ModelCall)]
        assert [(call.purpose, "refused" in call.error) for call in calls] == [("title", True)]
        assert (await chat.state()).title == "How many?"


async def test_leaving_does_not_wait_for_a_title(tmp_path: Path) -> None:
    hanging = model(Turn((Say("Count"), Hang())))
    async with Agent(tmp_path / "t.db", model=hanging, home=tmp_path, titles="on") as agent:
        chat = agent.chat()
        assert (await chat.ask("How many?")).text == "There are three."
        assert (await chat.ask("And now?")).text == "Four."  # nor does the next run
    store = SqliteStore(tmp_path / "t.db")
    try:
        last = (await read_chat(store, chat.id))[-1].data
        assert isinstance(last, e.ModelCall)
        assert (last.purpose, last.error, last.usage.tokens > 0) == ("title", "interrupted", True)
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ('"Counting apples."', "Counting apples"),
        ("**Title: Apples**\n\nmore", "Apples"),
        ("# Äpfel zählen", "Äpfel zählen"),
        ("\n\n", ""),
        ("x" * 200, "x" * 59 + "…"),
    ],
)
def test_an_answer_becomes_a_title(text: str, title: str) -> None:
    assert clean_title(text) == title
