"""A git branch for a run (W-06): made and checked out without a look at the work tree or the index, which stay exactly
as they are. Only a repository whose work tree the root itself is, is touched, and only by a git that is confined."""

import os
from collections.abc import Callable, Sequence

from treadle.errors import ToolError
from treadle.faultpoint import faultpoint
from treadle.ports.sandbox import Sandbox
from treadle.protocol.events import GitBranchCreated
from treadle.workspace.git import Git, git_program, repository_of

_HEADS = "refs/heads/"
_BUSY = ("rebase-merge", "rebase-apply", "BISECT_LOG")
"""In the middle of these HEAD is git's own."""


def make_branch(
    root: str, chat: str, message: int, sandbox: Callable[[], Sandbox], hidden: Sequence[str] = ()
) -> GitBranchCreated | None:
    """The branch of the run that this message began; the same again after a crash. None if there is no repository, no
    git, or no moment for it. ToolError if git refuses, or if there is no sandbox for it."""
    try:
        return _made(root, chat, message, sandbox, hidden)
    except ToolError as error:
        raise ToolError(
            f"The git branch of this run could not be made: {error} Mend that, or turn git_branch off."
        ) from error


def _made(
    root: str, chat: str, message: int, sandbox: Callable[[], Sandbox], hidden: Sequence[str]
) -> GitBranchCreated | None:
    found = repository_of(root)
    if found is None or git_program(found.common) is None:
        return None
    git = Git(found, sandbox(), hidden)
    if not git.belongs_to(root) or any(os.path.lexists(os.path.join(found.folder, name)) for name in _BUSY):
        return None
    head = git.ask("symbolic-ref", "-q", "HEAD")
    base = git.ask("rev-parse", "-q", "--verify", "HEAD^{commit}")
    name = f"treadle/{chat}-{message}"
    if git.ask("rev-parse", "-q", "--verify", f"{_HEADS}treadle"):  # where a branch is, no folder of branches can be
        name = name.replace("/", "-")
    if head == _HEADS + name:
        before = git.ask("rev-parse", "-q", "--symbolic-full-name", "@{-1}")
        return GitBranchCreated(name, base, before.removeprefix(_HEADS))
    if base and not _pointed(git, _HEADS + name, base):
        return None
    faultpoint("branch.made")
    shown = head.removeprefix(_HEADS) or base
    _tell(git, "symbolic-ref", "-m", f"checkout: moving from {shown} to {name}", "HEAD", _HEADS + name)
    faultpoint("branch.checked_out")
    return GitBranchCreated(name, base, head.removeprefix(_HEADS))


def _pointed(git: Git, ref: str, base: str) -> bool:
    """See to it that the branch is there and points to this commit. One that is left of a try that a crash ended may be
    behind; one that has commits of its own is left alone."""
    there = git.ask("rev-parse", "-q", "--verify", ref)
    if there == base:
        return True
    if there and not git.agrees("merge-base", "--is-ancestor", there, base):
        return False
    _tell(git, "update-ref", "-m", "branch: created by treadle", ref, base, there)
    return True


def _tell(git: Git, *words: str) -> None:
    if why := git.tell(*words):
        raise ToolError(why)
