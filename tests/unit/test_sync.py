"""The library without `async` (E-05)."""

import asyncio
import gc
import inspect
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from treadle import DynamicTool, ScriptedModel
from treadle.adapters.models.scripted import Call, Hang, Say
from treadle.base.loop_thread import LoopOwner, LoopThread
from treadle.errors import InvalidInput, NotFound, Refused
from treadle.library import agent as runtime
from treadle.library import chat as handle
from treadle.library import files
from treadle.sync import Agent, Chat, ChatFiles


def names(kind: type) -> set[str]:
    return {name for base in kind.__mro__ for name in vars(base) if not name.startswith("_")}


def test_it_has_the_names_and_arguments_of_the_library() -> None:
    hidden_names = {"carry_out", "follow", "driven_here"}
    assert names(Chat) == names(handle.Chat) - hidden_names
    # Those of front ends, which are async.
    of_front_ends = {"prepare", "tool_warnings", "begin", "documents", "mcp", "servers_of", "subagents", "workspace_of"}
    assert names(Agent) == names(runtime.Agent) - of_front_ends
    of_other_callers = (
        files.ChatFiles.look,
        files.ChatFiles.undoing,
        files.ChatFiles.redoing,
        files.ChatFiles.keeping,
    )
    assert names(ChatFiles) == names(files.ChatFiles) - {method.__name__ for method in of_other_callers}
    for ours, theirs in ((Agent, runtime.Agent), (Chat, handle.Chat), (ChatFiles, files.ChatFiles)):
        shared = names(ours) - {"files", "worlds"} | ({"__init__"} if ours is Agent else set())
        for name in shared:
            one, two = (inspect.signature(getattr(kind, name)) for kind in (ours, theirs))
            assert list(one.parameters.values()) == list(two.parameters.values()), name


def test_events_come_one_after_the_other() -> None:
    with Agent(model=ScriptedModel([Call("list_directory", path="."), Say("Hello.")])) as agent:
        chat = agent.chat(root="/")
        types = [event.type for event in chat.send("Hi.")]
        assert types.count("assistant.turn_start") == 2
        assert types[-1] == "session.idle"
        assert [event.seq for event in chat.events()] == list(range(1, len(chat.events()) + 1))
        assert chat.status() == "idle"
        assert [listed.summary.chat for listed in agent] == [chat.id]


def test_a_new_chat_has_its_warnings() -> None:
    with Agent(model=ScriptedModel([])) as agent:
        assert agent.chat(tools=("nonsense",)).warnings == ("There is no tool 'nonsense' to enable.",)


def test_ask_gives_the_last_words(tmp_path: Path) -> None:
    with Agent(tmp_path / "chats.db", model=ScriptedModel([Say("Hello."), Say("Again.")])) as agent:
        chat = agent.chat(root=str(tmp_path))
        assert chat.ask("Hi.").text == "Hello."
    with Agent(tmp_path / "chats.db", model=ScriptedModel([Say("Hello."), Say("Again.")])) as agent:
        assert agent.chat(chat.id).ask("Hi?").text == "Again."


def test_changes_are_undone_and_redone(tmp_path: Path) -> None:  # W-02
    project = tmp_path / "project"
    project.mkdir()
    model = ScriptedModel([Call("write_file", path="new.txt", content="x\n"), Say("Made.")])
    with Agent(tmp_path / "chats.db", model=model) as agent:
        chat = agent.chat(root=str(project))
        chat.ask("Make it.")
        assert [change.path for change in chat.files.changes(chat.files.last_run())] == ["new.txt"]
        assert [change.path for change in chat.files.preview().files] == ["new.txt"]
        assert [change.action for change in chat.files.undo().files] == ["deleted"]
        assert not (project / "new.txt").exists()
        chat.files.redo()
        assert (project / "new.txt").read_text() == "x\n"
        chat.files.keep()
        assert chat.files.undo().files == ()


def test_leaving_the_iteration_stops_nothing() -> None:  # law 11
    with Agent(model=ScriptedModel([Say("Hello.")])) as agent:
        chat = agent.chat()
        for _event in chat.send("Hi."):
            break
        assert [event.type for event in chat.resume()][-1] == "session.idle"
        assert chat.state().last_end == "done"


def test_approvals_questions_and_results(tmp_path: Path) -> None:
    steps = [Call("ask_user", question="Which?"), Call("weather", city="Ulm"), Call("write_file", path="x", content="")]
    with Agent(model=ScriptedModel([*steps, Say("Done.")])) as agent:
        chat = agent.chat(root=str(tmp_path), mode="confirm", interactive=True, dynamic_tools=(DynamicTool("weather"),))
        assert [event.type for event in chat.send("Go.")][-1] == "session.action_required"
        (question,) = chat.actions()
        list(chat.answer(question, "This."))
        (call,) = chat.actions()
        list(chat.submit({call.tool_call_id: "sunny"}))
        (approval,) = chat.actions()
        assert approval.kind == "permission"
        assert [event.type for event in chat.deny(approval, "No.")][-1] == "session.idle"


def test_interrupt_from_another_thread() -> None:
    with Agent(model=ScriptedModel([[Say("Hello, this is a long"), Hang()]])) as agent:
        chat = agent.chat()
        reasons = []
        for event in chat.send("Hi."):
            if event.type == "assistant.message_delta":
                threading.Thread(target=chat.interrupt).start()
            if event.type == "session.idle":
                reasons.append(chat.state().last_end)
        assert reasons == ["interrupted"]


def test_errors_are_raised_where_the_call_is_made() -> None:
    with Agent(model=ScriptedModel([Say("Hello.")])) as agent:
        with pytest.raises(NotFound):
            list(agent.chat("c_nothing").resume())
        with pytest.raises(InvalidInput):
            agent.chat(nonsense=1)
        with pytest.raises(Refused):
            agent.chat().interrupt()


def test_after_the_end_nothing_hangs() -> None:
    agent = Agent(model=ScriptedModel([[Say("Hello."), Hang()]]))
    chat = agent.chat()
    events = iter(chat.send("Hi."))
    next(events)
    agent.close()
    agent.close()
    with pytest.raises(InvalidInput, match="closed"):
        next(events)
    with pytest.raises(InvalidInput, match="closed"):
        chat.status()
    assert not [thread for thread in threading.enumerate() if thread.name == "treadle-sync"]


def test_closing_ends_the_iteration_of_another_thread() -> None:
    agent = Agent(model=ScriptedModel([[Say("Hello, this is a long"), Hang()]]))
    chat = agent.chat()
    first_delta = threading.Event()
    errors: list[BaseException] = []

    def iterate() -> None:
        try:
            for event in chat.send("Hi."):
                if event.type == "assistant.message_delta":
                    first_delta.set()
        except InvalidInput as error:
            errors.append(error)

    reader = threading.Thread(target=iterate, daemon=True)
    reader.start()
    assert first_delta.wait(30)
    agent.close()
    reader.join(30)
    assert not reader.is_alive()
    assert ["closed" in str(error) for error in errors] == [True]


def test_a_call_that_meets_the_close_returns() -> None:
    """The calls come before, during and after the close: each one is carried out or refused."""
    loop = LoopThread()
    waiting = threading.Barrier(9)
    outcomes: list[str] = []

    def call() -> None:
        waiting.wait(30)
        try:
            while True:
                loop.run(asyncio.sleep(0))
        except InvalidInput as error:
            outcomes.append(str(error))

    callers = [threading.Thread(target=call, daemon=True) for _ in range(8)]
    for caller in callers:
        caller.start()
    waiting.wait(30)
    closers = [threading.Thread(target=loop.close, daemon=True) for _ in range(2)]
    for thread in closers:
        thread.start()
    for thread in (*closers, *callers):
        thread.join(30)
    assert [text for text in outcomes if "closed" in text] == outcomes
    assert len(outcomes) == 8
    assert not [thread for thread in (*closers, *callers) if thread.is_alive()]


def test_an_abandoned_iteration_may_be_collected_while_a_call_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python may collect garbage at any moment, and the end of an abandoned iteration is a call of its own."""
    loop, endings, submit = LoopThread(), list[str](), asyncio.run_coroutine_threadsafe

    async def count() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            endings.append("closed")

    def collect_and_submit(*arguments: Any) -> Any:
        gc.collect()
        return submit(*arguments)

    def call() -> None:
        iteration = loop.iterate(count())
        cycle: list[object] = [iteration]
        cycle.append(cycle)
        next(iteration)
        del cycle, iteration
        monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", collect_and_submit)
        loop.run(asyncio.sleep(0))

    gc.disable()  # until the call begins
    try:
        caller = threading.Thread(target=call, daemon=True)
        caller.start()
        caller.join(30)
    finally:
        gc.enable()
    assert not caller.is_alive()
    assert endings == ["closed"]
    loop.close()


def test_a_failing_close_still_ends_the_loop() -> None:
    class Failing:
        async def close(self) -> None:
            raise NotFound("no such thing")

    owner = LoopOwner(Failing())
    with pytest.raises(NotFound):
        owner.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "treadle-sync"]


def test_a_world_and_a_race(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    model = ScriptedModel([Call("write_file", path="a.txt", content="a\n"), Say("Done.")], follow="entries")
    with Agent(tmp_path / "chats.db", model=model, home=tmp_path / "home") as agent:
        world = agent.worlds.open(root)
        agent.chat(root=str(root), world=world.id).ask("Go.")
        assert not (root / "a.txt").exists()
        assert agent.worlds.commit(world.id).files
        assert (root / "a.txt").read_text() == "a\n"
        (root / "a.txt").unlink()
        agent.worlds.drop(world.id)
        assert agent.race("Go.", attempts=2, root=str(root)).committed
        assert (root / "a.txt").exists()
