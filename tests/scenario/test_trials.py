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
    made = Stage(SqliteStore(tmp_path / "treadle.db"))
    yield made
    await made.close()


@pytest.fixture
async def machines(tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(Shared())
    yield made
    await made.close()
    for home in ("here", "there"):
        await SupervisedCommands(tmp_path / home / "commands").close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


def ran(command: str) -> Call:
    return Call("run_command", command=command)


async def test_a_trial_is_seen_while_it_runs(stage: Stage, root: Path) -> None:
    agent = stage.agent([ran("echo begun; sleep 0.3; echo x > made.txt"), Say("Done.")], builtin=True)
    seen = await play(agent.chat(root=str(root), interactive=True).send("Go."))
    told = types(seen, live=True)
    (trial,), (started,), (done,) = of(seen, e.TrialStart), of(seen, e.ExecutionStart), of(seen, e.ExecutionComplete)
    assert told.index("tool.trial_start") < told.index("tool.execution_output") < told.index("tool.execution_start")
    assert told.index("checkpoint.created") < told.index("tool.trial_start")
    assert (trial.name, trial.args_summary, trial.arguments) == (started.name, started.args_summary, started.arguments)
    assert trial.plan["key"] == started.plan["key"]  # what was tried is what is committed
    assert done.duration_ms >= 300
    view = SimpleView()
    words = [word for envelope in seen for _, word in view.show(envelope)]
    assert [type(word) for word in words].count(ToolStart) == 1


async def test_the_time_of_a_trial_counts_and_the_wait_for_a_person_does_not(stage: Stage, root: Path) -> None:
    agent = stage.agent([ran("sleep 0.3; echo x > made.txt"), Say("Done.")], builtin=True)
    chat = agent.chat(root=str(root), interactive=True, mode="review")
    await play(chat.send("Go."))
    (call,) = (await chat.state()).calls
    assert call.tried_ms >= 300
    assert not call.trial_began_ms
    (action,) = await chat.actions()
    seen = await play(chat.approve(action))
    (done,) = of(seen, e.ExecutionComplete)
    assert done.duration_ms >= 300
    assert not of(seen, e.TrialStart)  # the one of before is taken up
    assert (root / "made.txt").exists()


async def test_a_call_that_is_refused_after_its_trial_took_its_time(stage: Stage, root: Path) -> None:
    rules: dict[str, Any] = {"sensitive": {"kept.txt": False}, "mode": "ask", "interactive": False}
    agent = stage.agent([ran("sleep 0.3; echo x > kept.txt"), Say("Done.")], builtin=True)
    seen = await play(agent.chat(root=str(root), **rules).send("Go."))
    (done,) = of(seen, e.ExecutionComplete)
    assert done.duration_ms >= 300
    assert not (root / "kept.txt").exists()


async def test_reads_do_not_wait_for_the_trial_behind_them(stage: Stage, root: Path) -> None:  # L-06
    (root / "a.txt").write_text("a\n")
    both = [Call("read_file", path="a.txt"), ran("echo x > b.txt")]
    agent = stage.agent([both, Say("Done.")], builtin=True)
    told = types(await play(agent.chat(root=str(root), interactive=True).send("Go.")))
    assert told.index("tool.execution_complete") < told.index("tool.trial_start")


def worker(stage: Stage, home: Path, *steps: Any) -> Agent:
    return stage.agent([*steps, Say("Done.")], builtin=True, home=seed(home))


async def begun(stage: Stage, home: Path, root: Path, command: str, **options: Any) -> ChatId:
    """A chat whose worker is lost while its command is tried."""
    chat = worker(stage, home, ran(command)).chat(root=str(root), interactive=True, **options)
    await until(chat.send("Go."), lambda event: isinstance(event, e.ExecutionOutput))
    await stage.kill()
    return chat.id


async def test_a_trial_with_network_is_never_repeated_elsewhere(machines: Stage, tmp_path: Path, root: Path) -> None:
    chat_id = await begun(machines, tmp_path / "here", root, "echo begun; sleep 60", network=True)
    chat = worker(machines, tmp_path / "there").chat(chat_id)
    seen = await play(chat.resume())
    (done,) = of(seen, e.ExecutionComplete)
    assert (done.synthetic, of(seen, e.TrialStart)) == ("unknown", [])
    assert "what it did there is not known" in (await results(chat))[0]


async def test_a_trial_without_network_is_made_again_elsewhere(machines: Stage, tmp_path: Path, root: Path) -> None:
    line = "echo begun; [ -e b.txt ] || sleep 60; echo x > a.txt"
    chat_id = await begun(machines, tmp_path / "here", root, line)
    (root / "b.txt").write_text("b\n")
    seen = await play(worker(machines, tmp_path / "there").chat(chat_id).resume())
    (done,) = of(seen, e.ExecutionComplete)
    assert done.success
    assert len(of(seen, e.TrialStart)) == 1
    assert (root / "a.txt").exists()


async def test_a_trial_with_network_is_taken_up_here(machines: Stage, tmp_path: Path, root: Path) -> None:
    line = "echo begun; sleep 1; echo x > a.txt"
    chat_id = await begun(machines, tmp_path / "here", root, line, network=True)
    seen = await play(worker(machines, tmp_path / "here").chat(chat_id).resume())
    (done,) = of(seen, e.ExecutionComplete)
    assert done.success
    assert not of(seen, e.TrialStart)
    assert (root / "a.txt").exists()


async def test_a_trial_with_network_that_was_killed_here_is_unknown(
    machines: Stage, tmp_path: Path, root: Path
) -> None:
    chat_id = await begun(machines, tmp_path / "here", root, "echo begun; sleep 60", network=True)
    commands = SupervisedCommands(tmp_path / "here" / "commands")
    for known in await commands.list_commands(chat_id):
        await commands.prevent(chat_id, CallKey(known.call))
    seen = await play(worker(machines, tmp_path / "here").chat(chat_id).resume())
    (done,) = of(seen, e.ExecutionComplete)
    assert (done.synthetic, of(seen, e.TrialStart)) == ("unknown", [])
