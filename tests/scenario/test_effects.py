"""The effect of a command on a project is a transaction: shown before it is done, done once, refused where another
writer was faster, and gone where the run was stopped (W-01, W-07 to W-09, L-07, L-09)."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from tests.scenario.kit import Stage, of, play, types, until
from tests.scenario.scenes.files import repository
from tests.trees import tree
from treadle.adapters.models.scripted import Call, Say, ScriptedModel
from treadle.adapters.stores.memory import MemoryStore
from treadle.protocol import events as e

pytestmark = pytest.mark.thorough(one_of=8)

REVIEW = {"mode": "review", "interactive": True}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    (project / "notes.txt").write_text("one\ntwo\n")
    return project


def ran(command: str, **more: object) -> Call:
    return Call("run_command", command=command, **more)


# -- review (W-09) ----------------------------------------------------------------------------------------------------


async def test_the_approval_shows_the_effect_and_is_for_exactly_that(stage: Stage, root: Path) -> None:
    chat = stage.agent([ran("sed -i s/two/2/ notes.txt; rm -f gone; date +%N > new"), Say("Done.")], builtin=True).chat(
        root=str(root), **REVIEW
    )
    old_tree = tree(root)
    await play(chat.send("Go."))
    (action,) = await chat.actions()
    assert "-two" in action.text
    assert "+2" in action.text
    assert "new" in action.text
    assert tree(root) == old_tree, "nothing has happened yet"
    events = await play(chat.approve(action))
    assert (root / "notes.txt").read_text() == "one\n2\n"
    stamp = (root / "new").read_text().strip()
    assert stamp in action.text, "what was shown was done: it did not run again"
    (change,) = of(events, e.FilesChanged)
    assert {file.path for file in change.files} == {"notes.txt", "new"}
    assert change.source == "view"


async def test_a_refusal_discards_it(stage: Stage, root: Path) -> None:
    chat = stage.agent([ran("rm -rf notes.txt"), Say("Fine.")], builtin=True).chat(root=str(root), **REVIEW)
    old_tree = tree(root)
    await play(chat.send("Go."))
    (action,) = await chat.actions()
    events = await play(chat.deny(action, "keep my notes"))
    assert tree(root) == old_tree
    assert "keep my notes" in of(events, e.ExecutionComplete)[0].error
    assert not of(events, e.FilesChanged)


async def test_a_wholesale_clean_up_is_refused_and_then_allowed(stage: Stage, root: Path) -> None:
    (root / "src").mkdir()
    (root / "src/a.py").write_text("a = 1\n")
    await asyncio.to_thread(repository, root)
    (root / "untracked.log").write_text("junk\n")
    old_tree = tree(root)
    clean = "rm -rf src && git clean -fdx"
    chat = stage.agent([ran(clean), ran(clean), Say("Clean.")], builtin=True).chat(root=str(root), **REVIEW)
    await play(chat.send("Clean up."))
    (action,) = await chat.actions()
    assert "D src/a.py" in action.text
    assert "D untracked.log" in action.text
    assert tree(root) == old_tree
    await play(chat.deny(action))
    assert tree(root) == old_tree
    (action,) = await chat.actions()
    assert tree(root) == old_tree
    await play(chat.approve(action))
    assert not (root / "src").exists()
    assert not (root / "untracked.log").exists()
    await chat.files.undo()
    assert tree(root) == old_tree


async def test_what_changes_nothing_is_not_asked_for(stage: Stage, root: Path) -> None:
    chat = stage.agent([ran("cat notes.txt; cat /etc/hostname > /tmp/x"), Say("Done.")], builtin=True).chat(
        root=str(root), **REVIEW
    )
    events = await play(chat.send("Go."))
    assert "permission.requested" not in types(events)
    assert "one\ntwo" in of(events, e.ExecutionComplete)[0].result
    (permission,) = of(events, e.PermissionCompleted)
    assert permission.auto_approved


async def test_where_nobody_is_there_only_what_changes_nothing_passes(stage: Stage, root: Path) -> None:
    chat = stage.agent([ran("cat notes.txt"), ran("echo x > new"), Say("Done.")], builtin=True).chat(
        root=str(root), mode="review"
    )
    events = await play(chat.send("Go."))
    looked, wrote = of(events, e.ExecutionComplete)
    assert looked.success
    assert not wrote.success
    assert "approval" in wrote.error
    assert not (root / "new").exists()


async def test_a_command_that_was_changed_by_the_person_is_the_one_that_runs(stage: Stage, root: Path) -> None:
    chat = stage.agent([ran("echo bad > new"), Say("Done.")], builtin=True).chat(root=str(root), **REVIEW)
    await play(chat.send("Go."))
    (action,) = await chat.actions()
    await play(chat.approve(action, arguments={"command": "echo good > new"}))
    assert (root / "new").read_text() == "good\n"


async def test_a_review_that_waits_survives_a_restart(stage: Stage, root: Path) -> None:
    steps = [ran("date +%N > new"), Say("Done.")]
    chat = stage.agent(steps, builtin=True).chat(root=str(root), **REVIEW)
    await play(chat.send("Go."))
    (action,) = await chat.actions()
    await stage.kill()
    again = stage.agent([Say("Done.")], builtin=True).chat(chat.id)
    await play(again.approve(action))
    if isinstance(stage.store, MemoryStore):  # an agent keeps the views of such chats for itself
        (action,) = await again.actions()
        assert "has changed" in action.reason
        await play(again.approve(action))
    assert (root / "new").read_text().strip() in action.text


# -- what is protected (S-03) ----------------------------------------------------------------------------------------


async def test_a_new_repository_comes_without_hooks_and_settings(stage: Stage, root: Path) -> None:
    commit = "git -c user.name=A -c user.email=a@example.org commit -q -m first"
    evil = "echo '#!/bin/sh' > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout; mkdir .treadle"
    chat = stage.agent(
        [ran(f"git init -q && git add -A && {commit}; {evil}; git log --oneline"), Say("Done.")], builtin=True
    )
    options = {"auto_approve_commands": True, "auto_approve_sensitive_edits": True}
    events = await play(chat.chat(root=str(root), **options).send("Go."))
    (completion,) = of(events, e.ExecutionComplete)
    assert completion.success, completion.error
    assert "first" in completion.result
    assert ".git/hooks" in completion.result, "what is left out is said"
    assert (root / ".git/HEAD").exists()
    assert not (root / ".git/hooks").exists()
    assert not (root / ".git/config").exists()
    assert not (root / ".treadle").exists()
    git = ["git", "log", "--format=%s"]
    listed = await asyncio.to_thread(subprocess.run, git, cwd=root, capture_output=True, text=True, check=False)
    assert listed.stdout == "first\n"


# -- stopping and meeting others --------------------------------------------------------------------------------------


async def test_an_interrupted_command_leaves_the_project_as_it_was(stage: Stage, root: Path) -> None:  # L-07, W-08
    chat = stage.agent([ran("rm notes.txt; echo x > new; echo begun; exec sleep 600")], builtin=True).chat(
        root=str(root), auto_approve_commands=True
    )
    old_tree = tree(root)
    await until(chat.send("Go."), lambda event: isinstance(event, e.ExecutionOutput) and "begun" in event.text)
    await chat.interrupt()
    events = await play(chat.resume())
    assert tree(root) == old_tree
    assert not of(events, e.FilesChanged)


async def test_two_chats_on_one_root_do_not_overwrite_each_other(stage: Stage, root: Path) -> None:  # W-07, fault 21
    gate = root / "gate"
    gate.write_text("wait\n")
    slow = "echo first > notes.txt; echo begun; until grep -q go gate; do sleep 0.02; done"
    one = stage.agent([ran(slow), Say("Done.")], builtin=True).chat(root=str(root), auto_approve_commands=True)
    other_chat = stage.agent([ran("echo second > notes.txt"), Say("Done.")], builtin=True).chat(
        root=str(root), auto_approve_commands=True
    )
    await until(one.send("Go."), lambda event: isinstance(event, e.ExecutionOutput) and "begun" in event.text)
    await play(other_chat.send("Go."))
    assert (root / "notes.txt").read_text() == "second\n", "it waits for nobody"
    gate.write_text("go\n")
    await play(one.resume())
    log = await one.events()
    assert (root / "notes.txt").read_text() == "second\n"
    (conflict,) = of(log, e.WorkspaceConflict)
    assert conflict.conflicts[0].path == "notes.txt"
    (completion,) = of(log, e.ExecutionComplete)
    assert not completion.success
    assert "notes.txt" in completion.error
    undone = await one.files.undo()
    assert undone.files == ()
    assert (root / "notes.txt").read_text() == "second\n"


# -- checkpoints and going back ---------------------------------------------------------------------------------------


async def test_a_checkpoint_stands_before_the_first_change_of_each_run(stage: Stage, root: Path) -> None:  # W-01
    steps = [
        [Call("read_file", path="notes.txt"), Call("write_file", path="a", content="a"), ran("echo b > b")],
        Say("Done."),
        Say("Nothing to do."),
        Call("write_file", path="c", content="c"),
        Say("Done."),
    ]
    chat = stage.agent(steps, builtin=True).chat(root=str(root), auto_approve_commands=True, verify=False)
    for message in ("Go.", "Why?", "More."):
        await play(chat.send(message))
    names = types(await chat.events())
    assert names.count("checkpoint.created") == 2
    assert names.index("checkpoint.created") < names.index("workspace.files_changed")
    checkpoints = [envelope.data.message for envelope in await chat.events() if envelope.type == "checkpoint.created"]
    assert [span.since for span in await chat.files.runs()] == checkpoints


async def test_an_earlier_message_is_edited_and_its_files_go_back(stage: Stage, root: Path) -> None:  # L-09
    steps = [
        Call("write_file", path="made", content="x"),
        Say("Made."),
        ran("rm made; echo more > more"),
        Say("More."),
        Say("As you like."),
    ]
    chat = stage.agent(ScriptedModel(steps, follow="calls"), builtin=True).chat(
        root=str(root), auto_approve_commands=True, verify=False
    )
    await play(chat.send("Make it."))
    await play(chat.send("More of it."))
    second = [envelope.seq for envelope in await chat.events() if envelope.type == "user.message"][1]
    await play(chat.edit(second, "Leave it.", files=True))
    assert (root / "made").read_text() == "x"
    assert not (root / "more").exists()
    log = await chat.events()
    assert types(log).index("workspace.undone") < max(
        n for n, t in enumerate(types(log)) if t == "assistant.turn_start"
    )


async def test_a_users_edit_survives_an_undo(stage: Stage, root: Path) -> None:  # W-02, fault 20
    steps = [[ran("echo agent >> notes.txt"), ran("echo x > new")], Say("Done.")]
    chat = stage.agent(steps, builtin=True).chat(root=str(root), auto_approve_commands=True)
    await play(chat.send("Go."))
    (root / "notes.txt").write_text("zero\none\ntwo\nagent\n")
    undone = await chat.files.undo()
    assert [conflict.path for conflict in undone.conflicts] == ["notes.txt"]
    assert (root / "notes.txt").read_text() == "zero\none\ntwo\nagent\n"
    assert not (root / "new").exists()
    merged = await chat.files.undo(paths=["notes.txt"], merge=True)
    assert merged.conflicts == ()
    assert (root / "notes.txt").read_text() == "zero\none\ntwo\n"
