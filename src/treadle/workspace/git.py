"""Asking and telling the git of a project. Its configuration is a stranger's text that names programs: hooks, a monitor
of files, a command that fetches missing objects. So git runs in a sandbox, as commands do: without a network, without
the user's configuration and secrets, in a world that it can only read. Where it is to change references it may write in
its repository, but not what names programs. Without a sandbox it does not run.

Which folder is the repository is found out here, not by git: it is what the sandbox is made around.

The branch of a run (W-06) is made and checked out without a look at the work tree or the index, which stay as they are,
and only in a repository whose work tree the root itself is.
"""

import os
import shutil
from collections.abc import Callable, Sequence

import msgspec

from treadle.errors import SandboxError, ToolError
from treadle.faultpoint import faultpoint
from treadle.file_system import is_below
from treadle.ports.sandbox import IN_A_REPOSITORY, Confinement, Direct, Sandbox, Unwritable
from treadle.ports.workspace import inert
from treadle.protocol.events import GitBranchCreated
from treadle.subprocesses import Completed, Launch, run_blocking
from treadle.workspace.paths.entries import READ

_TIMEOUT_S = 30.0
_LONGEST_ANSWER = 1 << 16
_LONGEST_FILE = 4096
_SETTINGS = (
    "core.hooksPath=/dev/null",  # update-ref and symbolic-ref would call a hook
    "core.fsmonitor=false",
    "core.pager=cat",
    "core.sshCommand=false",
    "core.alternateRefsCommand=",
    "credential.helper=",
    "protocol.allow=never",
    "gc.auto=0",
    "maintenance.auto=false",
    "safe.directory=*",  # whose it is does not matter to a git that can do nothing
)
_ENVIRONMENT = {
    "LC_ALL": "C",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",  # since 2.44; before it, this does the same:
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_COMMITTER_NAME": "treadle",
    "GIT_COMMITTER_EMAIL": "treadle@localhost",
}
_UNCHANGED = ("objects", "info", "modules")


class Repository(msgspec.Struct, frozen=True):
    """Where the repository of a root lies. `common` is where references are, above `folder` if that is a worktree's."""

    folder: str
    common: str


def repository_of(root: str) -> Repository | None:
    """The repository whose work tree the root says it is. A `.git` that is a link or names a folder of another
    repository is none: a reference would be written there."""
    place = os.path.join(os.path.realpath(root), ".git")
    if os.path.islink(place):
        return None
    if os.path.isdir(place):
        alone = not os.path.lexists(os.path.join(place, "commondir"))
        return Repository(place, place) if alone else None
    named = _line(place).removeprefix("gitdir:").strip()
    folder = os.path.realpath(os.path.join(root, named)) if named else ""
    if not folder or not os.path.isdir(folder):
        return None
    above = _line(os.path.join(folder, "commondir"))
    if not above:
        return Repository(folder, folder)
    common = os.path.realpath(os.path.join(folder, above))
    return Repository(folder, common) if os.path.dirname(folder) == os.path.join(common, "worktrees") else None


class Git:
    """`hidden` is what git may not read, as for commands. ToolError if there is no sandbox to run it in."""

    def __init__(self, repository: Repository, sandbox: Sandbox, hidden: Sequence[str] = ()) -> None:
        self.folder = repository.folder
        self._common = repository.common
        self._sandbox = sandbox
        self._hidden = tuple(path for path in hidden if not _lies_in(self._common, path))
        self._program = git_program(self._common)

    def belongs_to(self, root: str) -> bool:
        """Whether the repository names this root as its work tree, too: by a worktree's way back, by its configuration
        as a submodule has it, or by being the `.git` in it."""
        bare = self.folder == self._common and self.ask("config", "--type=bool", "--get", "core.bare") == "true"
        if bare or not self.ask("rev-parse", "--git-dir"):
            return False
        back = os.path.dirname(_line(os.path.join(self.folder, "gitdir"))) if self.folder != self._common else ""
        back = back or self.ask("config", "--get", "core.worktree")
        if not back:
            return self.folder == os.path.join(os.path.realpath(root), ".git")
        return os.path.realpath(os.path.join(self.folder, back)) == os.path.realpath(root)

    def ask(self, *words: str) -> str:
        """What git answers; nothing, if it has no answer."""
        ran, said = self._run(words, Confinement(self._common, Unwritable(), hidden=self._hidden))
        return "" if ran.code else said.strip("\n")

    def agrees(self, *words: str) -> bool:
        ran, _ = self._run(words, Confinement(self._common, Unwritable(), hidden=self._hidden))
        return ran.ending == "exited" and ran.code == 0

    def tell(self, *words: str) -> str:
        """Have git change references; why it did not, if so."""
        here = {self._common, self.folder}
        kept = [os.path.join(place, name) for place in sorted(here) for name in IN_A_REPOSITORY]
        kept += [path for name in _UNCHANGED if os.path.isdir(path := os.path.join(self._common, name))]
        ran, _ = self._run(words, Confinement(self._common, Direct(), protected=tuple(kept), hidden=self._hidden))
        if ran.ending == "timed_out":
            return f"git did not end in {_TIMEOUT_S:g} seconds."
        return (inert(ran.errors.strip()) or f"git ended with code {ran.code}.") if ran.code else ""

    def _run(self, words: Sequence[str], confinement: Confinement) -> tuple[Completed, str]:
        if self._sandbox.level == "none":
            raise ToolError("Git of a project runs only in a sandbox, and there is none on this machine.")
        said = bytearray()

        def keep(data: bytes) -> None:
            said.extend(data[: max(0, _LONGEST_ANSWER - len(said))])

        # The work tree is not looked at, and may not be there in the sandbox: any folder does.
        settings = [word for each in _SETTINGS for word in ("-c", each)]
        line = [
            self._program or "git",
            f"--git-dir={self.folder}",
            f"--work-tree={self._common}",
            "--no-pager",
            *settings,
            *words,
        ]
        env = {**_ENVIRONMENT, "PATH": os.pathsep.join((os.path.dirname(line[0]), os.defpath))}
        try:
            confined = self._sandbox.wrap(line, confinement, self._common)
        except SandboxError as error:
            raise ToolError(f"Git of this project cannot be confined, and so was not run: {error}.") from error
        ran = run_blocking(Launch(confined, env), keep, _TIMEOUT_S)
        return ran, said.decode(errors="surrogateescape")


def git_program(folder: str) -> str | None:
    """git of the machine; never one that lies beside the repository, in the project (S-09)."""
    project = os.path.dirname(folder)
    path = [each for each in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(each)]
    found = shutil.which("git", path=os.pathsep.join(each for each in path if not _lies_in(each, project)))
    return found if found and not _lies_in(found, project) else None


def _lies_in(path: str, folder: str) -> bool:
    return is_below(os.path.realpath(path), os.path.realpath(folder))


def _line(path: str) -> str:
    """The first line of a small file; empty if it is none."""
    try:
        fd = os.open(path, READ)
    except OSError:
        return ""
    with open(fd, "rb") as file:
        try:
            return os.fsdecode(file.read(_LONGEST_FILE)).partition("\n")[0].strip()
        except OSError:
            return ""


# -- the branch of a run ----------------------------------------------------------------------------------------------

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
