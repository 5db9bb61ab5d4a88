"""A git branch for a run (W-06): made and checked out without a look at the work tree or the index, which stay exactly
as they are. Asks git itself, with nothing of the repository's own that could run: no hooks, no programs from its
configuration. Only a repository whose work tree the root itself is, is touched."""

import os
import shutil
import subprocess

from treadle.errors import ToolError
from treadle.faultpoint import faultpoint
from treadle.ports.workspace import inert
from treadle.protocol.events import GitBranchCreated

_HEADS = "refs/heads/"
_TIMEOUT_S = 30.0
_QUIET = (
    "core.hooksPath=/dev/null",  # update-ref and symbolic-ref would call a hook
    "core.fsmonitor=false",
    "core.pager=cat",
    "gc.auto=0",
    "maintenance.auto=false",
)
_BUSY = ("rebase-merge", "rebase-apply", "BISECT_LOG")
"""In the middle of these HEAD is git's own."""


def make_branch(root: str, chat: str, message: int) -> GitBranchCreated | None:
    """The branch of the run that this message began; the same again after a crash. None if there is no repository, no
    git, or no moment for it. ToolError if git refuses."""
    git = _Git(root)
    if not git.usable():
        return None
    head = git.ask("symbolic-ref", "-q", "HEAD")
    base = git.ask("rev-parse", "-q", "--verify", "HEAD^{commit}")
    name = f"treadle/{chat}-{message}"
    if git.ask("rev-parse", "-q", "--verify", f"{_HEADS}treadle"):  # where a branch is, no folder of branches can be
        name = name.replace("/", "-")
    if head == _HEADS + name:
        before = git.ask("rev-parse", "-q", "--symbolic-full-name", "@{-1}")
        return GitBranchCreated(name, base, before.removeprefix(_HEADS))
    if base and not git.point(_HEADS + name, base):
        return None
    faultpoint("branch.made")
    shown = head.removeprefix(_HEADS) or base
    git.tell("symbolic-ref", "-m", f"checkout: moving from {shown} to {name}", "HEAD", _HEADS + name)
    faultpoint("branch.checked_out")
    return GitBranchCreated(name, base, head.removeprefix(_HEADS))


class _Git:
    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(root)
        self._program = shutil.which("git")

    def usable(self) -> bool:
        """Whether there is a repository here that is this root's own, and that is not in the middle of something."""
        place = os.path.join(self._root, ".git")
        if self._program is None or not os.path.lexists(place) or os.path.islink(place):
            return False
        folder = self.ask("rev-parse", "--absolute-git-dir")
        if not folder or self.ask("rev-parse", "--is-inside-work-tree") != "true":
            return False
        if os.path.isfile(place) and not self._is_ours(folder):
            return False
        return not any(os.path.lexists(os.path.join(folder, name)) for name in _BUSY)

    def _is_ours(self, folder: str) -> bool:
        """A `.git` that is a file may name any repository of the disk; only one that names this root, too, is meant: by
        a worktree's way back, or by the work tree that a submodule's configuration has."""
        try:
            with open(os.path.join(folder, "gitdir"), encoding="utf-8", errors="surrogateescape") as file:
                back = os.path.dirname(file.read().strip())
        except OSError:
            back = self.ask("config", "--file", os.path.join(folder, "config"), "--get", "core.worktree")
        return bool(back) and os.path.realpath(os.path.join(folder, back)) == self._root

    def point(self, ref: str, base: str) -> bool:
        """See to it that the branch is there and points to this commit. One that is left of a try that a crash ended
        may be behind; one that has commits of its own is left alone."""
        there = self.ask("rev-parse", "-q", "--verify", ref)
        if there == base:
            return True
        if there and self._run("merge-base", "--is-ancestor", there, base).returncode:
            return False
        self.tell("update-ref", "-m", "branch: created by treadle", ref, base, there)
        return True

    def ask(self, *words: str) -> str:
        """What git answers; nothing, if it has no answer."""
        done = self._run(*words)
        return "" if done.returncode else done.stdout.strip("\n")

    def tell(self, *words: str) -> None:
        done = self._run(*words)
        if done.returncode:
            raise ToolError(
                f"The git branch of this run could not be made: {inert(done.stderr.strip())} "
                "Mend that, or turn git_branch off."
            )

    def _run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        settings = [word for each in _QUIET for word in ("-c", each)]
        try:
            return subprocess.run(
                [self._program or "git", *settings, *words],
                cwd=self._root,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="surrogateescape",
                timeout=_TIMEOUT_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return subprocess.CompletedProcess(words, 1, "", str(error))

    def _environment(self) -> dict[str, str]:
        """Nothing that leads git elsewhere: the user's own configuration, and no repository above the root."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "XDG_CONFIG_HOME", "USER") if name in os.environ}
        return {
            **kept,
            "LC_ALL": "C",
            "GIT_CEILING_DIRECTORIES": os.path.dirname(self._root),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
        }
