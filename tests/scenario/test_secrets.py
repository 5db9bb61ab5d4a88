"""Secrets are in nothing that is recorded, shown or sent (S-11): neither in results, nor in what people write, nor in
live output, nor in what is asked for."""

from pathlib import Path
from typing import get_type_hints

import pytest

from tests.scenario.kit import Recording, Stage, of, play
from treadle import tool
from treadle.adapters.models.scripted import Call, Fail, Say, ScriptedModel
from treadle.protocol import events as e
from treadle.protocol import wire

VALUE = "zebra-crossing-42"
TOKEN = "ghp_" + "a1B2" * 9
ENV = {"ACME_TOKEN": VALUE}


@tool
def leak(name: str) -> str:
    """Show a secret."""
    if name == "fail":
        raise RuntimeError(f"wrong key {VALUE}")
    return f"first line {VALUE}\n{TOKEN}"


async def everything(stage: Stage, chat_id: str) -> str:
    return "".join(record.body.decode() for record in await stage.store.read(chat_id))  # type: ignore[arg-type]


async def test_neither_log_nor_model_nor_reader_gets_to_see_them(stage: Stage) -> None:
    model = Recording(ScriptedModel([[Call("leak", name="a"), Call("leak", name="fail")], Say("Done.")]))
    chat = stage.agent(model, leak, env=ENV).chat()
    events = await play(chat.send(f"Use {TOKEN}, please, and {VALUE}."))
    live_text = b"".join(wire.to_json(envelope) for envelope in events).decode()
    log = await everything(stage, chat.id)
    model_text = repr(model.entries)
    for text in (live_text, log, model_text):
        assert VALUE not in text
        assert TOKEN not in text
        assert "[redacted: ACME_TOKEN]" in text
        assert "[redacted: GitHub token]" in text
    results = of(events, e.ExecutionComplete)
    assert results[0].result_summary == "first line [redacted: ACME_TOKEN]"
    assert "wrong key [redacted: ACME_TOKEN]" in results[1].error


async def test_what_people_answer_and_queue(stage: Stage) -> None:
    chat = stage.agent([Call("ask_user", question="Key?"), Say("Thanks.")], env=ENV).chat(interactive=True)
    await play(chat.send("Go."))
    (action,) = await chat.actions()
    await play(chat.answer(action, f"it is {VALUE}"))
    assert VALUE not in await everything(stage, chat.id)


async def test_a_providers_words(stage: Stage) -> None:
    chat = stage.agent([Fail("bad_request", f"invalid key {VALUE}")], env=ENV).chat()
    events = await play(chat.send("Go."))
    assert of(events, e.SessionError)[0].message == "invalid key [redacted: ACME_TOKEN]"


async def test_a_model_that_repeats_one(stage: Stage) -> None:
    chat = stage.agent([Say(f"Your key is {TOKEN}.")], env=ENV).chat()
    await play(chat.send("Go."))
    assert TOKEN not in await everything(stage, chat.id)


async def test_what_is_asked_for(stage: Stage, tmp_path: Path) -> None:
    steps = [Call("write_file", path=".env", content="A=1\n"), Say("Done.")]
    (tmp_path / "root").mkdir()
    agent = stage.agent(steps, builtin=True, env=ENV)
    chat = agent.chat(root=str(tmp_path / "root"), interactive=True, system_prompt=f"The key is {VALUE}.")
    await play(chat.send("Go."))
    (action,) = await chat.actions()
    assert VALUE not in await everything(stage, chat.id)
    await play(chat.approve(action))
    assert (tmp_path / "root" / ".env").read_text() == "A=1\n"


async def test_live_output(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    command = f"printf 'a {TOKEN[:20]}'; printf '{TOKEN[20:]} b\\n'; ls"
    chat = stage.agent([Call("run_command", command=command), Say("Done.")], builtin=True, env=ENV).chat(
        root=str(tmp_path / "root"), auto_approve_commands=True
    )
    events = await play(chat.send("Go."))
    live = "".join(output.text for output in of(events, e.ExecutionOutput))
    assert TOKEN not in live
    assert "[redacted: GitHub token] b" in of(events, e.ExecutionComplete)[0].result


async def test_an_agent_may_bring_its_own(stage: Stage) -> None:
    chat = stage.agent([Say("x")], redact=lambda text: text.replace("blue", "green")).chat()
    events = await play(chat.send("A blue sky."))
    assert of(events, e.UserMessage)[0].content == "A green sky."


@pytest.mark.parametrize("kind", sorted({kind.TYPE for kind in e.RECORDED.values()}))
def test_every_text_that_could_hold_one_is_known(kind: str) -> None:
    """A new event with a free text must say whether it is redacted."""
    from treadle.engine.log import TEXTS

    event = e.RECORDED[kind]
    texts = set(TEXTS.get(event, ()))
    free = {name for name in ("content", "text", "message", "summary", "result", "error", "answer", "shown", "title")
            if get_type_hints(event).get(name) is str}  # fmt: skip
    assert free <= texts, kind
