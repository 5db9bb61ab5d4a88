"""Asking and telling the git of a project. Its configuration is a stranger's text that names programs: hooks, a monitor
of files, a command that fetches missing objects. So git runs in a sandbox, as commands do: without a network, without
the user's configuration and secrets, in a world that it can only read; where it is to change references it may write
those, and nothing else. If its configuration includes files from outside the project, or there is no sandbox, it
does not run. Which folder is the repository is found out here, not by git: the sandbox is made around it.

The branch of a run (W-06) is made and checked out without a look at the work tree or the index, which stay as they are,
and only in a repository whose work tree the root itself is."""

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

import msgspec

from treadle.adapters.workspace.paths.entries import READ
from treadle.base.file_system import is_below, reach_faultpoint
from treadle.base.subprocesses import Completed, Launch, find_program_outside, run_blocking
from treadle.errors import SandboxError, ToolError
from treadle.ports.sandbox import IN_A_REPOSITORY, Confinement, Direct, Sandbox, Unwritable
from treadle.ports.workspace import escape_name
from treadle.protocol.events import GitBranchCreated

_TIMEOUT_S = 30.0
_LONGEST_ANSWER = 1 << 16
_LONGEST_FILE = 1 << 20
_MOST_BLOBS = 20_000
_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# Without hooksPath, update-ref and symbolic-ref would call a hook. Whose the repository is (safe.directory) does not
# matter to a git that can do nothing.
_SETTINGS = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.pager=cat", "core.sshCommand=false",
    "core.alternateRefsCommand=", "credential.helper=", "protocol.allow=never", "gc.auto=0", "maintenance.auto=false",
    "safe.directory=*",
)  # fmt: skip
# GIT_NO_LAZY_FETCH: since git 2.44; before it, GIT_ALLOW_PROTOCOL does the same.
_ENVIRONMENT = {
    "LC_ALL": "C", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "",
    "GIT_NO_REPLACE_OBJECTS": "1", "GIT_TERMINAL_PROMPT": "0", "GIT_COMMITTER_NAME": "treadle",
    "GIT_COMMITTER_EMAIL": "treadle@localhost",
}  # fmt: skip
_REFERENCES = frozenset(
    ("HEAD", "HEAD.lock", "ORIG_HEAD", "packed-refs", "packed-refs.lock", "refs", "reftable", "logs", "worktrees")
)
"""The entries of a repository that git may change: its references, and HEAD."""
_INCLUDE = re.compile(rb"\[\s*include", re.IGNORECASE)
_MOST_INCLUDES = 20


class Repository(msgspec.Struct, frozen=True):
    """Where the repository of a root lies. `common` is where references are, above `folder` if that is a worktree's."""

    folder: str
    common: str


def find_repository(root: str) -> Repository | None:
    """The repository whose work tree the root says it is. A `.git` that is a link or names a folder of another
    repository is none: a reference would be written there."""
    place = os.path.join(os.path.realpath(root), ".git")
    if os.path.islink(place):
        return None
    if os.path.isdir(place):
        return None if os.path.lexists(os.path.join(place, "commondir")) else Repository(place, place)
    git_folder = _read_first_line(place).removeprefix("gitdir:").strip()
    folder = os.path.realpath(os.path.join(root, git_folder)) if git_folder else ""
    if not folder or not os.path.isdir(folder):
        return None
    above = _read_first_line(os.path.join(folder, "commondir"))
    common = os.path.realpath(os.path.join(folder, above)) if above else folder
    is_own = not above or os.path.dirname(folder) == os.path.join(common, "worktrees")
    return Repository(folder, common) if is_own else None


class Git:
    """`hidden` is what git may not read, as for commands. ToolError if there is no sandbox to run it in."""

    def __init__(self, repository: Repository, sandbox: Sandbox, hidden_paths: Sequence[str] = ()) -> None:
        self.folder, self._common, self._sandbox = repository.folder, repository.common, sandbox
        self._hidden = tuple(path for path in hidden_paths if not _is_inside(self._common, path))
        self._program = find_git_program(self._common)
        self._included = False  # True if the configuration is known to include nothing from outside

    def has_work_tree(self, root: str) -> bool:
        """True if the repository names this root as its work tree, too: by the `gitdir` file of a worktree, by its
        configuration as a submodule has it, or by being the `.git` in it."""
        bare = self.folder == self._common and self.ask("config", "--type=bool", "--get", "core.bare") == "true"
        if bare or not self.ask("rev-parse", "--git-dir"):
            return False
        back = (
            os.path.dirname(_read_first_line(os.path.join(self.folder, "gitdir")))
            if self.folder != self._common
            else ""
        )
        back = back or self.ask("config", "--get", "core.worktree")
        if not back:
            return self.folder == os.path.join(os.path.realpath(root), ".git")
        return os.path.realpath(os.path.join(self.folder, back)) == os.path.realpath(root)

    def ask(self, *words: str) -> str:
        """Return git's answer; empty if it fails."""
        ran, output = self._run(words)
        return "" if ran.code else output.strip("\n")

    def is_confirmed(self, *words: str) -> bool:
        ran, _ = self._run(words)
        return ran.ending == "exited" and ran.code == 0

    def find_blobs(self, ids: Collection[str]) -> frozenset[str]:
        """Those of these object ids (see `compute_blob_ids`), at most 20,000, that are blobs in the repository's own
        object store; none if the store borrows from another one."""
        objects = os.path.join(self._common, "objects")
        object_ids = [each for each in dict.fromkeys(ids) if _OBJECT_ID.fullmatch(each)][:_MOST_BLOBS]
        borrows = os.path.islink(objects) or os.path.lexists(os.path.join(objects, "info", "alternates"))
        if not object_ids or borrows:
            return frozenset()
        words = ("cat-file", "--buffer", "--batch-check=%(objectname) %(objecttype)")
        _, output = self._run(words, stdin_data="\n".join((*object_ids, "")).encode())
        rows = (line.split(" ") for line in output.split("\n"))
        return frozenset(object_ids).intersection(line[0] for line in rows if line[1:] == ["blob"])

    def tell(self, *words: str) -> None:
        """Have git change references. ToolError if it does not."""
        protected_paths = tuple(sorted(self._find_protected_paths()))
        confinement = Confinement(self._common, Direct(), protected=protected_paths, hidden_paths=self._hidden)
        ran, _ = self._run(words, confinement)
        if ran.ending == "timed_out":
            raise ToolError(f"git did not end in {_TIMEOUT_S:g} seconds.")
        if ran.code:
            raise ToolError(escape_name(ran.errors.strip()) or f"git ended with code {ran.code}.")

    def _find_protected_paths(self) -> set[str]:
        """All that lies in the repository but its references, and all of other worktrees."""
        protected_paths: set[str] = set()
        for place in {self._common, self.folder}:
            protected_paths |= {os.path.join(place, name) for name in IN_A_REPOSITORY}
            other_paths = (f"{place}/{name}" for name in _list_names(place) - _REFERENCES if not name.endswith(".lock"))
            protected_paths |= {path for path in other_paths if not os.path.islink(path)}
        trees = os.path.join(self._common, "worktrees")
        return protected_paths | {path for name in _list_names(trees) if (path := f"{trees}/{name}") != self.folder}

    def _refuse_includes(self) -> None:
        """ToolError if the configuration includes a file from outside of the project: git reads and obeys it. Which
        files a configuration includes is asked of git, apart from any repository."""
        project = os.path.dirname(self._common)
        files = [os.path.join(self._common, "config"), os.path.join(self.folder, "config.worktree")]
        for number, file in enumerate(files):
            if not _INCLUDE.search(_read_content(file)):
                continue
            words = ["config", "--file", file, "--no-includes", "--null", "--get-regexp", r"^include(if\..*)?\.path$"]
            confinement = Confinement(project, Unwritable(), hidden_paths=self._hidden)
            ran, output = self._run_confined(words, confinement, "/")
            paths = [entry.partition("\n")[2] for entry in output.split("\0") if entry]
            included = [os.path.join(os.path.dirname(file), path) for path in paths if path[:1] != "~"]
            inside = len(included) == len(paths) and all(_is_inside(path, project) for path in included)
            if ran.ending != "exited" or ran.code not in (0, 1) or number >= _MOST_INCLUDES or not inside:
                raise ToolError("Git of this project includes settings from outside, and so was not run.")
            files += map(os.path.realpath, included)

    def _run(
        self, words: Sequence[str], confinement: Confinement | None = None, stdin_data: bytes = b""
    ) -> tuple[Completed, str]:
        """In a world that it can only read, unless another one is given."""
        if not self._included:
            self._refuse_includes()
            self._included = True
        # The work tree is not looked at, and may not be there in the sandbox: any folder does.
        line = [f"--git-dir={self.folder}", f"--work-tree={self._common}", *words]
        confinement = confinement or Confinement(self._common, Unwritable(), hidden_paths=self._hidden)
        return self._run_confined(line, confinement, self._common, stdin_data)

    def _run_confined(
        self, words: Sequence[str], confinement: Confinement, cwd: str, stdin_data: bytes = b""
    ) -> tuple[Completed, str]:
        if self._sandbox.level == "none":
            raise ToolError("Git of a project runs only in a sandbox, and this machine has no sandbox.")
        output, longest = bytearray(), _LONGEST_ANSWER + 2 * len(stdin_data)
        line = [self._program or "git", "--no-pager", *(word for each in _SETTINGS for word in ("-c", each)), *words]
        env = {**_ENVIRONMENT, "PATH": os.pathsep.join((os.path.dirname(line[0]), os.defpath))}
        try:
            confined = self._sandbox.wrap(line, confinement, cwd)
        except SandboxError as error:
            raise ToolError(f"Git of this project cannot be confined, and so was not run: {error}.") from error
        with tempfile.TemporaryFile() as file:
            file.write(stdin_data)
            file.seek(0)
            launch = Launch(confined, env, stdin=file.fileno())
            ran = run_blocking(launch, lambda data: output.extend(data[: max(0, longest - len(output))]), _TIMEOUT_S)
        return ran, output.decode(errors="surrogateescape")


def compute_blob_ids(data: bytes) -> frozenset[str]:
    """The ids that a file of this content has in a repository: one for each kind of hash that repositories use."""
    blob = b"blob %d\0%b" % (len(data), data)
    return frozenset((hashlib.sha1(blob, usedforsecurity=False).hexdigest(), hashlib.sha256(blob).hexdigest()))


def find_git_program(folder: str) -> str | None:
    """git of the machine; never one that lies beside the repository, in the project (S-09)."""
    return find_program_outside("git", os.path.dirname(folder))


def _is_inside(path: str, folder: str) -> bool:
    return is_below(os.path.realpath(path), os.path.realpath(folder))


def _read_first_line(path: str) -> str:
    """The first line of a small file; empty if it is none."""
    return os.fsdecode(_read_content(path)).partition("\n")[0].strip()


def _read_content(path: str) -> bytes:
    with suppress(OSError):
        if stat.S_ISREG(os.lstat(path).st_mode):
            with open(os.open(path, READ), "rb") as file:
                return file.read(_LONGEST_FILE)
    return b""


def _list_names(folder: str) -> set[str]:
    with suppress(OSError):
        return set(os.listdir(folder))
    return set()


# -- the branch of a run ----------------------------------------------------------------------------------------------

_HEADS = "refs/heads/"
_BUSY = ("rebase-merge", "rebase-apply", "BISECT_LOG")  # In the middle of these HEAD is git's own


def make_branch(
    root: str, chat: str, message: int, sandbox: Callable[[], Sandbox], hidden_paths: Sequence[str] = ()
) -> GitBranchCreated | None:
    """The branch of the run that this message began; the same again after a crash. None if there is no repository, no
    git, or no moment for it. ToolError if git refuses, or if there is no sandbox for it."""
    repository = find_repository(root)
    if repository is None or find_git_program(repository.common) is None:
        return None
    try:
        git = Git(repository, sandbox(), hidden_paths)
        is_busy = any(os.path.lexists(os.path.join(repository.folder, name)) for name in _BUSY)
        return _create_branch(git, chat, message) if git.has_work_tree(root) and not is_busy else None
    except ToolError as error:
        reason = f"The git branch of this run could not be made: {error}"
        raise ToolError(f"{reason} Mend that, or turn git_branch off.") from error


def _create_branch(git: Git, chat: str, message: int) -> GitBranchCreated | None:
    head = git.ask("symbolic-ref", "-q", "HEAD")
    base = git.ask("rev-parse", "-q", "--verify", "HEAD^{commit}")
    name = f"treadle/{chat}-{message}"
    if git.ask("rev-parse", "-q", "--verify", f"{_HEADS}treadle"):  # where a branch is, no folder of branches can be
        name = name.replace("/", "-")
    if head == _HEADS + name:
        previous_branch = git.ask("rev-parse", "-q", "--symbolic-full-name", "@{-1}")
        return GitBranchCreated(name, base, previous_branch.removeprefix(_HEADS))
    # The branch must be there and point to this commit. One that is left of a try that a crash ended may be behind;
    # one that has commits of its own is left alone.
    there = git.ask("rev-parse", "-q", "--verify", _HEADS + name) if base else ""
    if base and there != base:
        if there and not git.is_confirmed("merge-base", "--is-ancestor", there, base):
            return None
        git.tell("update-ref", "-m", "branch: created by treadle", _HEADS + name, base, there)
    reach_faultpoint("branch.made")
    origin = head.removeprefix(_HEADS) or base
    git.tell("symbolic-ref", "-m", f"checkout: moving from {origin} to {name}", "HEAD", _HEADS + name)
    reach_faultpoint("branch.checked_out")
    return GitBranchCreated(name, base, head.removeprefix(_HEADS))
