"""Completion is verified (L-16): the model gets check messages before it may stop and cannot evade them."""

import os
import re
from pathlib import Path

import pytest

from tests.processes import running_with, unlike_any_other
from tests.scenario.kit import Recording, Stage, change, list_idle_reasons, look, of, play, until
from treadle import Chat
from treadle.adapters.models.scripted import Call, Say, ScriptedModel
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.chat.verification import FILE_NOT_WRITTEN, NOTHING_WRITTEN
from treadle.protocol import commands as c
from treadle.protocol import events as e
from treadle.protocol.content import UserEntry
from treadle.testing.checker import check

pytestmark = pytest.mark.thorough(one_of=8)

WRITE = Call("write_file", path="a.txt", content="a\n")
BROKEN = "test -e mended || { echo it is broken; exit 3; }"


def list_check_messages(events: list[e.Envelope]) -> list[str]:
    return [message.content for message in of(events, e.UserMessage) if message.source == "check"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


# -- nothing was written ----------------------------------------------------------------------------------------------


async def test_a_task_that_asks_for_changes_and_gets_none_is_told_once(stage: Stage, root: Path) -> None:
    model = Recording(ScriptedModel([Say("Fixed!"), Say("Fixed, I say."), Say("never")]))
    events = await play(stage.agent(model, builtin=True).chat(root=str(root)).send("Fix the bug in a.txt"))
    assert list_check_messages(events) == [NOTHING_WRITTEN]
    entry = model.turns()[1][-1]
    assert isinstance(entry, UserEntry)
    assert (entry.text, entry.source) == (NOTHING_WRITTEN, "check")
    assert list_idle_reasons(events) == ["done"]


async def test_a_completion_is_taken_back_when_nothing_was_written(stage: Stage, root: Path) -> None:
    finish = Call("task_complete", summary="All done.")
    events = await play(
        stage.agent([finish, WRITE, finish], builtin=True).chat(root=str(root)).send("Create a.txt with an a")
    )
    assert list_check_messages(events) == [NOTHING_WRITTEN]
    assert len(of(events, e.TaskComplete)) == 2  # both are what the model said; only the second one was accepted
    assert list_idle_reasons(events) == ["task_complete"]
    assert (root / "a.txt").read_text() == "a\n"


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("How would I fix the bug?", {}),
        ("Fix the bug", {"mode": "read-only"}),
        ("Fix the bug", {"verify": False}),
    ],
)
async def test_otherwise_it_is_not_told(stage: Stage, root: Path, task: str, options: dict[str, object]) -> None:
    events = await play(stage.agent([Say("Like this.")], builtin=True).chat(root=str(root), **options).send(task))
    assert list_check_messages(events) == []
    assert list_idle_reasons(events) == ["done"]


async def test_a_question_back_may_wait_for_its_answer(stage: Stage, root: Path) -> None:
    chat = stage.agent([Say("Which one?")], builtin=True).chat(root=str(root), interactive=True)
    assert list_check_messages(await play(chat.send("Fix the bug"))) == []


@pytest.mark.parametrize(
    ("call", "reminded"),
    [
        (WRITE, False),
        (Call("run_command", command="echo b > a.txt"), False),
        (Call("run_command", command="sed -i s/a/b/ none.txt || true"), True),  # the effect of a command is known
        (Call("run_command", command="ls -la | grep txt; git status"), True),
        (Call("edit_file", path="none.txt", old_str="a", new_str="b"), True),
        (Call("change"), False),  # a tool that Treadle does not know may do anything
        (Call("look"), True),  # unless it says that it only reads
    ],
)
async def test_what_counts_as_written(stage: Stage, root: Path, call: Call, reminded: bool) -> None:
    steps = [call, Say("Done."), Say("Yes.")]
    chat = stage.agent(steps, look, change, builtin=True).chat(root=str(root), auto_approve_commands=True)
    assert bool(list_check_messages(await play(chat.send("Change a.txt")))) == reminded


@pytest.mark.parametrize("target", ["b.txt", "a.txt"])
async def test_a_change_of_another_file_than_the_one_to_write_to_is_told_once(
    stage: Stage, root: Path, target: str
) -> None:
    chat = stage.agent([WRITE, Say("Done."), Say("Really."), Say("never")], builtin=True).chat(root=str(root))
    events = await play(chat.send(f"How many files are there? Write the number to {target}."))
    assert list_check_messages(events) == ([FILE_NOT_WRITTEN.format(file="b.txt")] if target == "b.txt" else [])
    assert list_idle_reasons(events) == ["done"]


# -- checks -----------------------------------------------------------------------------------------------------------


async def test_a_failing_check_goes_back_and_a_passing_one_ends_the_run(stage: Stage, root: Path) -> None:
    mend = Call("write_file", path="mended", content="")
    model = Recording(ScriptedModel([WRITE, Say("Done."), mend, Say("Now it is.")]))
    events = await play(stage.agent(model, builtin=True).chat(root=str(root), checks=(BROKEN,)).send("Do it"))
    first, second = of(events, e.CheckCompleted)
    assert (first.success, second.success) == (False, True)
    assert [(start.command, start.attempt) for start in of(events, e.CheckStarted)] == [(BROKEN, 1), (BROKEN, 2)]
    [check_message] = list_check_messages(events)
    assert BROKEN in check_message
    assert re.search(r"it is broken\n.*exit.* 3", check_message)
    entry = model.turns()[2][-1]
    assert isinstance(entry, UserEntry)
    assert entry.text == check_message
    assert list_idle_reasons(events) == ["done"]


@pytest.mark.thorough(one_of=8)
async def test_after_three_times_the_completion_is_refused(stage: Stage, root: Path) -> None:
    finish = Call("task_complete", summary="All done.")
    chat = stage.agent([finish] * 4 + [Say("Sorry.")], builtin=True).chat(root=str(root), checks=("false", "true"))
    events = await play(chat.send("Do it"))
    assert len(list_check_messages(events)) == 3
    assert [start.attempt for start in of(events, e.CheckStarted)] == [1, 1, 2, 2, 3, 3, 4, 4]
    [refused] = of(events, e.SessionError)
    assert refused.error_class == "checks_failed"
    assert "`false`" in refused.message
    assert "`true`" not in refused.message
    assert list_idle_reasons(events) == ["error"]
    await chat.command(c.ChangeOptions({"checks": ()}))
    assert (await chat.ask("Why?")).text == "Sorry."  # the chat stays usable


@pytest.mark.thorough(one_of=8)
async def test_all_checks_are_run_and_their_failures_told_together(stage: Stage, root: Path) -> None:
    checks = ("echo one; false", "true", "echo two; false")
    chat = stage.agent([Say("Done.")] * 4, builtin=True).chat(root=str(root), checks=checks)
    check_message = list_check_messages(await play(chat.send("Do it")))[0]
    assert "one" in check_message
    assert "two" in check_message
    assert "$ true" not in check_message


async def test_a_question_that_changed_nothing_is_not_checked(stage: Stage, root: Path) -> None:
    chat = stage.agent([Say("Because.")], builtin=True).chat(root=str(root), checks=("false",))
    events = await play(chat.send("Why does the test fail?"))
    assert of(events, e.CheckStarted) == []
    assert list_idle_reasons(events) == ["done"]


async def test_the_turn_cap_still_ends_the_run(stage: Stage, root: Path) -> None:
    chat = stage.agent([Say("Done.")] * 3, builtin=True).chat(
        root=str(root), checks=("false",), max_turns=2, on_limit="error"
    )
    events = await play(chat.send("Do it"))
    assert [failed.error_class for failed in of(events, e.SessionError)] == ["turn_cap"]
    assert len(list_check_messages(events)) == 2


async def test_a_check_needs_no_approval_and_no_permission_of_the_model(stage: Stage, root: Path) -> None:
    chat = stage.agent([Say("Done.")], builtin=True).chat(
        root=str(root), mode="confirm", tools=("read_file",), checks=("echo ran > ran",)
    )
    events = await play(chat.send("Do it"))
    assert [check_result.success for check_result in of(events, e.CheckCompleted)] == [True]
    assert (root / "ran").read_text() == "ran\n"


async def test_a_check_begins_at_the_root_whatever_the_shell_was_left_in(stage: Stage, root: Path) -> None:  # T-14
    (root / "sub").mkdir()
    steps = [Call("run_command", command="cd sub; export DEBUG=1"), Say("Done.")]
    chat = stage.agent(steps, builtin=True).chat(
        root=str(root), auto_approve_commands=True, checks=('test -d sub && test -z "$DEBUG"',)
    )
    assert [check_result.success for check_result in of(await play(chat.send("Do it")), e.CheckCompleted)] == [True]


async def test_without_a_tool_for_commands_it_is_said_that_nothing_was_checked(stage: Stage) -> None:
    events = await play(stage.agent([Say("Done.")]).chat(checks=("true",)).send("Do it"))
    [skipped] = of(events, e.CheckCompleted)
    assert (skipped.success, skipped.synthetic) == (False, "skipped")
    assert "run_command" in skipped.result
    assert list_idle_reasons(events) == ["done"]


# -- stops and crashes ------------------------------------------------------------------------------------------------


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


async def test_an_interrupt_stops_a_check_with_all_it_started(stage: Stage, root: Path) -> None:  # L-07
    nap = unlike_any_other()
    checks = (f"echo begun; exec sleep {nap}",)
    chat = stage.agent([Say("Done."), Say("Fine.")], builtin=True).chat(root=str(root), checks=checks)
    await until(chat.send("Do it"), lambda event: isinstance(event, e.ExecutionOutput))
    await chat.interrupt()
    events = await play(chat.resume(after_seq=0))
    assert list_idle_reasons(events) == ["interrupted"]
    assert [check_result.synthetic for check_result in of(events, e.CheckCompleted)] == ["stopped"]
    assert running_with(nap) == []
    await chat.command(c.ChangeOptions({"checks": ()}))
    assert (await chat.ask("Again?")).text == "Fine."


async def test_a_check_whose_worker_is_lost_is_seen_through_by_the_next(stage: Stage, root: Path) -> None:  # D-02
    gate = root / "gate"
    gate.write_text("wait\n")
    checks = ("echo ran >> runs; echo begun; until grep -q go gate; do sleep 0.02; done",)
    chat = stage.agent([Say("Done.")], builtin=True).chat(root=str(root), checks=checks)
    await until(chat.send("Do it"), lambda event: isinstance(event, e.ExecutionOutput))
    await stage.kill()
    gate.write_text("go\n")
    chat = stage.agent([Say("Done.")] * 2, builtin=True).chat(chat.id)
    events = await play(chat.resume(after_seq=0))
    assert list_idle_reasons(events) == ["done"]
    assert of(events, e.CheckCompleted)[-1].success
    assert await check(stage.store, chat.id) == []
    if isinstance(stage.store, SqliteStore):  # chats in memory end with their process, and so do their commands
        assert (root / "runs").read_text() == "ran\n"


async def test_checks_of_many_runs_have_keys_of_their_own(stage: Stage, root: Path) -> None:
    chat: Chat = stage.agent([Say("One."), Say("Two.")], builtin=True).chat(root=str(root), checks=("true",))
    events = [*await play(chat.send("Do it")), *await play(chat.send("Do it again"))]
    assert [start.check for start in of(events, e.CheckStarted)] == ["check.1", "check.2"]


# -- what a check changes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "options", "remaining_names"),
    [
        ("echo x > out.txt", {}, {"a.txt", "out.txt"}),
        ("echo x > out.txt; chmod 755 out.txt", {}, {"a.txt", "out.txt"}),  # the words are the user's own
        ("echo x > out.txt; echo A=1 > .env", {}, {"a.txt"}),
        ("echo x > out.txt", {"sensitive": {"out.txt": False}}, {"a.txt"}),
    ],
)
async def test_what_a_check_changes_is_judged(
    stage: Stage, root: Path, line: str, options: dict[str, object], remaining_names: set[str]
) -> None:  # S-16
    chat = stage.agent([WRITE, Say("Done.")], builtin=True).chat(root=str(root), checks=(line,), mode="ask", **options)
    events = await play(chat.send("Write a.txt"))
    (check_result,) = of(events, e.CheckCompleted)
    assert check_result.success  # that something is not kept says nothing about what was checked
    assert set(os.listdir(root)) == remaining_names
    assert ("It would have changed" in check_result.result) == ("out.txt" not in remaining_names)
