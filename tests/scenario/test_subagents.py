"""Sub-agents (L-23): chats that a call begins, each with a context and a world of its own. Their work becomes the
parent's as one change that can be undone; they end with the parent, and what they spend the parent spends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.scenario.family import ByTask, project
from tests.scenario.kit import Stage, of, play
from tests.trees import tree
from treadle import Agent
from treadle.adapters.models.scripted import Call, Delay, Fail, Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.library.subagents.children import list_descendants as rows_of
from treadle.ports.model import ModelInfo
from treadle.protocol import events as e
from treadle.protocol.commands import Decide
from treadle.protocol.options import Budget
from treadle.protocol.views import ChildView
from treadle.testing.faults import faults


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    new_stage = Stage(SqliteStore(tmp_path / "treadle.db"))
    yield new_stage
    await new_stage.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return project(tmp_path)


def delegate_tasks(*tasks: str, **more: object) -> Call:
    return Call("delegate", tasks=[{"task": task, **more} for task in tasks])


def writes(path: str, text: str) -> list[object]:
    return [Call("write_file", path=path, content=text), Say(f"Wrote {path}.")]


async def until(agent: Agent, chat: str, fits: Callable[[ChildView], object]) -> ChildView:
    """The first child that is like this."""
    while True:
        for row in await children(agent, chat):
            if fits(row):
                return row
        await asyncio.sleep(0.05)


async def children(agent: Agent, chat: str) -> list[ChildView]:
    return await rows_of(agent.deps, chat)  # type: ignore[arg-type]


async def test_three_children_at_once_and_the_undo_of_them(stage: Stage, root: Path) -> None:
    scripts = {
        "Do it": [delegate_tasks("Child a", "Child b", "Child c"), Say("All done.")],
        **{f"Child {x}": writes(f"{x}.new", f"{x}\n") for x in "abc"},
    }
    agent = stage.agent(ByTask(scripts), builtin=True)
    old_tree = tree(root)
    chat = agent.chat(root=root)
    events = await play(chat.send("Do it"))
    (completion,) = of(events, e.ExecutionComplete)
    assert completion.success
    assert "Wrote b.new." in completion.result
    assert {file.path for file in of(events, e.FilesChanged)[0].files} == {"a.new", "b.new", "c.new"}
    subagents = of(events, e.SubagentCompleted)
    assert [(one.number, one.reason, one.committed, one.files) for one in subagents] == [
        (n, "done", True, 1) for n in (1, 2, 3)
    ]
    for one in subagents:
        state = await agent.chat(one.chat).state()
        assert state.parent == f"{chat.id}/{completion.call}"
        assert state.options.world == one.world
    assert [row.ended for row in await children(agent, chat.id)] == ["done"] * 3
    await chat.files.undo()
    assert tree(root) == old_tree


async def test_calls_of_one_turn_run_beside_each_other(stage: Stage, root: Path) -> None:
    scripts = {
        "Do it": [[delegate_tasks("Child a"), delegate_tasks("Child b")], Say("Done.")],
        "Child a": [Call("run_command", command="true"), *writes("a.new", "a\n")],
        "Child b": writes("b.new", "b\n"),
    }
    agent = stage.agent(ByTask(scripts), builtin=True)
    events = await play(agent.chat(root=root).send("Do it"))
    kinds = [type(one.data) for one in events if isinstance(one.data, e.ExecutionStart | e.ExecutionComplete)]
    assert kinds == [e.ExecutionStart, e.ExecutionStart, e.ExecutionComplete, e.ExecutionComplete]
    assert (root / "a.new").exists()
    assert (root / "b.new").exists()


async def test_one_that_only_looks_has_no_world(stage: Stage, root: Path) -> None:
    scripts = {
        "Do it": [delegate_tasks("Look", read_only=True), Say("Done.")],
        "Look": [Call("read_file", path="a.txt"), Call("write_file", path="x", content=""), Say("It says a.")],
    }
    agent = stage.agent(ByTask(scripts), builtin=True)
    events = await play(agent.chat(root=root).send("Do it"))
    (one,) = of(events, e.SubagentCompleted)
    assert one.world == ""
    assert "It says a." in of(events, e.ExecutionComplete)[0].result
    assert not await agent.worlds.list()
    assert not (root / "x").exists()


async def test_changes_of_one_file_in_different_places_are_merged(stage: Stage, root: Path) -> None:  # W-13
    (root / "long.txt").write_text("".join(f"{number}\n" for number in range(20)))
    old_tree = tree(root)
    scripts = {
        "Do it": [delegate_tasks("Child 1", "Child 2"), Say("Done.")],
        "Child 1": [Call("run_command", command="sed -i s/^2$/two/ long.txt"), Say("One.")],
        "Child 2": [
            Call("read_file", path="long.txt"),
            Call("edit_file", path="long.txt", old_str="18\n", new_str="eighteen\n"),
            Say("Two."),
        ],
    }
    agent = stage.agent(ByTask(scripts), builtin=True)
    chat = agent.chat(root=root, mode="auto-edit")
    events = await play(chat.send("Do it"))
    assert [each.committed for each in of(events, e.SubagentCompleted)] == [True, True]
    (completion,) = of(events, e.ExecutionComplete)
    assert "merged with what others changed meanwhile: long.txt" in completion.result
    assert (root / "long.txt").read_text().split()[2::16] == ["two", "eighteen"]
    await chat.files.undo()
    assert tree(root) == old_tree


async def test_a_conflict_is_said_and_nothing_of_that_child_is_committed(stage: Stage, root: Path) -> None:
    scripts = {
        "Do it": [delegate_tasks("Child 1", "Child 2"), Say("Done.")],
        "Child 1": [Call("run_command", command="echo one > a.txt"), Say("One.")],
        "Child 2": [Call("run_command", command="echo two > a.txt; echo x > other.txt"), Say("Two.")],
    }
    agent = stage.agent(ByTask(scripts), builtin=True)
    events = await play(agent.chat(root=root, mode="autopilot", max_continuations=0).send("Do it"))
    first, second = of(events, e.SubagentCompleted)
    assert (first.committed, second.committed) == (True, False)
    assert (root / "a.txt").read_text() == "one\n"
    assert not (root / "other.txt").exists()
    assert "conflict: a.txt" in of(events, e.ExecutionComplete)[0].result
    assert of(events, e.WorkspaceConflict)[0].conflicts[0].path == "a.txt"
    assert agent.workspace_of((await agent.worlds.get(second.world)).project).read_bytes("a.txt") == b"two\n"


async def test_what_children_spend_the_parent_spends(stage: Stage, root: Path) -> None:
    info = ModelInfo("scripted", "family", usd_per_million_input=1_000, usd_per_million_output=1_000)
    scripts = {
        "Do it": [delegate_tasks("Child a", "Child b"), Say("Done.")],
        "Child a": [Say("Cheap.")],
        "Child b": [Say("Cheap.")],
    }
    agent = stage.agent(ByTask(scripts, info), builtin=True)
    chat = agent.chat(root=root, chat_budget=Budget(usd=1_000.0, tool_calls=40), verify=False)
    events = await play(chat.send("Do it"))
    subagents = of(events, e.SubagentCompleted)
    own_usd = sum(one.usage.usd for one in of(events, e.AssistantMessage) if one.usage is not None)
    state = await chat.state()
    assert sum(one.usage.usd for one in subagents) > 0
    assert state.totals.usage.usd == pytest.approx(own_usd + sum(one.usage.usd for one in subagents))
    budget = (await agent.chat(subagents[0].chat).state()).options.chat_budget
    assert 0 < budget.usd < 500
    assert budget.tool_calls == 19, "one is used, and there are two of them"


async def test_depth_and_number_are_limited(stage: Stage, root: Path) -> None:
    scripts = {
        "Do it": [delegate_tasks("Child a", "Child b", "Child c"), delegate_tasks("Child a"), Say("Done.")],
        "Child a": [delegate_tasks("Grandchild"), Say("Child.")],
        "Grandchild": [delegate_tasks("Too deep"), Say("Grandchild.")],
    }
    agent = stage.agent(ByTask(scripts), builtin=True)
    chat = agent.chat(root=root, subagents=2, verify=False)
    events = await play(chat.send("Do it"))
    refused, completion = of(events, e.ExecutionComplete)
    assert "At most 2 sub-agents" in refused.error
    assert completion.success
    rows = await children(agent, chat.id)
    assert [(row.depth, row.ended) for row in rows] == [(1, "done"), (2, "done")]
    deepest = await agent.chat(rows[1].chat).events()
    assert "There is no tool 'delegate'" in of(deepest, e.ExecutionComplete)[0].error


async def test_interrupting_the_parent_ends_the_children(stage: Stage, root: Path) -> None:
    stage.replayed = False  # an interrupt races with what the children do
    scripts = {
        "Do it": [delegate_tasks("Child a", "Child b"), Say("Never.")],
        "Child a": [Call("run_command", command="sleep 300"), Say("Never.")],
        "Child b": writes("b.new", "b\n"),
    }
    agent = stage.agent(ByTask(scripts), builtin=True)
    chat = await agent.chat(root=root)

    async def when_one_is_done() -> None:
        await until(agent, chat.id, lambda row: row.ended == "done")
        await chat.interrupt()

    async with asyncio.timeout(60):
        events, _ = await asyncio.gather(play(chat.send("Do it")), when_one_is_done())
    assert of(events, e.RunEnd)[0].reason == "interrupted"
    assert [row.ended for row in await children(agent, chat.id)] == ["interrupted", "done"]
    assert len(of(events, e.SubagentCompleted)) == 2
    assert not (root / "b.new").exists()


async def test_an_approval_in_a_child_is_answered_there_and_the_parent_goes_on(stage: Stage, root: Path) -> None:
    """By a worker that may drive one chat at a time (A-08): the parent takes no place while it waits."""
    stage.replayed = False  # the answer comes from elsewhere while the parent works
    scripts = {
        "Do it": [delegate_tasks("Child a"), Say("Done.")],
        "Child a": [Call("write_file", path=".env", content="X=1\n"), Say("Wrote it.")],
    }
    agent = stage.agent(ByTask(scripts), builtin=True, concurrency=1)
    chat = await agent.chat(root=root, interactive=True)

    async def answer_child() -> None:
        child = agent.chat((await until(agent, chat.id, lambda row: row.waits)).chat)
        (action,) = await child.actions()
        await child.command(Decide(action.action, "allow", action.hash))

    async with asyncio.timeout(60):
        events, _ = await asyncio.gather(play(chat.send("Do it")), answer_child())
    assert of(events, e.SubagentCompleted)[0].committed
    assert (root / ".env").read_text() == "X=1\n"
    live_output = "".join(one.text for one in of(events, e.ExecutionOutput))
    assert "waits for an answer: write_file" in live_output


async def test_a_killed_worker_s_children_are_found_again(stage: Stage, root: Path) -> None:
    stage.replayed = False  # the first worker dies in the middle
    scripts = {
        "Do it": [delegate_tasks("Child a", "Child b"), Say("Done.")],
        "Child a": writes("a.new", "a\n"),
        "Child b": [[Delay(1.0), Call("write_file", path="b.new", content="b\n")], Say("Wrote it.")],
    }
    agent = stage.agent(ByTask(scripts), builtin=True)
    chat = agent.chat(root=root)
    await chat.send("Do it")
    async with asyncio.timeout(60):
        await until(agent, chat.id, lambda row: row.ended == "done")
    await stage.kill()
    second = stage.agent(ByTask(scripts), builtin=True)
    again = second.chat(chat.id)
    async with asyncio.timeout(60):
        events = await play(again.resume())
    assert len(of(events, e.SubagentCompleted)) == 2
    assert len(await second.chats()) == 3, "a parent and two children, none twice"
    assert (root / "a.new").read_text() == "a\n"
    for one in of(events, e.SubagentCompleted):
        assert len(of(await second.chat(one.chat).events(), e.UserMessage)) == 1


async def test_a_parent_that_may_only_read_has_children_that_only_read(stage: Stage, root: Path) -> None:
    scripts = {
        "Do it": [delegate_tasks("Write"), Say("Done.")],
        "Write": [Call("write_file", path="x", content=""), Say("I may not.")],
    }
    agent = stage.agent(ByTask(scripts), builtin=True)
    events = await play(agent.chat(root=root, mode="read-only").send("Do it"))
    (one,) = of(events, e.SubagentCompleted)
    assert one.world == ""
    assert "I may not." in of(events, e.ExecutionComplete)[0].result
    assert not (root / "x").exists()


async def test_a_worker_that_leaves_does_not_wait_for_a_parent_that_waits(stage: Stage, root: Path) -> None:
    """Fault 17: the answer that it waits for may take days; the next worker waits on."""
    stage.replayed = False  # it was cut off
    scripts = {
        "Do it": [delegate_tasks("Child a"), Say("Done.")],
        "Child a": [Call("write_file", path=".env", content="X=1\n"), Say("Wrote it.")],
    }
    agent = stage.agent(ByTask(scripts), builtin=True)
    chat = await agent.chat(root=root, interactive=True)
    await chat.send("Do it")
    async with asyncio.timeout(60):
        child = (await until(agent, chat.id, lambda row: row.waits)).chat
        await agent.worker.drain(3_600)
    second = stage.agent(ByTask(scripts), builtin=True)
    (action,) = await second.chat(child).actions()
    await second.chat(child).approve(action)
    async with asyncio.timeout(60):
        events = await play(second.chat(chat.id).resume())
    assert of(events, e.RunEnd)[0].reason == "done"
    assert (root / ".env").exists()


async def test_a_child_whose_commit_is_refused_hides_nothing_of_the_others(stage: Stage, root: Path) -> None:
    """The disk is full when the second one is committed: the changes of the first and the third are recorded and
    can be undone, and the cost of all of them is spent (law 1, L-23)."""
    stage.replayed = False  # the fault strikes once
    scripts = {
        "Do it": [delegate_tasks("Child a", "Child b", "Child c"), Say("All done.")],
        **{f"Child {x}": writes(f"{x}.new", f"{x}\n") for x in "abc"},
    }
    agent = stage.agent(ByTask(scripts), builtin=True)
    old_tree = tree(root)
    chat = agent.chat(root=root)
    with faults("full@transaction.ready#5"):
        events = await play(chat.send("Do it"))
    (completion,) = of(events, e.ExecutionComplete)
    assert "[its changes could not be committed: " in completion.result
    assert {file.path for event in of(events, e.FilesChanged) for file in event.files} == {"a.new", "c.new"}
    assert [one.committed for one in of(events, e.SubagentCompleted)] == [True, False, True]
    assert {name for name in tree(root) if name.endswith(".new")} == {"a.new", "c.new"}
    await chat.files.undo()
    assert tree(root) == old_tree


def forever(name: str) -> list[object]:
    return [Call("grep", pattern=f"{name}{n}") for n in range(200)]


async def test_parallel_calls_share_what_is_left_of_the_budget(stage: Stage, root: Path) -> None:  # L-11, fault 30
    """Four calls at once: each child has an equal part, and all together stay within the parent's budget but for the
    last call of each."""
    names = [f"Child {x}" for x in "abcd"]
    scripts = {
        "Do it": [[delegate_tasks(name, read_only=True) for name in names], Say("Done.")],
        **{name: forever(name) for name in names},
    }
    agent = stage.agent(ByTask(scripts), builtin=True)
    chat = agent.chat(root=root, chat_budget=Budget(tokens=60_000), verify=False, max_turns=500)
    events = await play(chat.send("Do it"))
    subagents = of(events, e.SubagentCompleted)
    assert [one.reason for one in subagents] == ["budget"] * 4
    budgets = [(await agent.chat(one.chat).state()).options.chat_budget.tokens for one in subagents]
    assert sum(budgets) <= 60_000
    spent = (await chat.state()).totals.usage.tokens
    logs = [await agent.chat(one.chat).events() for one in subagents]
    longest = max(turn.usage.tokens for log in logs for turn in of(log, e.AssistantMessage))
    assert spent <= 60_000 + 4 * longest


async def test_the_number_of_sub_agents_counts_for_the_chat(stage: Stage, root: Path) -> None:  # L-23
    """Two calls in one turn with two tasks each, where three sub-agents may be at work: the second call is refused."""
    scripts = {
        "Do it": [
            [
                delegate_tasks("Child a", "Child b", read_only=True),
                delegate_tasks("Child c", "Child d", read_only=True),
            ],
            delegate_tasks("Child c", "Child d", read_only=True),
            Say("Done."),
        ],
        **{f"Child {x}": [Say(f"Looked at {x}.")] for x in "abcd"},
    }
    agent = stage.agent(ByTask(scripts), builtin=True)
    chat = agent.chat(root=root, subagents=3)
    events = await play(chat.send("Do it"))
    first, second, third = of(events, e.ExecutionComplete)
    assert first.success
    assert not second.success
    assert "At most 3 sub-agents of this chat may be at work at once; 2 of other calls" in second.error
    assert third.success


async def test_the_work_of_a_failed_child_is_not_committed(stage: Stage, root: Path) -> None:  # L-23
    """Its world keeps the work; the changes of the child beside it are committed."""
    scripts = {
        "Do it": [delegate_tasks("Child a", "Child b"), Say("Done.")],
        "Child a": [Call("write_file", path="a.new", content="a\n"), Fail("bad_request", times=0)],
        "Child b": writes("b.new", "b\n"),
    }
    agent = stage.agent(ByTask(scripts), builtin=True)
    events = await play(agent.chat(root=root).send("Do it"))
    failed, well = of(events, e.SubagentCompleted)
    assert [(one.reason, one.committed) for one in (failed, well)] == [("error", False), ("done", True)]
    assert {name for name in tree(root) if name.endswith(".new")} == {"b.new"}
    assert [file.path for file in of(events, e.FilesChanged)[0].files] == ["b.new"]
    assert f"[not committed, in world {failed.world}]" in of(events, e.ExecutionComplete)[0].result
    assert agent.workspace_of((await agent.worlds.get(failed.world)).project).read_bytes("a.new") == b"a\n"


async def test_a_custom_agent_has_no_tool_that_its_parent_lacks(  # L-23, E-03
    stage: Stage, root: Path, tmp_path: Path
) -> None:
    file = tmp_path / "home" / "agents" / "writer.md"
    file.parent.mkdir(parents=True)
    file.write_text("---\nname: writer\ndescription: Writes.\ntools: Read, Write\n---\nYou write.\n")
    scripts = {
        "Do it": [delegate_tasks("Child a", agent="writer"), Say("Done.")],
        "Child a": [Call("write_file", path="a.new", content="a\n"), Say("I cannot write.")],
    }
    agent = stage.agent(ByTask(scripts), builtin=True, home=tmp_path / "home")
    events = await play(agent.chat(root=root, tools=("delegate", "read_file", "grep_search")).send("Do it"))
    (one,) = of(events, e.SubagentCompleted)
    options = (await agent.chat(one.chat).state()).options
    assert (options.agent, options.tools) == ("writer", ("read_file",))
    assert "There is no tool 'write_file'" in of(await agent.chat(one.chat).events(), e.ExecutionComplete)[0].error
    assert not (root / "a.new").exists()
