"""A command is judged like an edit, by what it would change, in the default mode `ask` (S-05 to S-08, S-16 to S-19;
faults 12, 31, 35, 36). Real commands on real views, through the library."""

import asyncio
import os
import stat
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.scenario.kit import Stage, of, play, types
from tests.trees import tree
from treadle import Chat
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.protocol import events as e
from treadle.protocol.permissions import Rule

pytestmark = pytest.mark.thorough(one_of=8)

ASK = {"mode": "ask", "interactive": True}
HEADLESS = {"mode": "ask", "interactive": False}
NO_REFTABLE = b"ref-format" not in subprocess.run(["git", "init", "-h"], capture_output=True, check=False).stdout


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    new_stage = Stage(SqliteStore(tmp_path / "treadle.db"))
    yield new_stage
    await new_stage.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with a commit, a file that git knows, one that it does not, and one that it ignores."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "tracked.txt").write_text("one\ntwo\n")
    (project / ".gitignore").write_text("build/\n")
    (project / "Makefile").write_text("all:\n\tmkdir -p build && echo x > build/out && echo done > made.txt\n")
    quiet = ["git", "-c", "init.defaultBranch=main", "-c", "user.name=A", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*quiet, *words], cwd=project, check=True)
    (project / "untracked.txt").write_text("mine\n")
    return project


def chat_of(stage: Stage, root: Path, *steps: object, **options: object) -> Chat:
    agent = stage.agent([*steps, Say("Done.")], builtin=True)  # type: ignore[list-item]
    return agent.chat(root=str(root), **{**ASK, **options})  # type: ignore[arg-type]


def ran(command: str) -> Call:
    return Call("run_command", command=command)


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def lies(root: Path, path: str) -> bool:
    return os.path.lexists(root / path)


def modes(root: Path) -> dict[str, int]:
    return {path.name: path.lstat().st_mode for path in root.rglob("*")}


async def result_of(stage: Stage, root: Path, call: Call, **options: object) -> e.ExecutionComplete:
    """Of a call that is not asked for."""
    events = await play(chat_of(stage, root, call, **options).send("Go."))
    assert "permission.requested" not in types(events)
    (completion,) = of(events, e.ExecutionComplete)
    assert isinstance(completion, e.ExecutionComplete)
    return completion


# -- approved by its words --------------------------------------------------------------------------------------------

SENSITIVE = "echo 'x: 1' > .github/workflows/new.yml"
ASKING = {
    "rule": ("make new", {"rules": (Rule("ask", "run_command", "make *"),)}, "says so"),
    "critical": ("make new; mkfs.ext4 /dev/null || true", {}, "rated critical"),
    "confirm": ("make new", {"mode": "confirm"}, "rated"),
}


@pytest.mark.parametrize("way", ASKING)
async def test_an_approval_of_words_does_not_cover_a_sensitive_effect(stage: Stage, root: Path, way: str) -> None:
    """S-08, S-16: the second card names the new reason, and a second approval commits."""
    command, options, reason = ASKING[way]
    (root / ".github/workflows").mkdir(parents=True)
    (root / "Makefile").write_text(f"new:\n\t{SENSITIVE}\n")
    chat = chat_of(stage, root, ran(command), **options)  # type: ignore[arg-type]
    (first,) = of(await play(chat.send("Go.")), e.PermissionRequested)
    assert reason in first.reason
    (second,) = of(await play(chat.approve(*await chat.actions())), e.PermissionRequested)
    assert ".github/workflows/new.yml" in second.reason
    assert ".github/workflows/new.yml" in second.shown
    assert reason not in second.reason
    assert "has changed" not in second.reason
    assert not lies(root, ".github/workflows/new.yml")
    events = await play(chat.approve(*await chat.actions()))
    assert "permission.requested" not in types(events)
    assert lies(root, ".github/workflows/new.yml")


@pytest.mark.parametrize("way", [*ASKING, "review"])
async def test_an_edited_command_is_judged_by_its_effect(stage: Stage, root: Path, way: str) -> None:  # S-08, S-16
    command, options, _ = ASKING.get(way, ("echo x > made.txt", {"mode": "review"}, ""))
    (root / ".github/workflows").mkdir(parents=True)
    (root / "Makefile").write_text(f"new:\n\techo done > made.txt\nci:\n\t{SENSITIVE}\n")
    chat = chat_of(stage, root, ran(command), ran(command), **options)  # type: ignore[arg-type]
    await play(chat.send("Go."))
    (request,) = of(
        await play(chat.approve(*await chat.actions(), arguments={"command": "make ci"})), e.PermissionRequested
    )
    assert ".github/workflows/new.yml" in request.reason
    assert "has changed" not in request.reason
    assert not lies(root, ".github/workflows/new.yml")
    await play(chat.approve(*await chat.actions()))
    assert lies(root, ".github/workflows/new.yml")
    events = await play(chat.approve(*await chat.actions(), arguments={"command": "make new"}))
    assert "permission.requested" not in types(events), "the person knows the words, and the effect raises no concern"
    assert lies(root, "made.txt")


@pytest.mark.parametrize("way", ASKING)
async def test_an_approval_of_words_covers_an_effect_without_a_concern(stage: Stage, root: Path, way: str) -> None:
    command, options, _ = ASKING[way]
    (root / "Makefile").write_text("new:\n\techo done > made.txt\n")
    chat = chat_of(stage, root, ran(command), **options)  # type: ignore[arg-type]
    assert "permission.requested" in types(await play(chat.send("Go.")))
    events = await play(chat.approve(*await chat.actions()))
    assert "permission.requested" not in types(events)
    assert lies(root, "made.txt")


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("echo x > docs.md", {"rules": (Rule("ask", "edit_file", "docs.md"),)}),
        ("echo A=1 > AGENTS.md", {"mode": "confirm"}),
    ],
)
async def test_the_same_reason_is_not_asked_twice(stage: Stage, root: Path, command: str, options: object) -> None:
    chat = chat_of(stage, root, ran(command), **options)  # type: ignore[arg-type]
    assert "permission.requested" in types(await play(chat.send("Go.")))
    assert "permission.requested" not in types(await play(chat.approve(*await chat.actions())))
    assert lies(root, command.rpartition(" ")[2])


@pytest.mark.parametrize("command", ["rm notes.txt", "rm -r drafts", "cd drafts && rm one.txt"])
async def test_an_approval_of_words_covers_the_loss_of_files_that_they_name(
    stage: Stage, root: Path, command: str
) -> None:
    (root / "drafts").mkdir()
    for name in ("notes.txt", "drafts/one.txt"):
        (root / name).write_text("the only copy\n")
    chat = chat_of(stage, root, ran(command), mode="confirm")
    assert "permission.requested" in types(await play(chat.send("Go.")))
    assert "permission.requested" not in types(await play(chat.approve(*await chat.actions())))
    assert not lies(root, "notes.txt") or not lies(root, "drafts/one.txt")


async def test_an_approval_of_words_does_not_cover_the_loss_of_other_files(stage: Stage, root: Path) -> None:
    (root / "notes.txt").write_text("the only copy\n")
    (root / "Makefile").write_text("clean:\n\trm notes.txt\n")
    chat = chat_of(stage, root, ran("make clean"), mode="confirm")
    assert "permission.requested" in types(await play(chat.send("Go.")))
    (second,) = of(await play(chat.approve(*await chat.actions())), e.PermissionRequested)
    assert "exists nowhere else" in second.reason
    assert lies(root, "notes.txt")


async def test_one_card_names_the_rule_and_the_secret(stage: Stage, root: Path) -> None:  # S-18
    (root / ".env").write_text("A=1\n")
    chat = chat_of(stage, root, ran("cat .env"), rules=(Rule("ask", "run_command", "cat *"),))
    (card,) = of(await play(chat.send("Go.")), e.PermissionRequested)
    assert "says so" in card.reason
    assert ".env, which may hold secrets" in card.reason
    events = await play(chat.approve(*await chat.actions()))
    assert "A=1" in of(events, e.ExecutionComplete)[0].result


async def test_without_a_view_an_approval_of_words_is_enough(stage: Stage, root: Path) -> None:
    rules = (Rule("ask", "run_command", "touch *"),)
    chat = chat_of(stage, root, ran("touch AGENTS.md"), rules=rules, command_view=False)
    assert "permission.requested" in types(await play(chat.send("Go.")))
    assert "permission.requested" not in types(await play(chat.approve(*await chat.actions())))
    assert lies(root, "AGENTS.md")


async def test_large_files_of_git_lfs_are_kept_and_not_lost_unasked(stage: Stage, root: Path) -> None:  # S-16
    place = f".git/lfs/objects/ab/cd/abcd{'0' * 60}"
    await result_of(stage, root, ran(f"mkdir -p {os.path.dirname(place)} && echo large > {place}"))
    assert (root / place).read_text() == "large\n"
    chat = chat_of(stage, root, ran("rm -r .git/lfs"))
    (request,) = of(await play(chat.send("Go.")), e.PermissionRequested)
    assert "1 file that Git LFS keeps" in request.reason
    assert lies(root, place)


async def test_references_in_tables_are_committed_and_asked_for(stage: Stage, root: Path) -> None:  # S-16
    """As a git with reftable would leave them."""
    chat = chat_of(stage, root, ran("mkdir .git/reftable && echo t > .git/reftable/tables.list"))
    (request,) = of(await play(chat.send("Go.")), e.PermissionRequested)
    assert "reftable" in request.reason
    await play(chat.approve(*await chat.actions()))
    assert lies(root, ".git/reftable/tables.list")


@pytest.mark.skipif(NO_REFTABLE, reason="this git has no reftable")
async def test_a_commit_in_a_repository_with_reftable_is_kept(stage: Stage, tmp_path: Path) -> None:
    root = tmp_path / "tables"
    git(tmp_path, "init", "-q", "--ref-format=reftable", str(root))
    (root / "file").write_text("1\n")
    commit = "git add -A && git -c user.name=A -c user.email=a@example.org commit -qm first"
    chat = chat_of(stage, root, ran(commit))
    assert "permission.requested" in types(await play(chat.send("Go.")))
    await play(chat.approve(*await chat.actions()))
    assert git(root, "log", "--format=%s") == "first\n"


async def test_a_branch_is_renamed_as_a_whole_or_not_at_all(stage: Stage, root: Path) -> None:  # W-08
    old_tree = tree(root / ".git")
    chat = chat_of(stage, root, ran("git branch -m main trunk"))
    (completion,) = of(await play(chat.send("Go.")), e.ExecutionComplete)
    assert "git switch -c NEW OLD" in completion.error
    assert tree(root / ".git") == old_tree
    completion = await result_of(stage, root, ran("git switch -q -c trunk main && git branch -q -d main && git branch"))
    assert completion.success, completion.result
    assert "* trunk" in completion.result
    (root / "set.sh").write_text("git config user.name B\n")
    completion = await result_of(stage, root, ran("sh set.sh"))
    assert "commands cannot change .git/config" in completion.error


# -- what is asked for ------------------------------------------------------------------------------------------------

WORDS_LIE = {
    "sort -o AGENTS.md tracked.txt": "AGENTS.md",
    "git log --output=.gitmodules": ".gitmodules",
    "compgen -W '$(echo x > .env)'; true": ".env",
    "python3 -c \"open('.e' + 'nv', 'w').write('A=1')\"": ".env",
    "rm untracked.txt": "untracked.txt",
    ": > untracked.txt": "untracked.txt",
    "ln -s /etc out": "out",
    "ln -s ../../x tracked.link": "tracked.link",
    "printf '#!/bin/sh\\n' > run.sh; chmod +x run.sh": "run.sh",
    "for i in $(seq 300); do echo $i > f$i; done": "300 files",
}


@pytest.mark.parametrize("command", WORDS_LIE)
async def test_what_raises_a_concern_is_asked_for_with_its_reason(stage: Stage, root: Path, command: str) -> None:
    old_tree = tree(root)
    chat = chat_of(stage, root, ran(command))
    await play(chat.send("Go."))
    (action,) = await chat.actions()
    assert WORDS_LIE[command] in action.reason
    assert command.split("\n")[0][:20] in action.text
    assert tree(root) == old_tree, "nothing has happened yet"
    await play(chat.deny(action))
    assert tree(root) == old_tree


@pytest.mark.parametrize(
    "call",
    [
        Call("write_file", path="AGENTS.md", content="x"),
        Call("apply_patch", patch="*** Begin Patch\n*** Delete File: untracked.txt\n*** End Patch"),
        Call("apply_patch", patch="*** Begin Patch\n*** Add File: sub/.env\n+A=1\n*** End Patch"),
    ],
)
async def test_file_tools_are_judged_by_the_same_rules(stage: Stage, root: Path, call: Call) -> None:
    old_tree = tree(root)
    chat = chat_of(stage, root, call)
    await play(chat.send("Go."))
    assert len(await chat.actions()) == 1
    assert tree(root) == old_tree


@pytest.mark.parametrize(
    "command",
    [
        "make",
        "echo three >> tracked.txt",
        "rm tracked.txt",
        "git mv tracked.txt moved.txt && git -c user.name=A -c user.email=a@b commit -qm moved",
        "mv untracked.txt elsewhere.txt",
        "mkdir -p node_modules/x && touch node_modules/x/package-lock.json",
        "python3 -c 'print(6 * 7)'; ls -la; git status",
        "sudo -n true; true",
    ],
)
async def test_plain_changes_pass_whatever_the_words(stage: Stage, root: Path, command: str) -> None:  # S-17
    completion = await result_of(stage, root, ran(command))
    assert completion.success, completion.error


async def test_what_the_chat_made_itself_may_go_again(stage: Stage, root: Path) -> None:
    chat = chat_of(stage, root, ran("echo x > scratch; head -c 5000 /dev/zero > blob"), ran("rm scratch blob"))
    events = await play(chat.send("Go."))
    assert "permission.requested" not in types(events)
    assert not (root / "scratch").exists()


async def test_critical_words_are_asked_for_before_anything_runs(stage: Stage, root: Path) -> None:  # S-05
    chat = chat_of(stage, root, ran("touch began; mkfs.ext4 /dev/sda1"))
    events = await play(chat.send("Go."))
    (action,) = await chat.actions()
    assert action.severity == "critical"
    assert not of(events, e.ExecutionOutput)
    assert "began" not in action.text.split("command:", 1)[1].partition("\n")[2]


# -- what is never committed ------------------------------------------------------------------------------------------

NEVER = {
    "mkfifo pipe": "pipe",
    "git init -q nested && echo x > nested/.git/hooks/post-checkout && echo y > nested/a": "nested/.git",
    "mkdir -p a/b/c && printf 'gitdir: /elsewhere\\n' > a/b/c/.git": "a/b/c/.git",
    "mkdir -p .GIT/hooks && echo x > .GIT/hooks/pre-commit": ".GIT",
    "git init -q --bare shape.d": "shape.d/HEAD",
    "mkdir objects refs && echo 'ref: refs/heads/main' > HEAD && touch objects/x": "HEAD",
    "echo '* filter=x' > .git/info/attributes": ".git/info/attributes",
    "echo /tmp > .git/objects/info/alternates": ".git/objects/info/alternates",
    "mkdir -p sub/.git && cd sub && git init -q && git -c user.name=A -c user.email=a@b commit -q --allow-empty -m x"
    " && cd .. && git add sub": "sub/.git",
    "mkdir .treadle && echo x > .treadle/hooks.toml": ".treadle",
}


@pytest.mark.parametrize("mode", ["ask", "autopilot"])
@pytest.mark.parametrize("command", NEVER)
async def test_what_is_never_committed_is_left_out_and_said(
    stage: Stage, root: Path, command: str, mode: str
) -> None:  # S-16
    chat = chat_of(stage, root, ran(f"{command}; echo kept > kept.txt"), mode=mode)
    await play(chat.send("Go."))
    for action in await chat.actions():
        await play(chat.approve(action))
    (completion,) = of(await chat.events(), e.ExecutionComplete)
    assert "not committed" in completion.result + completion.error
    assert NEVER[command] in completion.result + completion.error
    assert not lies(root, NEVER[command])
    assert (root / "kept.txt").read_text() == "kept\n"
    assert "post-checkout" not in await asyncio.to_thread(modes, root)


async def test_no_file_gets_the_rights_of_another(stage: Stage, root: Path) -> None:  # S-16: by sandbox or by gate
    chat = chat_of(stage, root, ran("echo x > tool; chmod u+s tool; chmod g+s tool; chmod +t tool"), mode="autopilot")
    await play(chat.send("Go."))
    assert not any(mode & 0o7000 for mode in (await asyncio.to_thread(modes, root)).values() if stat.S_ISREG(mode))


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit",
        ".git/config.worktree",
        "sub/.git/config",
        "deep/er/.git",
        ".GIT/config",
        "git~1/config",
        ".git/objects/info/alternates",
        ".treadle/hooks.toml",
        "bare/HEAD",
    ],
)
async def test_file_tools_never_write_it_either(stage: Stage, root: Path, path: str) -> None:  # S-16
    (root / "bare/objects").mkdir(parents=True)
    (root / "bare/refs").mkdir()
    for number, mode in enumerate(("ask", "autopilot", "confirm")):
        chat = chat_of(
            stage, root, Call("write_file", path=path, content="x"), mode=mode, auto_approve_sensitive_edits=True
        )
        events = await play(chat.send(f"Go {number}."))
        (completion,) = of(events, e.ExecutionComplete)
        assert "never written" in completion.error
    assert not lies(root, path)


# -- modes ------------------------------------------------------------------------------------------------------------


async def test_a_read_only_chat_runs_commands_and_keeps_nothing(stage: Stage, root: Path) -> None:  # S-07
    old_tree = tree(root)
    chat = chat_of(stage, root, ran("cat tracked.txt; echo x > new"), ran("cat tracked.txt"), mode="read-only")
    events = await play(chat.send("Go."))
    wrote, looked = of(events, e.ExecutionComplete)
    assert tree(root) == old_tree
    assert "one\ntwo" in wrote.error
    assert "read-only" in wrote.error
    assert "A new +1" in wrote.error
    assert looked.success
    assert not of(events, e.FilesChanged)


async def test_headless_what_would_be_asked_for_is_discarded_and_told(stage: Stage, root: Path) -> None:  # S-05
    old_tree = tree(root)
    call = ran("echo said; echo A=1 > .env; echo x > new")
    completion = await result_of(stage, root, call, **HEADLESS)
    assert tree(root) == old_tree
    assert not completion.success
    for words in ("said", ".env", "A new +1", "approval"):
        assert words in completion.error
    assert (await result_of(stage, root, ran("echo x > new"), **HEADLESS)).success
    assert (root / "new").exists()


async def test_autopilot_asks_for_what_is_sensitive_by_its_effect(stage: Stage, root: Path) -> None:  # S-06
    chat = chat_of(stage, root, ran("sort -o AGENTS.md tracked.txt"), mode="autopilot")
    await play(chat.send("Go."))
    (action,) = await chat.actions()
    assert "AGENTS.md" in action.reason
    assert "+one" in action.text


async def test_review_asks_for_edits_too(stage: Stage, root: Path) -> None:  # S-07
    chat = chat_of(stage, root, Call("write_file", path="a.txt", content="x\n"), mode="review")
    await play(chat.send("Go."))
    (action,) = await chat.actions()
    assert "+x" in action.text
    await play(chat.approve(action))
    assert (root / "a.txt").read_text() == "x\n"


# -- an approval that waits -------------------------------------------------------------------------------------------


async def test_killed_while_the_card_is_open(stage: Stage, root: Path) -> None:  # S-08, fault 31
    chat = chat_of(stage, root, ran("date +%N > .env"))
    await play(chat.send("Go."))
    (action,) = await chat.actions()
    await stage.kill()
    again = stage.agent([Say("Done.")], builtin=True).chat(chat.id)
    await play(again.approve(action))
    assert (root / ".env").read_text().strip() in action.text, "what was shown was done: it did not run again"


async def test_an_effect_that_no_longer_fits_is_shown_again(stage: Stage, root: Path) -> None:  # S-08, fault 12
    chat = chat_of(stage, root, ran("cat tracked.txt > .env; sed -i s/two/2/ tracked.txt"))
    await play(chat.send("Go."))
    (first,) = await chat.actions()
    (root / "tracked.txt").write_text("zero\none\ntwo\n")
    await play(chat.approve(first))
    assert not (root / ".env").exists()
    (second,) = await chat.actions()
    assert "has changed" in second.reason
    assert "+zero" in second.text
    assert second.hash != first.hash
    await play(chat.approve(second))
    assert (root / ".env").read_text() == "zero\none\ntwo\n"
    assert (root / "tracked.txt").read_text() == "zero\none\n2\n"


async def test_the_same_bytes_shown_do_not_stand_for_other_files(stage: Stage, root: Path) -> None:  # S-08
    """An effect too large to be shown is identified by its hash."""
    chat = chat_of(stage, root, ran("cp big .env"))
    (root / "big").write_bytes(b"\0" * 3_000_000)
    await play(chat.send("Go."))
    (first,) = await chat.actions()
    assert first.hash
    edited = "head -c 10 tracked.txt > .env"
    await play(chat.approve(first, arguments={"command": edited}))
    if waiting := await chat.actions():  # another command is a new rehearsal
        (second,) = waiting
        assert second.hash != first.hash
        await play(chat.approve(second))
    assert (root / ".env").read_text() == "one\ntwo\n"


# -- effects that are judged afterwards -------------------------------------------------------------------------------


async def test_what_is_written_through_is_judged_after_the_fact(stage: Stage, root: Path) -> None:  # W-10
    call = ran("python3 -c \"open('.e' + 'nv', 'w').write('A=1')\"")
    completion = await result_of(stage, root, call, mode="autopilot", command_view=False)
    assert (root / ".env").exists()
    assert "would have been asked for: it changes .env" in completion.result


async def test_what_is_never_made_is_undone_at_once_where_there_is_no_view(stage: Stage, root: Path) -> None:  # S-16
    line = "python3 -c \"import os; os.makedirs('a/.g' + 'it/x')\"; mkdir -p a/b/objects a/b/refs; mkfifo pipe; cd a/b"
    line += " && touch HEAD config kept"
    completion = await result_of(stage, root, ran(line), mode="autopilot", command_view=False)
    assert sorted(str(each.relative_to(root)) for each in (root / "a").rglob("*")) == ["a/b", "a/b/kept"]
    assert not (root / "pipe").exists()
    for path in ("a/b/HEAD", "a/b/objects", "a/.git", "pipe"):
        assert f"[undone: {path}: " in completion.result


@pytest.mark.thorough(one_of=8)
async def test_rules_of_the_user_hold_after_the_fact_too(stage: Stage, root: Path, tmp_path: Path) -> None:  # W-10
    line = "python3 -c \"open('do' + 'cs.txt', 'w').write('x')\""
    agent = stage.agent([ran(line), Say("Done.")], builtin=True, home=tmp_path / "home")
    agent.rules.add(Rule("deny", "edit_file", "docs.*", "user"))
    chat = agent.chat(root=str(root), mode="autopilot", command_view=False)
    (completion,) = of(await play(chat.send("Go.")), e.ExecutionComplete)
    assert "would have been asked for: it changes what" in completion.result


async def test_what_is_kept_while_a_job_runs_is_still_a_persons(stage: Stage, root: Path) -> None:
    """S-16: a job keeps the whole tree to compare it later; that makes nothing of it Treadle's own."""
    job = Call("run_command", command="sleep 600", background=True)
    chat = chat_of(stage, root, job, ran("rm untracked.txt"))
    await play(chat.send("Go."))
    (action,) = await chat.actions()
    assert "untracked.txt, which exists nowhere else" in action.reason
    assert lies(root, "untracked.txt")
    await chat.interrupt()
    for each in await chat.jobs():
        await each.stop()


async def test_a_rule_for_one_part_does_not_trust_the_others(stage: Stage, root: Path) -> None:  # S-07
    rules = (Rule("allow", "run_command", "make *"),)
    chat = chat_of(stage, root, ran("make all; : > untracked.txt"), rules=rules)
    await play(chat.send("Go."))
    (action,) = await chat.actions()
    assert "untracked.txt, which exists nowhere else" in action.reason
    assert (root / "untracked.txt").read_text() == "mine\n"


async def test_a_folder_whose_name_is_no_text_is_worked_in(stage: Stage, root: Path) -> None:  # T-14
    odd = os.fsencode(root) + b"/caf\xe9"
    os.mkdir(odd)
    chat = chat_of(stage, root, ran("cd caf*"), ran("echo x > made"), ran("rm -rf ../caf*; cd .."))
    events = await play(chat.send("Go."))
    assert len(of(events, e.FilesChanged)) == 1
    (action,) = await chat.actions()
    events = await play(chat.approve(action))
    assert types(events)[-1] == "session.run_end"
    assert not lies(root, os.fsdecode(odd))
