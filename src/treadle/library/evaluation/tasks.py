"""The definition of a task: a prompt, the tree to begin with, and the check of its outcome. Data only."""

from pathlib import Path

import msgspec

from treadle.protocol.options import Mode


class GitState(msgspec.Struct, frozen=True):
    """A repository on disk at a commit. Only the tree is taken: later commits must not be found."""

    repository: Path
    commit: str


class TaskFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `task.toml`."""

    prompt: str
    check: str
    """The command that succeeds if the task is solved, carried out by bash in a world of the attempt's."""
    deleted: tuple[str, ...] = ()
    """Files of the start that the reference solution deletes."""
    check_timeout_s: float = 60.0
    max_turns: int = 20
    max_tokens: int = 0
    wall_s: float = 900.0
    """How long the model may work; 0 is no limit."""
    mode: Mode = "auto-edit"
    """The mode, which sets the actions that the model may take without asking. It works in a world, so that
    irreversible changes are no concern."""
    requires: tuple[str, ...] = ()
    """Programs without which the task cannot be done here."""
    tags: tuple[str, ...] = ()


class Task(TaskFile, frozen=True, kw_only=True):
    name: str
    start: Path | GitState
    """The tree to begin with."""
    check_files: Path | None = None
    """Files that are laid over it before the check; the model never sees them."""
    check_patch: str = ""
    """The same as a patch."""
    reference: Path | None = None
    """Files that, laid over the start, solve the task."""
