"""A repository whose configuration names programs (fault 28, S-03, S-09): when Treadle itself runs git there, none of
them reaches anything outside a sandbox. Each repository would leave a file outside if it did."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scenario.command_line import CommandLine

pytestmark = [
    pytest.mark.thorough(one_of=6),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]

CALLS = """
[[turn]]
call = [{ name = "find_files", args = { pattern = "**/*" } }, { name = "grep_search", args = { pattern = "one" } }]
[[turn]]
call = [{ name = "write_file", args = { path = "new.py", content = "x = 1\\n" } }]
[[turn]]
call = [{ name = "get_diagnostics", args = { path = "new.py" } }]
[[turn]]
text = "Done."
"""
Spoil = Callable[[Path, str], None]
"""(project, a shell command that leaves the trace) → the repository is hostile."""


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=main"]
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    result = subprocess.run(["git", *identity, *words], cwd=folder, env=env, capture_output=True, text=True, check=True)
    return result.stdout.strip()


def add_configuration(text: str) -> Spoil:
    def spoil(project: Path, act: str) -> None:
        with (project / ".git/config").open("a") as file:
            file.write(text.replace("ACT", act))

    return spoil


def add_included_settings(text: str) -> Spoil:
    def spoil(project: Path, act: str) -> None:
        (project / "settings").write_text(text.replace("ACT", act))
        add_configuration("[include]\n\tpath = ../settings\n")(project, act)

    return spoil


def missing_objects(text: str) -> Spoil:
    """A partial clone whose objects are to be fetched the moment a program reads HEAD."""

    def spoil(project: Path, act: str) -> None:
        head = git(project, "rev-parse", "HEAD")
        (project / ".git/objects" / head[:2] / head[2:]).unlink()
        partial = '[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = "origin"\n'
        add_configuration(partial + text)(project, act)

    return spoil


def add_hooks(project: Path, act: str) -> None:
    for name in ("reference-transaction", "post-checkout", "post-index-change", "pre-commit", "fsmonitor-watchman"):
        hook = project / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\n{act}\n")
        hook.chmod(0o755)


def hooked_by_name(project: Path, act: str) -> None:
    add_hooks(project, act)
    add_configuration("[core]\n\thooksPath = .git/hooks\n")(project, act)


def add_attributes(project: Path, act: str) -> None:
    (project / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
    evil = '[filter "evil"]\n\tclean = "ACT"\n\tsmudge = "ACT"\n\tprocess = "ACT"\n\trequired = true\n'
    add_configuration(evil + '[diff "evil"]\n\tcommand = "ACT"\n\ttextconv = "ACT"\n[diff]\n\texternal = "ACT"\n')(
        project, act
    )


def included_from_outside(head: str) -> Spoil:
    def spoil(project: Path, act: str) -> None:
        outside = project.parent / "settings"
        outside.write_text(
            f'[core]\n\tfsmonitor = "{act}; false"\n\tpager = "{act}"\n[alias]\n\trev-parse = "!{act}"\n'
        )
        add_configuration(f"{head}\n\tpath = {outside}\n")(project, act)

    return spoil


def of_the_worktree(project: Path, act: str) -> None:
    add_configuration("[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true\n")(project, act)
    (project / ".git/config.worktree").write_text(f'[core]\n\tfsmonitor = "{act}; false"\n\thooksPath = hooks\n')
    add_hooks(project, act)


def borrow_repository(project: Path, act: str) -> None:
    """Objects, references and hooks of a repository that lies beside the project."""
    other_repository = project.parent / "beside"
    shutil.copytree(project / ".git", other_repository)
    add_hooks(project, act)
    shutil.copytree(project / ".git/hooks", other_repository / "hooks", dirs_exist_ok=True)
    (project / ".git/objects/info/alternates").write_text(f"{other_repository}/objects\n")
    (project / ".git/commondir").write_text(f"{other_repository}\n")


PROMISOR = '[remote "origin"]\n\tpromisor = true\n\tpartialclonefilter = blob:none\n'
VECTORS: dict[str, Spoil] = {
    "a promisor's upload-pack": missing_objects(PROMISOR + '\turl = .\n\tuploadpack = "ACT; false"\n'),
    "a promisor by ssh": missing_objects(
        PROMISOR + '\turl = ssh://example.invalid/x\n[core]\n\tsshCommand = "ACT; false"\n'
    ),
    "a promisor by a helper": missing_objects(
        PROMISOR + '\turl = "ext::sh -c \'ACT\'"\n[protocol]\n\tallow = always\n[protocol "ext"]\n\tallow = always\n'
    ),
    "a promisor that is allowed": missing_objects(
        PROMISOR + '\turl = .\n\tuploadpack = "ACT; false"\n[protocol "file"]\n\tallow = always\n'
    ),
    "a promisor by a proxy": missing_objects(
        PROMISOR + '\turl = git://example.invalid/x\n[core]\n\tgitProxy = "ACT"\n'
    ),
    "hooks": add_hooks,
    "a folder of hooks": hooked_by_name,
    "a monitor": add_configuration('[core]\n\tfsmonitor = "ACT; false"\n\tfsmonitorHookVersion = 1\n'),
    "a pager and an editor": add_configuration(
        '[core]\n\tpager = "ACT"\n\teditor = "ACT"\n\taskPass = "ACT"\n[pager]\n\tref = "ACT"\n'
    ),
    "filters and external diffs": add_attributes,
    "aliases": add_configuration(
        "[alias]\n"
        + "".join(
            f'\t{word} = "!ACT"\n' for word in ("rev-parse", "symbolic-ref", "update-ref", "config", "merge-base")
        )
    ),
    "a credential helper": missing_objects(
        PROMISOR + '\turl = http://127.0.0.1:1/x\n[credential]\n\thelper = "!ACT"\n'
    ),
    "alternate references": add_configuration('[core]\n\talternateRefsCommand = "ACT"\n'),
    "signatures": add_configuration('[gpg]\n\tprogram = "ACT"\n[log]\n\tshowSignature = true\n'),
    "an included file": add_included_settings(
        '[core]\n\tfsmonitor = "ACT; false"\n\thooksPath = .git/hooks\n\tpager = "ACT"\n'
    ),
    "included from outside": included_from_outside("[include]"),
    "included from outside when it is here": included_from_outside('[includeIf "gitdir:/"]'),
    "settings of the worktree": of_the_worktree,
    "borrowed from beside": borrow_repository,
    "hooks by their settings": add_configuration(
        '[hook "evil"]\n\tcommand = "ACT"\n\tevent = reference-transaction\n\tevent = post-checkout\n'
    ),
    "another work tree": add_configuration('[core]\n\tworktree = /\n\tfsmonitor = "ACT; false"\n'),
    "included when it is here": add_included_settings('[alias]\n\trev-parse = "!ACT"\n'),
}


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    command_line = CommandLine(tmp_path)
    git(command_line.project, "init", "-q", "-b", "main")
    (command_line.project / "f").write_text("one\n")
    git(command_line.project, "add", "-A")
    git(command_line.project, "commit", "-qm", "first")
    (command_line.folder / "canary").mkdir()
    return command_line


@pytest.mark.parametrize("name", VECTORS)
def test_nothing_that_a_repository_names_runs_outside(cli: CommandLine, name: str) -> None:
    canary = cli.folder / "canary"
    act = cli.project / ".git/act.sh"  # where it can be run from inside a sandbox, too
    act.write_text(f'#!/bin/sh\necho {name!r} "$@" > "{canary}/ran"\n')
    act.chmod(0o755)
    VECTORS[name](cli.project, str(act))
    run_result = cli("run", "Go.", "--model", cli.script(CALLS), "--json", "--git-branch", "--mode", "auto-edit")
    assert run_result.of("tool.execution_complete"), run_result.err
    assert os.listdir(canary) == []
