"""A branch for a run (W-06): real repositories, whose work tree and index stay exactly as they are."""

import os
import shutil
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from tests.homes import shared_home
from treadle.adapters.sandbox.choose import choose
from treadle.adapters.sandbox.launcher import NoSandbox
from treadle.adapters.workspace.git import Git, compute_blob_ids, find_repository, make_branch
from treadle.base.file_system import install_fault_hook
from treadle.errors import ToolError
from treadle.ports.sandbox import Sandbox
from treadle.protocol.events import GitBranchCreated

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
NAME = "treadle/c_1-7"


def git(folder: Path, *words: str) -> str:
    config = ["-c", "user.name=n", "-c", "user.email=e", "-c", "protocol.file.allow=always"]
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    process = subprocess.run(["git", *config, *words], cwd=folder, env=env, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "f").write_text("one\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    (folder / "f").write_text("not committed\n")
    (folder / "staged").write_text("staged\n")
    git(folder, "add", "staged")
    return folder


@cache
def sandbox() -> Sandbox:
    best_sandbox = choose(shared_home()).sandbox
    if best_sandbox.level == "none":
        pytest.skip("no sandbox holds here")
    return best_sandbox


def make(folder: Path) -> GitBranchCreated | None:
    return make_branch(str(folder), "c_1", 7, sandbox)


@pytest.mark.thorough(one_of=8)
def test_a_branch_is_made_and_checked_out_and_nothing_else_changes(repository: Path) -> None:
    head, index = git(repository, "rev-parse", "HEAD"), (repository / ".git/index").read_bytes()
    status = git(repository, "status", "--porcelain")
    index = (repository / ".git/index").read_bytes()
    assert make(repository) == GitBranchCreated(NAME, head, "main")
    assert git(repository, "symbolic-ref", "--short", "HEAD") == NAME
    assert (repository / ".git/index").read_bytes() == index
    assert git(repository, "status", "--porcelain") == status
    git(repository, "checkout", "-q", "-")  # git knows where it came from
    assert git(repository, "symbolic-ref", "--short", "HEAD") == "main"


@pytest.mark.parametrize("point", ["branch.made", "branch.checked_out"])
def test_again_after_a_crash_it_is_the_same(repository: Path, point: str) -> None:
    class Crash(BaseException):
        pass

    def strike(name: str) -> None:
        if name == point:
            raise Crash

    head = git(repository, "rev-parse", "HEAD")
    install_fault_hook(strike)
    try:
        with pytest.raises(Crash):
            make(repository)
    finally:
        install_fault_hook(None)
    for _ in range(2):
        assert make(repository) == GitBranchCreated(NAME, head, "main")


def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    assert make(tmp_path) == GitBranchCreated(NAME, "", "main")
    assert git(tmp_path, "symbolic-ref", "--short", "HEAD") == NAME
    branch_event = make(tmp_path)
    assert branch_event is not None
    assert branch_event.branch == NAME


def test_a_detached_head_has_no_branch_before(repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "-q", "--detach")
    assert make(repository) == GitBranchCreated(NAME, head, "")


def test_a_worktree_gets_its_own(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "-q", str(tmp_path / "tree"))
    branch_event = make(tmp_path / "tree")
    assert branch_event is not None
    assert branch_event.previous == "tree"
    assert git(tmp_path / "tree", "symbolic-ref", "--short", "HEAD") == NAME
    assert git(repository, "symbolic-ref", "--short", "HEAD") == "main"


def test_a_submodule_gets_its_own(repository: Path, tmp_path: Path) -> None:
    above = tmp_path / "above"
    above.mkdir()
    git(above, "init", "-q", "-b", "main")
    git(above, "submodule", "--quiet", "add", str(repository), "sub")
    assert make(above / "sub") is not None
    assert git(above / "sub", "symbolic-ref", "--short", "HEAD") == NAME
    assert git(above, "symbolic-ref", "--short", "HEAD") == "main"


def test_a_file_that_names_somebody_elses_repository_does_not_lead_there(repository: Path, tmp_path: Path) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    (hostile / ".git").write_text(f"gitdir: {repository}/.git\n")
    assert make(hostile) is None
    (hostile / ".git").unlink()
    (hostile / ".git").symlink_to(repository / ".git")
    assert make(hostile) is None
    assert git(repository, "symbolic-ref", "--short", "HEAD") == "main"


def test_nothing_without_a_repository_of_its_own(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert make(tmp_path / "plain") is None
    (repository / "below").mkdir()
    assert make(repository / "below") is None
    (tmp_path / "plain/.git").mkdir()  # empty: no repository
    assert make(tmp_path / "plain") is None
    git(repository, "clone", "-q", "--bare", ".", str(tmp_path / "bare"))
    assert make(tmp_path / "bare") is None


def test_nothing_without_git(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(repository))
    assert make(repository) is None


def test_nothing_in_the_middle_of_a_rebase(repository: Path) -> None:
    (repository / ".git/rebase-merge").mkdir()
    assert make(repository) is None


def test_without_a_sandbox_git_does_not_run_and_that_is_said(repository: Path) -> None:
    with pytest.raises(ToolError, match=r"only in a sandbox, and this machine has no sandbox.*git_branch off"):
        make_branch(str(repository), "c_1", 7, NoSandbox)
    assert git(repository, "symbolic-ref", "--short", "HEAD") == "main"


def test_a_repository_that_borrows_anothers_references_does_not_lead_there(repository: Path, tmp_path: Path) -> None:
    """Fault 19: a `commondir` in a `.git` names any repository of the disk."""
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    git(hostile, "init", "-q", "-b", "main")
    old_refs = git(repository, "for-each-ref")
    (hostile / ".git/commondir").write_text(f"{repository}/.git\n")
    assert make(hostile) is None
    assert git(repository, "for-each-ref") == old_refs


def test_git_of_the_project_itself_is_not_run(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-09: a search path that begins in the project, as that of an activated environment does."""
    planted = repository / ".venv/bin/git"
    planted.parent.mkdir(parents=True)
    planted.write_text(f"#!/bin/sh\ntouch {repository}/ran\nexit 1\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f"{planted.parent}:{os.environ['PATH']}")
    branch_event = make(repository)
    assert branch_event is not None
    assert branch_event.branch == NAME
    assert not (repository / "ran").exists()


def test_no_hook_and_no_program_of_the_repository_runs(repository: Path) -> None:
    """Fault 28."""
    ran = repository / "ran"
    for name in ("reference-transaction", "post-checkout"):
        hook = repository / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
        hook.chmod(0o755)
    for key in ("core.pager", "core.fsmonitor", "core.editor", "core.sshCommand"):
        git(repository, "config", key, f"touch {ran}")
    git(repository, "config", "core.hooksPath", str(repository / ".git/hooks"))
    assert make(repository) is not None
    assert not ran.exists()


def test_a_branch_in_the_way_changes_the_name(repository: Path) -> None:
    git(repository, "branch", "treadle")
    branch_event = make(repository)
    assert branch_event is not None
    assert branch_event.branch == "treadle-c_1-7"


def test_a_branch_with_commits_of_its_own_is_left_alone(repository: Path) -> None:
    git(repository, "checkout", "-q", "-b", NAME)
    git(repository, "commit", "-qm", "theirs")
    git(repository, "checkout", "-q", "main")
    assert make(repository) is None
    assert git(repository, "symbolic-ref", "--short", "HEAD") == "main"


def test_what_git_refuses_is_said(repository: Path) -> None:
    (repository / ".git/HEAD.lock").write_text("")
    with pytest.raises(ToolError, match=r"could not be made.*HEAD\.lock.*git_branch off"):
        make(repository)


# -- what git may do --------------------------------------------------------------------------------------------------


def test_git_changes_references_and_nothing_else_of_a_repository(repository: Path, tmp_path: Path) -> None:
    # S-03, S-19
    git(repository, "worktree", "add", "-q", str(tmp_path / "tree"))
    repo_git = open_git(repository)
    old_files = {path: path.read_bytes() for path in (repository / ".git").rglob("*") if path.is_file()}
    head = git(repository, "rev-parse", "HEAD")
    repo_git.tell("update-ref", "refs/heads/fine", head)
    for words in (
        ("config", "core.fsmonitor", "evil"),
        ("read-tree", "--empty"),
        ("update-index", "--force-remove", "f"),
        ("pack-refs", "--all", "--prune"),  # of which the next line is the proof that references may change
        ("symbolic-ref", "HEAD", "refs/heads/fine"),
        ("--git-dir", str(repository / ".git/worktrees/tree"), "update-ref", "--no-deref", "HEAD", head),
        ("worktree", "lock", "tree"),
        ("remote", "add", "evil", "ext::sh"),
        ("gc", "--prune=now"),
    ):
        with suppress(ToolError):  # it may say that it cannot
            repo_git.tell(*words)
    reference_names = ("refs", "logs", "packed-refs", "HEAD", "ORIG_HEAD")
    for path, data in old_files.items():
        if path.relative_to(repository / ".git").parts[0] not in reference_names:
            assert path.read_bytes() == data, path
    assert not (repository / ".git/worktrees/tree/locked").exists()
    assert git(repository, "symbolic-ref", "HEAD") == "refs/heads/fine"


@pytest.mark.parametrize(
    "text",
    [
        "[include]\n\tpath = {outside}\n",
        '[includeIf "gitdir:/"]\n\tpath = {outside}\n',
        "[INCLUDE] path={outside}\n",
        "[include]\n\tpath = ../inside\n",
        "[include]\n\tpath = ~/.gitconfig\n",
        "[include]\n\tpath = ../link\n",
    ],
)
def test_a_configuration_that_includes_what_lies_outside_is_not_obeyed(
    repository: Path, tmp_path: Path, text: str
) -> None:
    # S-19: a file of the project may lead out, too
    outside = tmp_path / "outside"
    outside.write_text("[core]\n\tbare = true\n")
    (repository / "inside").write_text(f"[include]\n\tpath = {outside}\n")
    (repository / "link").symlink_to(outside)
    with (repository / ".git/config").open("a") as file:
        file.write(text.format(outside=outside))
    with pytest.raises(ToolError, match="outside"):
        make(repository)


def test_a_configuration_that_includes_a_file_of_the_project_is_obeyed(repository: Path) -> None:
    (repository / "inside").write_text("[core]\n\tabbrev = 12\n")
    with (repository / ".git/config").open("a") as file:
        file.write("[include]\n\tpath = ../inside\n")
    assert make(repository) is not None


# -- which bytes are in the repository --------------------------------------------------------------------------------


def open_git(folder: Path) -> Git:
    git_folder = find_repository(str(folder))
    assert git_folder is not None
    return Git(git_folder, sandbox())


@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_a_repository_says_which_bytes_it_has(tmp_path: Path, kind: str) -> None:
    # S-16
    git(tmp_path, "init", "-q", "-b", "main", f"--object-format={kind}")
    (tmp_path / "f").write_text("one\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "first")
    git(tmp_path, "gc", "-q")
    there, absent = compute_blob_ids(b"one\n"), compute_blob_ids(b"two\n")
    tree = git(tmp_path, "rev-parse", "HEAD^{tree}")
    blobs = open_git(tmp_path).find_blobs([*there, *absent, tree, "HEAD:f", "--help", "HEAD^{tree}", "f" * 40 + "\n"])
    assert blobs == {git(tmp_path, "rev-parse", "HEAD:f")} <= there


def test_many_bytes_are_asked_for_at_once(repository: Path) -> None:
    there = git(repository, "rev-parse", "HEAD:f")
    many = [f"{number:040x}" for number in range(1, 15_000)]
    assert open_git(repository).find_blobs([*many, there]) == {there}


def test_a_repository_that_borrows_objects_does_not_vouch_for_them(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--shared", str(repository), "borrower")
    there = git(repository, "rev-parse", "HEAD:f")
    assert open_git(tmp_path / "borrower").find_blobs([there]) == frozenset()
