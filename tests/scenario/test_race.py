"""Races (L-22): several attempts at one task, each in a world of its own; one is committed, once, even if processes
are killed on the way, and can be taken back."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.scenario.command_line import CommandLine
from tests.scenario.family import project
from tests.scenario.kit import Stage
from tests.trees import tree
from treadle import Agent
from treadle.adapters.models.scripted import Call, Delay, Say, ScriptedModel
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.ports.model import Model
from treadle.protocol.options import Budget
from treadle.testing.faults import faults

SOLVED = [Call("write_file", path="answer.txt", content="42\n"), Say("Done.")]
LONG = [Call("write_file", path="answer.txt", content="42\n\n\n\n"), Say("Done.")]
WRONG = [Call("write_file", path="answer.txt", content="41\n"), *(Say(f"Done, I said {n}.") for n in range(4))]
CHECK = "grep -q 42 answer.txt"


class NamedModels:
    """Models by their names."""

    def __init__(self, **steps: object) -> None:
        self._models = {name: ScriptedModel(one) for name, one in steps.items()}  # type: ignore[arg-type]

    def get(self, ref: str) -> Model:
        return self._models[ref]

    async def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    new_stage = Stage(SqliteStore(tmp_path / "treadle.db"))
    yield new_stage
    await new_stage.close()


def agent_of(stage: Stage, **steps: object) -> Agent:
    new_agent = Agent(stage.store, models=NamedModels(**steps), retry_base_s=0.0)
    stage._agents.append(new_agent)
    return new_agent


async def test_the_first_to_pass_wins_and_the_others_are_stopped(stage: Stage, tmp_path: Path) -> None:
    stage.replayed = False  # one is interrupted at an arbitrary point
    root = project(tmp_path)
    old_tree = tree(root)
    slow = [[Delay(300.0), Say("Never.")]]
    agent = agent_of(stage, wrong=WRONG, right=SOLVED, slow=slow)
    running = agent.race("Write the answer", models=("wrong", "right", "slow"), check=CHECK, root=root)
    states = [[row.status for row in rows] async for rows in running]
    result = running.result
    assert states[-1] == ["error", "idle", "idle"] or states[-1][1:] == ["idle", "idle"]
    assert result.committed
    assert result.winner == 2
    assert "the first to pass the check" in result.text
    assert [one.passed for one in result.attempts] == [False, True, False]
    assert (root / "answer.txt").read_text() == "42\n"
    labels = [(await agent.chat(one.chat).state()).options.labels for one in result.attempts]
    assert labels == [("race", "lost"), ("race", "won"), ("race", "lost")], "in the log of all"
    await agent.chat(result.chat).files.undo()
    assert tree(root) == old_tree


async def test_without_a_check_the_smallest_change_wins(stage: Stage, tmp_path: Path) -> None:
    root = project(tmp_path)
    agent = agent_of(stage, long=LONG, short=SOLVED, none=[Say("Nothing to do.")])
    result = await agent.race("The answer", models=("long", "short", "none"), root=root, verify=False)
    assert (result.winner, result.committed) == (2, True)
    assert "the smallest change" in result.text


async def test_a_judge_chooses(stage: Stage, tmp_path: Path) -> None:
    root = project(tmp_path)
    verdict = Say(json.dumps({"choice": 1, "why": "It has room."}))
    agent = agent_of(stage, long=LONG, short=SOLVED, judge=[verdict])
    result = await agent.race("The answer", models=("long", "short"), judge="judge", check=CHECK, root=root)
    assert result.winner == 1
    assert "the judge's choice: It has room." in result.text
    assert [one.title for one in result.attempts][-1] == "judge"


@pytest.mark.thorough(one_of=8)
async def test_without_a_winner_nothing_is_committed(stage: Stage, tmp_path: Path) -> None:
    root = project(tmp_path)
    old_tree = tree(root)
    agent = agent_of(stage, wrong=WRONG)
    result = await agent.race("Write the answer", attempts=2, models=("wrong",), check=CHECK, root=root)
    assert (result.winner, result.committed) == (0, False)
    assert "none of them passed the check" in result.text
    assert tree(root) == old_tree
    assert len(await agent.worlds.list()) == 2, "they stay to be looked at"
    (root / "answer.txt").write_text("41\n")
    idle = await agent.race("Write the answer", attempts=1, models=("wrong",), check="true", root=root)
    assert (idle.winner, "the attempts that passed the check changed nothing" in idle.text) == (0, True)


def script(content: str, answers: int) -> str:
    args = f'{{ path = "answer.txt", content = "{content}\\n" }}'
    return f'[[turn]]\ncall = [{{ name = "write_file", args = {args} }}]\n' + '[[turn]]\ntext = "Done."\n' * answers


@pytest.mark.thorough(one_of=8)
def test_a_race_of_four_killed_three_times_has_one_winner_committed_once(cli: CommandLine) -> None:
    right, wrong = cli.script(script("42", 1), "right.toml"), cli.script(script("41", 4), "wrong.toml")
    old_tree = tree(cli.project)
    begin = ("race", "Write the answer", "--model", ",".join((wrong, right, wrong, right)), "--check", CHECK, "--all")
    first = cli(*begin, "--json", env=make_kill_env("subagents.begun#2"))
    assert first.code == -9, first.err
    (chat,) = (row["chat"] for row in cli("chats", "--json").lines if row["title"].startswith("Race:"))
    for point in ("race.rested", "transaction.put"):
        again = cli("race", "--chat", chat, "--json", env=make_kill_env(point))
        assert again.code == -9, (point, again.err)
    last = cli("race", "--chat", chat, "--json")
    assert last.code == 0, last.err
    result = last.lines[-1]
    assert result["type"] == "race.result"
    assert result["winner"] in (2, 4)
    assert [one["passed"] for one in result["attempts"]] == [False, True, False, True]
    assert (cli.project / "answer.txt").read_text() == "42\n"
    events = cli("export", chat).lines
    kinds = [event["type"] for event in events]
    assert kinds.count("workspace.files_changed") == 1
    assert kinds.count("subagent.completed") == 4
    assert cli("undo", chat).code == 0
    assert tree(cli.project) == old_tree


def make_kill_env(point: str) -> dict[str, str]:
    return {"TREADLE_FAULTS": f"kill@{point}"}


async def test_a_winner_that_cannot_be_committed_costs_what_it_cost(stage: Stage, tmp_path: Path) -> None:
    """The disk is full at the commit: the attempts, their cost and the winner's world are told all the same."""
    stage.replayed = False  # the fault strikes once
    root = project(tmp_path)
    old_tree = tree(root)
    agent = agent_of(stage, right=SOLVED)
    with faults("full@transaction.ready#2"):
        result = await agent.race("The answer", models=("right",), attempts=1, check=CHECK, root=root)
    assert not result.committed
    assert "could not be committed" in result.text
    assert tree(root) == old_tree
    (one,) = result.attempts
    assert one.usage.tokens > 0
    assert (await agent.chat(result.chat).state()).totals.usage.tokens == one.usage.tokens


async def test_the_judge_draws_on_the_budget_of_the_race(stage: Stage, tmp_path: Path) -> None:  # L-11, L-22
    root = project(tmp_path)
    verdict = Say(json.dumps({"choice": 1, "why": "It has room."}))
    agent = agent_of(stage, long=LONG, short=SOLVED, judge=[verdict])
    result = await agent.race(
        "The answer",
        models=("long", "short"),
        judge="judge",
        root=root,
        chat_budget=Budget(tokens=90_000),
        verify=False,
    )
    budgets = [(await agent.chat(one.chat).state()).options.chat_budget.tokens for one in result.attempts]
    assert len(budgets) == 3
    assert sum(budgets) <= 90_000
