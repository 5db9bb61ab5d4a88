"""The library as its users meet it (E-05): answers, errors, misspellings."""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from tests.scenario.kit import Recording, Stage, play, until
from treadle import Chat, sync
from treadle.adapters.models.scripted import Call, Fail, Hang, Say, ScriptedModel
from treadle.errors import ConfigError, InvalidInput, RunFailed, TreadleError
from treadle.protocol import commands as c
from treadle.protocol.events import UserMessage
from treadle.protocol.live_events import MessageDelta
from treadle.protocol.options import ChatOptions, OptionKeywords


def forget(chat: Chat | sync.Chat) -> None:
    chat.send("x")
    gc.collect()


async def test_a_question_after_a_stop_gets_its_own_answer(stage: Stage) -> None:  # L-07, L-08
    model = Recording(ScriptedModel([(Say("so"), Hang()), Say("Forty-two."), Say("Later.")]))
    chat = stage.agent(model).chat()
    await chat.send("first")
    await until(chat.resume(), lambda event: isinstance(event, MessageDelta))
    await chat.send("queued before the stop")
    await chat.interrupt()
    answer = await chat.ask("What is it?")
    assert (answer.text, answer.reason) == ("Forty-two.", "done")
    messages = [event.data.content for event in await chat.events() if isinstance(event.data, UserMessage)]
    assert messages[:2] == ["first", "What is it?"]


async def test_what_was_queued_before_a_stop_still_waits_for_a_person(stage: Stage) -> None:  # L-08
    chat = stage.agent([(Say("so"), Hang()), Say("No.")]).chat()
    await chat.send("first")
    await until(chat.resume(), lambda event: isinstance(event, MessageDelta))
    await chat.send("before")
    await chat.interrupt()
    await play(chat.resume())
    assert [item.content for item in (await chat.state()).queue] == ["before"]
    assert await chat.status() == "idle"


async def test_ask_raises_what_ended_the_run(stage: Stage) -> None:
    chat = stage.agent([Fail("auth", "The key was refused."), Say("Fine.")]).chat()
    with pytest.raises(RunFailed, match="key was refused") as raised:
        await chat.ask("Go.")
    assert raised.value.error_class == "auth"
    assert (await chat.ask("Again?")).text == "Fine."  # the chat stays usable


async def test_a_chat_copies_and_exports_itself_and_lists_models(stage: Stage) -> None:  # D-07, D-08
    chat = stage.agent([Say("Fine.")]).chat()
    await chat.ask("Go.")
    head = (await chat.state()).head
    assert (await chat.export()).count(b"\n") == head
    copy, beginning = await chat.fork(), await chat.fork(1)
    assert [event.data for event in (await copy.events())[1:head]] == [
        event.data for event in (await chat.events())[1:]
    ]
    assert not (await beginning.state()).history
    assert await chat.models() == []  # one model for all chats


@pytest.mark.parametrize("options", [{"mode": "nonsense"}, {"max_turns": 0}])
async def test_title_and_options_change_together_or_not_at_all(stage: Stage, options: dict[str, Any]) -> None:
    chat = stage.agent([]).chat()
    with pytest.raises(TreadleError):
        await chat.change(title="Other", **options)
    assert (await chat.state()).title == ""
    await chat.change(title="Other", labels=("new",), archived=True)
    state = await chat.state()
    assert (state.title, state.options.labels, state.options.archived) == ("Other", ("new",), True)


async def test_a_message_that_nobody_sends_is_warned_about(stage: Stage) -> None:
    chat = stage.agent([Say("Fine.")]).chat()
    with pytest.warns(RuntimeWarning, match=r"Send to chat c_.* was never carried out: await it"):
        forget(chat)
    await chat.send("y")
    await play(chat.resume())


def test_without_async_likewise() -> None:
    with sync.Agent(model=ScriptedModel([Fail("quota", "Nothing left.")])) as agent:
        chat = agent.chat(root="/")
        with pytest.warns(RuntimeWarning, match=r"never carried out.*call it"):
            forget(chat)
        with pytest.raises(RunFailed, match="Nothing left"):
            chat.ask("Go.")
        with pytest.raises(InvalidInput, match="did you mean 'model'"):
            agent.chat(modell="x")  # type: ignore[call-arg]


def test_keywords_are_the_options() -> None:
    keywords, options = get_type_hints(OptionKeywords), get_type_hints(ChatOptions)
    assert set(keywords) == set(options) - {"root_id"}  # which is found out, not chosen
    wider = {
        "root",
        "tools",
        "network",
        "dynamic_tools",
        "sensitive",
        "rules",
        "checks",
        "labels",
        "skills",
        "output_schema",
    }
    assert {name: keywords[name] for name in keywords if name not in wider} == {
        name: options[name] for name in keywords if name not in wider
    }


async def test_a_misspelt_option_names_the_near_one(stage: Stage) -> None:
    agent = stage.agent([Say("Hi.")])
    with pytest.raises(InvalidInput, match=r"There is no option 'max_turn'; did you mean 'max_turns'\?"):
        agent.chat(max_turn=3)  # type: ignore[call-arg]
    chat = agent.chat()
    await play(chat.send("Hello."))
    with pytest.raises(InvalidInput, match="did you mean 'labels'"):
        await chat.command(c.ChangeOptions({"label": ()}))


@pytest.mark.parametrize("name", ["rules.json", "trust.json"])
async def test_no_run_begins_when_what_may_be_done_cannot_be_read(
    name: str, stage: Stage, tmp_path: Path
) -> None:  # S-07, S-09
    home = tmp_path / "home"
    home.mkdir()
    model = Recording(ScriptedModel([Call("write_file", path="f", content="x"), Say("Done.")]))
    agent = stage.agent(model, builtin=True, home=home)
    chat = agent.chat(root=str(tmp_path))
    (home / name).write_text('{"rules": [')
    (home / name).chmod(0o600)
    with pytest.raises(ConfigError, match=rf"{name} is damaged .*mend it, or move it away"):
        await play(chat.send("Go."))
    assert model.turns() == []
    assert await agent.chats() == []
    (home / name).write_text(json.dumps({}))
    await play(chat.send("Go."))
    assert (tmp_path / "f").read_text() == "x"


async def test_an_answer_stays_open_when_the_rules_cannot_be_read(stage: Stage, tmp_path: Path) -> None:  # S-08
    home = tmp_path / "home"
    home.mkdir()
    agent = stage.agent([Call("write_file", path=".env", content="x"), Say("Done.")], builtin=True, home=home)
    chat = agent.chat(root=str(tmp_path), interactive=True)
    await play(chat.send("Go."))
    (home / "rules.json").write_text("{")
    [action] = await chat.actions()
    with pytest.raises(ConfigError):
        await play(chat.approve(action))
    assert await chat.actions() == (action,)
    await chat.interrupt()  # which needs no rules


async def test_a_preset_by_name(stage: Stage) -> None:  # S-15
    agent = stage.agent([Say("Hello.")])
    chat = agent.chat(preset="strict", max_turns=4)
    await chat.ask("Hi.")
    options = (await chat.state()).options
    assert (options.mode, options.max_turns, options.strict_paths) == ("confirm", 4, True)
    with pytest.raises(InvalidInput, match="there is no preset 'lax'; there is: strict"):
        agent.chat(preset="lax")  # type: ignore[arg-type]


FORGETFUL = """
import asyncio, sys
from pathlib import Path
from treadle import Agent
from treadle.adapters.models.scripted import Call, Say, ScriptedModel

async def main():
    script = ScriptedModel([Call("write_file", path="new.txt", content="new"), Say("Done.")])
    agent = Agent(model=script, home=sys.argv[1] + "/home")
    await agent.chat(root=sys.argv[1], mode="auto-edit").ask("Go.")
    assert any(Path(sys.argv[1], "tmp").iterdir())

asyncio.run(main())
"""


def test_what_chats_in_memory_kept_goes_with_a_process_that_closed_nothing(tmp_path: Path) -> None:  # W-02
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    subprocess.run([sys.executable, "-c", FORGETFUL, tmp_path], env=environment, check=True)
    assert (tmp_path / "new.txt").read_text() == "new"
    assert list((tmp_path / "tmp").iterdir()) == []
