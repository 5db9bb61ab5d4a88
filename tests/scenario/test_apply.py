"""L-18: plain chat without tools, and a fenced block of an answer that a person applies to a file: the same policy,
checkpoint and way back as for a call of the model, and no model is asked."""

from pathlib import Path
from typing import Any

import pytest

from tests.scenario.kit import Gate, Recording, Stage, list_idle_reasons, of, play, results, types, until
from treadle import tool
from treadle.adapters.models.scripted import Call, Say, ScriptedModel
from treadle.adapters.tools.builtin.edit import WriteFile
from treadle.errors import InvalidInput, Refused
from treadle.ports.toolset import Invocation
from treadle.protocol import events as e
from treadle.protocol.content import AssistantEntry, ResultsEntry, UserEntry
from treadle.sync import Agent as SyncAgent
from treadle.testing.checker import check

SCRIPT = Say("Like this:\n\n```python\nprint('hello')\n```\n\nRun it.")
TURN = ["user.message", "assistant.turn_start", "assistant.message"]
CALL = ["checkpoint.created", "tool.execution_start", "tool.execution_complete", "workspace.files_changed"]
END = ["assistant.turn_end", "session.run_end"]


async def test_a_block_of_an_answer_is_written_undone_and_written_again(stage: Stage, tmp_path: Path) -> None:
    model = Recording(ScriptedModel([SCRIPT, Say("It is there.")]))
    chat = stage.agent(model, builtin=True).chat(root=str(tmp_path), tools=())
    await play(chat.send("How do I greet?"))
    assert model.requests[0].tools == ()  # plain chat
    events = await play(chat.apply("src/hello.py"))
    assert types(events) == [*TURN, *CALL, *END]
    assert list_idle_reasons(events) == ["done"]
    file = tmp_path / "src/hello.py"
    assert file.read_text() == "print('hello')\n"
    await chat.files.undo()
    assert not file.parent.exists()
    await chat.files.redo()
    assert file.read_text() == "print('hello')\n"
    assert len(model.requests) == 1
    await play(chat.send("And now?"))
    entries = model.turns()[1]
    assert [type(entry) for entry in entries[2:]] == [UserEntry, AssistantEntry, ResultsEntry, UserEntry]
    assert (await chat.state()).totals.turns == 2  # model calls
    assert await check(stage.store, chat.id) == []


async def test_a_sensitive_file_asks_and_shows_what_would_be_written(stage: Stage, tmp_path: Path) -> None:  # S-06
    chat = stage.agent([SCRIPT], builtin=True).chat(root=str(tmp_path), tools=(), interactive=True)
    await play(chat.send("How?"))
    events = await play(chat.apply(".env", content="A=1\n"))
    assert types(events) == [*TURN, "permission.requested"]
    with pytest.raises(Refused) as refused:
        await chat.apply("other.txt", content="x")
    assert refused.value.reason == "awaiting_action"
    (action,) = await chat.actions()
    assert "+A=1" in action.text
    assert await chat.arguments(action) == {"path": ".env", "content": "A=1\n"}
    events = await play(chat.deny(action, "not there"))
    assert list_idle_reasons(events) == ["done"]
    assert not (tmp_path / ".env").exists()
    await play(chat.apply(".env", content="A=1\n"))
    (action,) = await chat.actions()
    (tmp_path / ".env").write_text("B=2\n")  # the shown diff is outdated, so the call asks again (S-08)
    await play(chat.approve(action))
    (action,) = await chat.actions()
    assert "-B=2" in action.text
    await play(chat.approve(action))
    assert (tmp_path / ".env").read_text() == "A=1\n"


async def test_where_nobody_may_write_nothing_is_written(stage: Stage, tmp_path: Path) -> None:
    agent = stage.agent([SCRIPT, SCRIPT], builtin=True)
    for mode in ("read-only", "confirm"):
        chat = agent.chat(root=str(tmp_path), mode=mode)
        await play(chat.send("How?"))
        (result,) = of(await play(chat.apply("a.txt")), e.ExecutionComplete)
        assert not result.success
    chat = agent.chat(root=str(tmp_path))
    (result,) = of(await play(chat.apply("../a.txt", content="x")), e.ExecutionComplete)
    assert (result.success, "outside" in result.error) == (False, True)
    assert not (tmp_path / "a.txt").exists()
    assert not (tmp_path.parent / "a.txt").exists()


async def test_a_file_that_the_model_has_not_seen_or_not_so_is_written(stage: Stage, tmp_path: Path) -> None:
    """T-13 is about what a model believes; a person knows what they do, and can undo it."""
    file = tmp_path / "a.txt"
    file.write_text("one\n")
    (tmp_path / "b.txt").write_text("b\n")
    steps = [Call("read_file", path="a.txt"), SCRIPT, Call("write_file", path="a.txt", content="model\n"), Say("Done.")]
    chat = stage.agent(ScriptedModel(steps, follow="calls"), builtin=True).chat(root=str(tmp_path))
    await play(chat.send("How?"))
    file.write_text("two\n")
    for path in ("a.txt", "b.txt"):
        await play(chat.apply(path))
        assert (tmp_path / path).read_text() == "print('hello')\n"
    await play(chat.send("Now you."))  # an applied file counts as read
    assert file.read_text() == "model\n"
    assert all("changed on disk" not in text for text in await results(chat))


async def test_a_change_behind_the_back_of_the_person_is_not_overwritten(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the write: the hash of the moment guards it."""
    file = tmp_path / "a.txt"
    file.write_text("one\n")
    looked = WriteFile.prepare

    async def prepare_and_meddle(self: WriteFile, invocation: Invocation) -> dict[str, Any] | None:
        plan = await looked(self, invocation)
        file.write_text("mine\n")
        return plan

    monkeypatch.setattr(WriteFile, "prepare", prepare_and_meddle)
    chat = stage.agent([SCRIPT], builtin=True).chat(root=str(tmp_path))
    (result,) = of(await play(chat.apply("a.txt", content="theirs\n")), e.ExecutionComplete)
    assert not result.success
    assert "changed on disk" in result.error
    assert file.read_text() == "mine\n"


async def test_a_chat_at_work_refuses_and_a_bad_wish_changes_nothing(stage: Stage, tmp_path: Path) -> None:
    gate = Gate()

    @tool
    async def work() -> str:
        """Work."""
        return await gate.pass_through()

    chat = stage.agent([Call("work"), Say("No code.")], work, builtin=True).chat(root=str(tmp_path))
    await until(chat.send("Go."), lambda event: isinstance(event, e.ExecutionStart))
    with pytest.raises(Refused) as refused:
        await chat.apply("a.txt", content="x")
    assert refused.value.reason == "busy"
    gate.open.set()
    await play(chat.resume())
    head = (await chat.state()).head
    with pytest.raises(Refused, match="no fenced block"):
        await chat.apply("a.txt")
    with pytest.raises(InvalidInput):
        await chat.apply("", content="x")
    assert (await chat.state()).head == head


async def test_a_secret_is_not_put_into_the_log(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # S-11
    monkeypatch.setenv("DEPLOY_API_KEY", "sk-a-very-secret-value-0123456789")
    chat = stage.agent([SCRIPT], builtin=True).chat(root=str(tmp_path))
    with pytest.raises(InvalidInput, match="secret"):
        await chat.apply("a.txt", content="key = sk-a-very-secret-value-0123456789\n")
    assert types(await chat.events()) == ["session.created"]


def test_without_async(tmp_path: Path) -> None:
    with SyncAgent(tmp_path / "chats.db", model=ScriptedModel([SCRIPT])) as agent:
        chat = agent.chat(root=str(tmp_path))
        list(chat.send("How?"))
        list(chat.apply("a.py", block=1))
    assert (tmp_path / "a.py").read_text() == "print('hello')\n"
