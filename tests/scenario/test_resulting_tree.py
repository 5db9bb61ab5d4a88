"""The judge decides on the tree as it would be (S-16, S-23; faults 28, 35, 36): git's history, what git is told not to
show, tracked files in caches, ignore rules of the same run, programs among installed packages. Real commands on real
views, in the default mode."""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.scenario.kit import Stage, of, play, types
from tests.trees import tree
from treadle import Chat
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.protocol import events as e

pytestmark = pytest.mark.thorough(one_of=12)

GIT = ["git", "-c", "init.defaultBranch=main", "-c", "user.name=A", "-c", "user.email=a@example.org"]
WHO = "git -c user.name=A -c user.email=a@example.org"


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    new_stage = Stage(SqliteStore(tmp_path / "treadle.db"))
    yield new_stage
    await new_stage.close()


def git(root: Path, *words: str) -> str:
    return subprocess.run([*GIT, *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with two branches of their own, a merged one, a stash, and tracked files in a cache folder."""
    project = tmp_path / "project"
    (project / "node_modules/dep").mkdir(parents=True)
    (project / "app").mkdir()
    for path in ("tracked.txt", "app/__init__.py", "node_modules/dep/index.js"):
        (project / path).write_text("x = 1\n")
    (project / ".gitignore").write_text("build/\nnode_modules/\n*.log\n")
    (project / "kept.log").write_text("x\n")
    git(project, "init", "-q")
    git(project, "add", "-A", "-f")
    git(project, "commit", "-q", "-m", "first")
    git(project, "branch", "merged")
    git(project, "commit", "-q", "--allow-empty", "-m", "second")
    git(project, "checkout", "-q", "-b", "topic")
    git(project, "commit", "-q", "--allow-empty", "-m", "only here")
    git(project, "checkout", "-q", "main")
    (project / "tracked.txt").write_text("x = 2\n")
    git(project, "stash")
    return project


def chat_of(stage: Stage, root: Path, *commands: str, **options: object) -> Chat:
    steps = [Call("run_command", command=command) for command in commands]
    agent = stage.agent([*steps, Say("Done.")], builtin=True)
    return agent.chat(root=str(root), **{"mode": "ask", "interactive": True, "verify": False, **options})


async def reason_of(stage: Stage, root: Path, *commands: str, **options: object) -> str:
    """Why the last of these commands is asked for; empty if it is not. The project is as before if it is."""
    chat = chat_of(stage, root, *commands, **options)
    events = await play(chat.send("Go."))
    actions = await chat.actions()
    assert len(of(events, e.ExecutionComplete)) == len(commands) - len(actions), types(events)
    return actions[0].reason if actions else ""


# -- the history of git -----------------------------------------------------------------------------------------------

SHRINKING = {
    "git branch -D topic": "deletes refs/heads/topic",
    "rm .git/refs/heads/topic": "deletes refs/heads/topic",
    "git pack-refs --all; sed -i /topic/d .git/packed-refs": "deletes refs/heads/topic",
    "rm .git/refs/heads/topic; mkdir .git/refs/heads/topic": "deletes refs/heads/topic",
    ": > .git/refs/heads/merged": "leaves .git/refs/heads/merged in a form that git cannot read",
    "echo gone > .git/HEAD": "leaves .git/HEAD in a form that git cannot read",
    "mkdir .git/sequencer; printf '[options]\\n\\tstrategy = evil\\n' > .git/sequencer/opts": "strategy = evil",
    "mkdir .git/sequencer; printf '[options] strategy = evil\\n' > .git/sequencer/opts": "strategy = evil",
    "git stash drop": "drops 1 stashed change",
    "git stash clear": "drops 1 stashed change",
    "git replace HEAD HEAD~1": "in the place of",
    "git rev-parse HEAD > .git/shallow": "cuts off the history",
    "rm -rf .git/objects/??": "of the history that git keeps",
    "git update-index --assume-unchanged tracked.txt": "hides changes of tracked.txt",
    "git update-index --skip-worktree tracked.txt; true": "hides changes of tracked.txt",
    "mkdir .git/rebase-merge; echo 'exec touch /tmp/x' > .git/rebase-merge/git-rebase-todo": "exec touch /tmp/x",
    "mkdir .git/rebase-merge; printf 'pick 1\\nx id\\n' > .git/rebase-merge/git-rebase-todo": "x id",
    "mkdir .git/sequencer; echo 'exec id' > .git/sequencer/todo": "exec id",
    "printf '%s\\n' \"'a'\\$(id)\" > .git/BISECT_NAMES": "BISECT_NAMES",
    "git bisect start; echo 'git bisect good $(id)' >> .git/BISECT_LOG": "BISECT_LOG",
    "rm -r .git/refs": "takes .git/refs away",
    "git rev-parse main > .git/refs/heads/topic; rm -r .git/logs/refs/heads/topic .git/logs/HEAD": "refs/heads/topic",
    "git checkout -q topic; git reset -q --hard main; git reflog delete HEAD@{0}; rm -r .git/logs": "commits that no",
    "git reset -q --hard HEAD~1; git reflog expire --expire=now --all": "stashed change",
    "git repack -q -a -d; rm -f .git/objects/pack/*.pack": "of the history that git keeps",
    "f=$(ls .git/objects/??/* | head -1); chmod +w $f; echo > $f": "alters .git/objects/",
    "mkdir -p .git/worktrees/w/rebase-merge; echo 'x id' > .git/worktrees/w/rebase-merge/git-rebase-todo": "x id",
}


@pytest.mark.parametrize("command", SHRINKING)
async def test_history_that_shrinks_or_hides_is_asked_for(stage: Stage, root: Path, command: str) -> None:
    old_tree = tree(root)
    assert SHRINKING[command] in await reason_of(stage, root, command)
    assert tree(root) == old_tree


ORDINARY = [
    "git branch -d merged",
    "git stash pop",
    "git stash apply",
    "git checkout -q -b more; git branch -d merged",
    f"git stash pop; {WHO} commit -qam more; git branch -D merged",
    f"{WHO} merge -q --no-ff -m join topic && git branch -d topic",
    "git pack-refs --all",
    "git branch -m merged renamed",
    f"git checkout -q merged; {WHO} commit -q --allow-empty -m x; git checkout -q main",
    "git branch -f topic main",
    "git fetch -q . topic:fetched",
    "git gc -q",
    "git repack -q -a -d",
    f"{WHO} commit -q --allow-empty --amend -m other",
    "git reset -q --hard HEAD~1",
    f"git checkout -q topic; {WHO} rebase -q main",
    f"echo y > tracked.txt; {WHO} commit -qam y; git checkout -q topic; echo z > tracked.txt; {WHO} commit -qam z;"
    f" {WHO} rebase -q main; true",
    f"{WHO} cherry-pick topic || true",
    "git bisect start; git bisect bad; git bisect good HEAD~1",
    "git add -A; git status; git diff",
    f"{WHO} tag -a -m tag v1; git tag -d v1",
]


@pytest.mark.parametrize("command", ORDINARY)
async def test_ordinary_work_with_git_is_not(stage: Stage, root: Path, command: str) -> None:
    assert await reason_of(stage, root, command) == ""
    git(root, "fsck", "--connectivity-only")


@pytest.mark.parametrize("packed", [False, True])
async def test_a_tag_that_moves_off_its_only_commit_is_asked_for(stage: Stage, root: Path, packed: bool) -> None:
    """A reference that is packed is moved by a loose file beside it; no log holds the former commit of a tag."""
    git(root, "tag", "mark", git(root, "commit-tree", "HEAD^{tree}", "-m", "only here"))
    git(root, "tag", "same", "HEAD")
    if packed:
        git(root, "pack-refs", "--all")
    assert await reason_of(stage, root, "git tag -f same HEAD~1") == ""
    assert "deletes refs/tags/mark" in await reason_of(stage, root, "git tag -f mark HEAD")  # S-16
    if packed:
        mark, main = git(root, "rev-parse", "mark"), git(root, "rev-parse", "main")
        assert "deletes refs/tags/mark" in await reason_of(stage, root, f"sed -i s/{mark}/{main}/ .git/packed-refs")
    assert await reason_of(stage, root, f"{WHO} commit -q --allow-empty -m third") == ""


async def test_a_rebase_that_stops_goes_on_in_the_next_command(stage: Stage, root: Path) -> None:
    first = (
        f"echo y > tracked.txt; {WHO} commit -qam y; git checkout -q topic; echo z > tracked.txt; {WHO} commit -qam z;"
        f" {WHO} rebase -q main || git status"
    )
    second = f"echo both > tracked.txt; git add -A; GIT_EDITOR=true {WHO} rebase --continue"
    assert await reason_of(stage, root, first, second) == ""
    assert (root / "tracked.txt").read_text() == "both\n"
    assert not (root / ".git/rebase-merge").exists()


# -- what hides from review -------------------------------------------------------------------------------------------


async def test_tracked_files_are_neither_cache_nor_ignored(stage: Stage, root: Path) -> None:
    chat = chat_of(stage, root, "echo evil > node_modules/dep/index.js; echo evil > kept.log; echo x > new.log")
    events = await play(chat.send("Go."))
    assert await chat.actions() == ()
    (change,) = of(events, e.FilesChanged)
    assert {file.path: (file.tracked, file.ignored) for file in change.files} == {
        "node_modules/dep/index.js": (True, False),
        "kept.log": (True, False),
        "new.log": (False, True),
    }
    (completion,) = of(events, e.ExecutionComplete)
    assert "M node_modules/dep/index.js" in completion.result
    assert "M kept.log" in completion.result
    assert "new.log" not in completion.result


MANY = "for i in $(seq 300); do echo $i > src/f$i; done"


@pytest.mark.parametrize(
    "commands",
    [
        [f"echo 'src/' >> .gitignore; mkdir src; {MANY}"],
        [f"mkdir src; echo '*' > src/.gitignore; {MANY}"],
        [f"mkdir src; printf 'Signature: 8a477f597d28d172789f06886806bc55' > src/CACHEDIR.TAG; {MANY}"],
        ["echo 'src/' >> .gitignore; mkdir src", MANY],
    ],
)
async def test_ignore_rules_of_the_same_run_hide_nothing(stage: Stage, root: Path, commands: list[str]) -> None:
    reason = await reason_of(stage, root, *commands)
    assert "more than 200" in reason


async def test_ignore_rules_from_before_the_run_count(stage: Stage, root: Path) -> None:
    assert await reason_of(stage, root, MANY.replace("src/", "build/").replace("for", "mkdir build; for", 1)) == ""


# -- programs in caches -----------------------------------------------------------------------------------------------


async def test_compiled_files_do_not_get_into_the_project(stage: Stage, root: Path) -> None:
    plant = (
        "import marshal, importlib.util as u, os; os.makedirs('app/__pycache__', exist_ok=True);"
        "code = marshal.dumps(compile('import os; os.mkdir(chr(47) + chr(120))', 'x', 'exec'));"
        "head = u.MAGIC_NUMBER + (1).to_bytes(4, 'little') + bytes(8);"
        "open(u.cache_from_source('app/__init__.py'), 'wb').write(head + code);"
        "open('app/more.pyc', 'wb').write(head + code)"
    )
    old_tree = tree(root)
    assert await reason_of(stage, root, f'{sys.executable} -c "{plant}"', f"{sys.executable} -c 'import app'") == ""
    assert tree(root) == old_tree


STARTED = [
    ".venv/bin/python",
    ".venv/lib/python3/site-packages/evil.pth",
    ".venv/lib/python3/site-packages/sitecustomize.py",
    "node_modules/.bin/tsc",
    ".tox/py/bin/pytest",
    ".direnv/profile",
]


@pytest.mark.parametrize("path", STARTED)
async def test_programs_among_installed_packages_are_asked_for(stage: Stage, root: Path, path: str) -> None:
    reason = await reason_of(stage, root, f"mkdir -p {path.rpartition('/')[0]}; echo x > {path}")
    assert path in reason
    assert "installed packages" in reason


async def test_code_of_installed_packages_is_asked_for(stage: Stage, root: Path) -> None:
    """New code, too: a package is found before a module of the same name."""
    (root / ".venv/lib/site-packages/dep").mkdir(parents=True)
    (root / ".venv/lib/site-packages/dep/a.py").write_text("x = 1\n")
    new = ".venv/lib/site-packages/new"
    add_package = f"mkdir {new}; echo 'x = 1' > {new}/a.py; {sys.executable} -m compileall -q {new}"
    assert f"{new}/a.py" in await reason_of(stage, root, add_package)
    assert await reason_of(stage, root, add_package, mode="auto-edit") == ""
    assert list((root / new).rglob("*.pyc")), "compiled with the source that came with it"
    assert "dep/a.py" in await reason_of(stage, root, "echo evil >> .venv/lib/site-packages/dep/a.py")
    assert await reason_of(stage, root, "mkdir -p node_modules/.cache/x; echo x > node_modules/.cache/x/a.js") == ""


@pytest.mark.parametrize("steps", [1, 2, 3])
async def test_a_repository_is_not_built_in_steps(stage: Stage, root: Path, steps: int) -> None:  # fault 35
    parts = [
        "mkdir -p fix/refs; echo 'ref: refs/heads/x' > fix/HEAD",
        "mkdir -p fix/hooks; printf '[core]\\n\\tfsmonitor = touch x\\n' > fix/config",
        "mkdir -p ../o; ln -s ../src fix/objects; mkdir -p src",
    ]
    commands = ["; ".join(parts)] if steps == 1 else [parts[0], "; ".join(parts[1:])] if steps == 2 else parts
    assert await reason_of(stage, root, *commands) == ""
    assert git(root / "fix", "rev-parse", "--git-dir") == str(root / ".git")


async def test_the_settings_of_a_bare_fixture_are_not_changed(stage: Stage, root: Path) -> None:  # fault 35
    git(root, "init", "-q", "--bare", "tests/fixture.git")
    old_tree = tree(root)
    chat = chat_of(stage, root, "git --git-dir=tests/fixture.git config core.fsmonitor 'touch /tmp/x'")
    events = await play(chat.send("Go."))
    assert tree(root) == old_tree
    assert "tests/fixture.git/config" in of(events, e.ExecutionComplete)[0].result


@pytest.mark.parametrize(
    ("setting", "value"), [("core.hooksPath", "tools/run"), ("filter.x.clean", "./tools/run/clean.sh %f")]
)
async def test_files_that_the_configuration_of_git_names_are_asked_for(
    stage: Stage, root: Path, setting: str, value: str
) -> None:
    git(root, "config", setting, value)
    (root / "tools/run").mkdir(parents=True)
    command = "echo x > tools/run/clean.sh"
    assert "because its configuration names it" in await reason_of(stage, root, command)
    assert await reason_of(stage, root, "echo x > tools/other.sh") == ""
    agent = stage.agent([Call("write_file", path="tools/run/clean.sh", content="x"), Say("Done.")], builtin=True)
    chat = agent.chat(root=str(root), mode="autopilot", interactive=True)
    await play(chat.send("Go."))
    assert "because its configuration names it" in (await chat.actions())[0].reason


async def test_a_commit_graph_stays_on_the_view(stage: Stage, root: Path) -> None:  # S-16
    """Git believes it without a look at the commits, so a forged one would hide some of them."""
    assert await reason_of(stage, root, "git commit-graph write --reachable") == ""
    assert not (root / ".git/objects/info/commit-graph").exists()


async def test_scripts_that_are_linked_as_hooks_are_asked_for(stage: Stage, root: Path) -> None:  # S-16
    (root / "tools").mkdir()
    for name in ("linked.sh", "other.sh"):
        (root / "tools" / name).write_text("a\nb\n")
    (root / ".git/hooks/pre-commit").symlink_to("../../tools/linked.sh")
    assert "a hook is a link to it" in await reason_of(stage, root, "echo x >> tools/linked.sh", mode="auto-edit")
    assert await reason_of(stage, root, "echo x >> tools/other.sh") == ""


async def test_programs_that_included_configuration_names_are_asked_for(stage: Stage, root: Path) -> None:  # S-16
    (root / "tools").mkdir()
    (root / "tools/run.sh").write_text("a\nb\n")
    (root / "team.ini").write_text("[core]\n\tfsmonitor = tools/run.sh\n")
    git(root, "config", "include.path", "../team.ini")
    assert "because its configuration names it" in await reason_of(stage, root, "echo x >> tools/run.sh")


async def test_a_file_is_what_links_make_of_it(stage: Stage, root: Path) -> None:  # S-06
    (root / "docs").mkdir()
    (root / "docs/ai.md").write_text("a\nb\n")
    (root / "CLAUDE.md").symlink_to("docs/ai.md")
    assert "CLAUDE.md is a link to docs/ai.md" in await reason_of(stage, root, "echo x >> docs/ai.md")


async def test_without_a_view_lost_history_is_told_after_the_fact(stage: Stage, root: Path) -> None:  # W-10
    options = {"command_view": False, "auto_approve_commands": True}
    events = await play(chat_of(stage, root, "git branch -D topic", **options).send("Go."))
    assert "would have been asked for: it deletes refs/heads/topic" in of(events, e.ExecutionComplete)[0].result
