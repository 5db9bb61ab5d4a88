"""A command that is tried is seen: that it begins is in the log before it does, its output streams, its time counts,
and what could use the network is never repeated (D-02, W-09)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.homes import seed
from tests.scenario.kit import Stage, of, play, results, types, until
from treadle import Agent, SimpleView
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.sandbox.supervisor.commands import SupervisedCommands
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.base.types import CallKey, ChatId
from treadle.protocol import events as e
from treadle.protocol.simple import ToolStart


class Shared(MemoryStore):
    """A store that workers on several machines use, each with a home of its own."""

    shared = True


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    new_stage = Stage(SqliteStore(tmp_path / "treadle.db"))
    yield new_stage
    await new_stage.close()


@pytest.fixture
async def machines(tmp_path: Path) -> AsyncIterator[Stage]:
    new_stage = Stage(Shared())
    yield new_stage
    await new_stage.close()
    for home in ("here", "there"):
        await SupervisedCommands(tmp_path / home / "commands").close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    return project


def ran(command: str) -> Call:
    return Call("run_command", command=command)


async def test_a_trial_is_seen_while_it_runs(stage: Stage, root: Path) -> None:
    agent = stage.agent([ran("echo begun; sleep 0.3; echo x > made.txt"), Say("Done.")], builtin=True)
    events = await play(agent.chat(root=str(root), interactive=True).send("Go."))
    kinds = types(events, live=True)
    (trial,), (start,), (completion,) = (
        of(events, e.TrialStart),
        of(events, e.ExecutionStart),
        of(events, e.ExecutionComplete),
    )
    assert kinds.index("tool.trial_start") < kinds.index("tool.execution_output") < kinds.index("tool.execution_start")
    assert kinds.index("checkpoint.created") < kinds.index("tool.trial_start")
    assert (trial.name, trial.args_summary, trial.arguments) == (start.name, start.args_summary, start.arguments)
    assert trial.plan["key"] == start.plan["key"]  # the tried effect is the committed one
    assert completion.duration_ms >= 300
    view = SimpleView()
    words = [word for envelope in events for _, word in view.show(envelope)]
    assert [type(word) for word in words].count(ToolStart) == 1


async def test_the_time_of_a_trial_counts_and_the_wait_for_a_person_does_not(stage: Stage, root: Path) -> None:
    agent = stage.agent([ran("sleep 0.3; echo x > made.txt"), Say("Done.")], builtin=True)
    chat = agent.chat(root=str(root), interactive=True, mode="review")
    await play(chat.send("Go."))
    (call,) = (await chat.state()).calls
    assert call.tried_ms >= 300
    assert not call.trial_began_ms
    (action,) = await chat.actions()
    events = await play(chat.approve(action))
    (completion,) = of(events, e.ExecutionComplete)
    assert completion.duration_ms >= 300
    assert not of(events, e.TrialStart)  # the one of before is taken up
    assert (root / "made.txt").exists()


async def test_a_call_that_is_refused_after_its_trial_took_its_time(stage: Stage, root: Path) -> None:
    rules: dict[str, Any] = {"sensitive": {"kept.txt": False}, "mode": "ask", "interactive": False}
    agent = stage.agent([ran("sleep 0.3; echo x > kept.txt"), Say("Done.")], builtin=True)
    events = await play(agent.chat(root=str(root), **rules).send("Go."))
    (completion,) = of(events, e.ExecutionComplete)
    assert completion.duration_ms >= 300
    assert not (root / "kept.txt").exists()


async def test_reads_do_not_wait_for_the_trial_behind_them(stage: Stage, root: Path) -> None:  # L-06
    (root / "a.txt").write_text("a\n")
    both = [Call("read_file", path="a.txt"), ran("echo x > b.txt")]
    agent = stage.agent([both, Say("Done.")], builtin=True)
    kinds = types(await play(agent.chat(root=str(root), interactive=True).send("Go.")))
    assert kinds.index("tool.execution_complete") < kinds.index("tool.trial_start")


def worker(stage: Stage, home: Path, *steps: Any) -> Agent:
    return stage.agent([*steps, Say("Done.")], builtin=True, home=seed(home))


async def begin_trial(stage: Stage, home: Path, root: Path, command: str, **options: Any) -> ChatId:
    """A chat whose worker is lost while its command is tried."""
    chat = worker(stage, home, ran(command)).chat(root=str(root), interactive=True, **options)
    await until(chat.send("Go."), lambda event: isinstance(event, e.ExecutionOutput))
    await stage.kill()
    return chat.id


async def test_a_trial_with_network_is_never_repeated_elsewhere(machines: Stage, tmp_path: Path, root: Path) -> None:
    chat_id = await begin_trial(machines, tmp_path / "here", root, "echo begun; sleep 60", network=True)
    chat = worker(machines, tmp_path / "there").chat(chat_id)
    events = await play(chat.resume())
    (completion,) = of(events, e.ExecutionComplete)
    assert (completion.synthetic, of(events, e.TrialStart)) == ("unknown", [])
    assert "what it did there is not known" in (await results(chat))[0]


async def test_a_trial_without_network_is_made_again_elsewhere(machines: Stage, tmp_path: Path, root: Path) -> None:
    line = "echo begun; [ -e b.txt ] || sleep 60; echo x > a.txt"
    chat_id = await begin_trial(machines, tmp_path / "here", root, line)
    (root / "b.txt").write_text("b\n")
    events = await play(worker(machines, tmp_path / "there").chat(chat_id).resume())
    (completion,) = of(events, e.ExecutionComplete)
    assert completion.success
    assert len(of(events, e.TrialStart)) == 1
    assert (root / "a.txt").exists()


async def test_a_trial_with_network_is_taken_up_here(machines: Stage, tmp_path: Path, root: Path) -> None:
    line = "echo begun; sleep 1; echo x > a.txt"
    chat_id = await begin_trial(machines, tmp_path / "here", root, line, network=True)
    events = await play(worker(machines, tmp_path / "here").chat(chat_id).resume())
    (completion,) = of(events, e.ExecutionComplete)
    assert completion.success
    assert not of(events, e.TrialStart)
    assert (root / "a.txt").exists()


async def test_a_trial_with_network_that_was_killed_here_is_unknown(
    machines: Stage, tmp_path: Path, root: Path
) -> None:
    chat_id = await begin_trial(machines, tmp_path / "here", root, "echo begun; sleep 60", network=True)
    commands = SupervisedCommands(tmp_path / "here" / "commands")
    for command in await commands.list_commands(chat_id):
        await commands.prevent(chat_id, CallKey(command.call))
    events = await play(worker(machines, tmp_path / "here").chat(chat_id).resume())
    (completion,) = of(events, e.ExecutionComplete)
    assert (completion.synthetic, of(events, e.TrialStart)) == ("unknown", [])
