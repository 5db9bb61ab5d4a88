"""Sets up the services for the built-in tools of an Agent: files, supervised commands, the sandbox of this machine, the
paths that commands must not touch. The only place that knows both the tools and the packages that serve them."""

import asyncio
import os
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.adapters.policy.redaction import Redactor
from treadle.adapters.policy.trust import Trust
from treadle.adapters.sandbox.supervisor.commands import SupervisedCommands
from treadle.adapters.tools.builtin.base import Guarded, ToolContext
from treadle.adapters.workspace.paths.resolve import locate, make_root_changed_error
from treadle.adapters.workspace.root import Root
from treadle.base.file_system import is_below
from treadle.base.process_folders import list_abandoned_folders, make_folder_prefix
from treadle.base.types import ChatId
from treadle.errors import ConfigError
from treadle.ports.commands import Allowance
from treadle.ports.hooks import Hooks
from treadle.ports.sandbox import Demand, PrivateHome, Sandbox
from treadle.ports.snapshots import Effect, SnapshotsOf
from treadle.ports.store import Store
from treadle.ports.toolset import Invocation
from treadle.protocol.events import GitBranchCreated, SandboxNotice
from treadle.protocol.files import FileChange
from treadle.protocol.options import ChatOptions, Project
from treadle.protocol.permissions import Rule

if TYPE_CHECKING:
    from treadle.adapters.sandbox.choose import ChosenSandbox
    from treadle.adapters.workspace.git import Git
    from treadle.adapters.workspace.history.snapshots import ProjectSnapshots
    from treadle.library.worlds.home import WorldGround, WorldHome


_LOOK_S = 10.0  # How long the user's home and the machine's keys are remembered: commands come one after the other.
_RETRY_S = 600.0  # After this time a process asks again which sandbox holds, and whether views work where they did not.
_SWEEP_S = 3600.0
_next_sweep: dict[str, float] = {}
"""By folder for temporary files: when this process looks again for what killed processes left there."""


class ToolSetup:
    """`home`: Treadle's own folder; if the store is `shared` with other machines, commands are supervised there."""

    def __init__(
        self,
        store: Store,
        env: Mapping[str, str],
        home: Path,
        redact: Callable[[str], str] = str,
        shared: bool = False,
        allowance: Allowance | None = None,
        rules_of: Callable[[str, ChatOptions], Sequence[Rule]] = lambda _root, options: options.rules,
    ) -> None:
        self._home, self._rules_of = home, rules_of
        file = getattr(store, "path", None)
        data = home if shared else file.parent if isinstance(file, Path) else None
        self.passing = data is None  # True if the chats of this agent end with this process, and their data with them.
        temporary = Path(tempfile.gettempdir(), f"{make_folder_prefix()}{os.urandom(6).hex()}")
        self._data = temporary if data is None else Path(os.path.abspath(data))
        self._forget = weakref.finalize(self, _remove, str(self._data)) if self.passing else None
        """Removes the temporary data also if the agent is never closed."""
        self._cached_root = lru_cache(maxsize=256)(self._open_root)
        self._grounds: dict[str, WorldGround] = {}
        self.commands = SupervisedCommands(self._data / "commands")
        self.snapshots_of: SnapshotsOf = lru_cache(maxsize=64)(self.make_snapshots)
        self._choices = lru_cache(maxsize=8)(self._choose_sandbox)
        self._homes = lru_cache(maxsize=8)(self._find_private_home)
        self._keys = lru_cache(maxsize=1)(_find_system_keys)
        self._viewed: dict[tuple[str, str], tuple[bool, float]] = {}
        self.context = ToolContext(
            *(self._get_root, store, self.commands, self._get_sandbox, env, _find_outside_words, redact),
            self._guard_paths, self._find_secrets, self.snapshots_of, notice=self._make_notice,
            views=self._can_make_view, unrecoverable=self._list_unrecoverable,
            allowance=allowance or Allowance(), worlds=lambda: self.worlds, after_the_fact=self._list_concerns,
            finished_length=redact.measure_finished if isinstance(redact, Redactor) else len,
        )  # fmt: skip

    def _get_root(self, root: str, root_id: str, world: str = "") -> Root:
        return self._cached_root(root, root_id, world)  # the cache tells a missing world from an empty one

    def _open_root(self, root: str, root_id: str, world: str) -> Root:
        return Root(root, root_id, self.get_ground(world) if world else None)

    def get_ground(self, world: str) -> "WorldGround":
        """How the files of a world are reached (W-11). ToolError if there is no such world here."""
        from treadle.library.worlds.home import WorldGround

        return self._grounds.get(world) or self._grounds.setdefault(world, WorldGround(self.worlds.folders, world))

    @cached_property
    def worlds(self) -> "WorldHome":
        from treadle.library.worlds.home import WorldHome
        from treadle.library.worlds.record import WorldFolders

        return WorldHome(WorldFolders(str(self._data)), self.get_ground, self.make_snapshots)

    def make_snapshots(self, root: str, root_id: str, world: str = "") -> "ProjectSnapshots":
        """The snapshots of a project, beside the database; those of chats that end with this process end with them."""
        from treadle.adapters.workspace.history.snapshots import ProjectSnapshots

        return ProjectSnapshots(self._get_root(root, root_id, world), self._data, lambda: self._open_git(root))

    def _list_concerns(self, root: str, effect: Effect, options: ChatOptions) -> Sequence[str]:
        from treadle.adapters.policy.changes import judge_afterwards

        if not effect.files:
            return ()
        try:
            return judge_afterwards(effect.files, options, self._rules_of(root, options), effect.history)
        except ConfigError:  # a book that cannot be read has its own way to be noticed: nothing more is allowed
            return judge_afterwards(effect.files, options, options.rules, effect.history)

    async def sweep_temporary_folders(self) -> None:
        """Remove what killed processes left in the folder for temporary files; at most once an hour."""
        parent, now = tempfile.gettempdir(), time.monotonic()
        if now >= _next_sweep.get(parent, now):
            _next_sweep[parent] = now + _SWEEP_S
            if list_abandoned_folders(parent):  # one look; a thread costs a short run more than that
                await asyncio.to_thread(remove_abandoned_folders, parent)

    async def close(self) -> None:
        """Close the worlds, and remove the data of chats that end with this process."""
        for ground in self._grounds.values():
            ground.end() if self.passing else ground.close()
        if self._forget:
            await self.commands.close()
            self._forget()

    def _choose_sandbox(self, demand: Demand, _moment: int) -> "ChosenSandbox":
        from treadle.adapters.sandbox.choose import choose

        return choose(self._home, demand)

    def _get_choice(self, demand: Demand) -> "ChosenSandbox":
        return self._choices(demand, int(time.monotonic() / _RETRY_S))

    def _get_sandbox(self, demand: Demand) -> Sandbox:
        return self._get_choice(demand).sandbox

    def _make_notice(self, root: str, options: ChatOptions) -> SandboxNotice:
        """How commands are confined, and why it is not more."""
        choice = self._get_choice(options.sandbox)
        view = options.command_view and self._can_make_view(choice.sandbox, root)
        place = "without a sandbox" if choice.level == "none" else f"in the sandbox {choice.level}"
        explanation = f" ({'; '.join(choice.reasons)})" if choice.reasons else ""
        off = "no view of it works here" if options.command_view else "the setting command_view is off"
        write_mode = "on a copy-on-write view of the project" if view else f"write to the project directly ({off})"
        text = f"Commands run {place}{explanation}, {'' if view else 'and '}{write_mode}."
        return SandboxNotice(choice.level, view, bool(choice.reasons) or not view, text)

    def _can_make_view(self, sandbox: Sandbox, root: str) -> bool:
        """Tried once for each project; where it failed, again after a while."""
        from treadle.adapters.sandbox.trial_folders import can_make_view

        key, now = (sandbox.level, root), time.monotonic()
        works, until = self._viewed.get(key, (False, now))
        if not works and now >= until:
            works = can_make_view(sandbox, root, self.commands.folder)
            self._viewed[key] = works, now + _RETRY_S
        return works

    def watch_hooks(self, hooks: Sequence[Hooks]) -> list[Hooks]:
        """The same hooks, with what programs of the user change in the project known (W-10)."""
        if not hooks:
            return []
        from treadle.adapters.tools.hooks import CommandHooks, WatchedHooks

        return [WatchedHooks(hook, self.context) if isinstance(hook, CommandHooks) else hook for hook in hooks]

    def make_project_hooks(self, trust: Trust, warn: Callable[[str], object]) -> list[Hooks]:
        """Hooks that projects bring: looked for only if the user has ever trusted a file of a project (S-09)."""
        try:
            if not trust.list_trusted():
                return []
        except ConfigError as error:
            warn(str(error))
        from treadle.adapters.tools.hooks import ProjectHooks

        return [ProjectHooks(self.context, trust.is_trusted)]

    def _list_unrecoverable(self, project: Project, files: Sequence[FileChange]) -> tuple[str, ...]:
        from treadle.adapters.workspace.history.repository_changes import find_unrecoverable_paths

        root = self._get_root(*project)
        snapshots = self.snapshots_of(*project)
        return find_unrecoverable_paths(root, files, snapshots.is_after_image, lambda: self._open_git(root.path))

    def _open_git(self, root: str) -> "Git | None":
        """The git of a project, in the strongest sandbox that holds."""
        from treadle.adapters.workspace.git import Git, find_git_program, find_repository

        if (repository := find_repository(root)) is None or find_git_program(repository.common) is None:
            return None
        return Git(repository, self._get_sandbox("auto"), self._guard_paths(root).hidden_paths)

    def _guard_paths(self, root: str) -> Guarded:
        from treadle.adapters.sandbox.places import find_hidden_paths, find_protected_paths

        moment = int(time.monotonic() / _LOOK_S)
        self._data.mkdir(mode=0o700, parents=True, exist_ok=True)  # only an existing folder can be hidden
        secret_paths = (*find_hidden_paths(str(self._home), str(self._data), self.commands.folder), *self._keys(moment))
        # A path that contains the project, or lies in it, cannot be hidden from the commands of that project.
        every = [path for path in dict.fromkeys(secret_paths) if not is_below(root, path) and not is_below(path, root)]
        # A path in a hidden folder is hidden with it, and nothing can be mounted there any more.
        outermost = [path for path in every if not any(is_below(path, outer) for outer in every if outer != path)]
        return Guarded(find_protected_paths(root), tuple(outermost), self._homes(root, moment))

    def _find_secrets(self, invocation: Invocation) -> tuple[str, ...]:
        """The secret files that a call may not read: none for a person's call, none that an approved call names."""
        from treadle.adapters.policy import secret_files
        from treadle.adapters.workspace.paths.entries import hold_fd

        if invocation.by_person or not invocation.root:
            return ()
        root, rules = os.path.realpath(invocation.root), list[Rule]()
        with hold_fd(self._get_root(*invocation.project).open_top()) as top:
            paths = secret_files.find_secrets(root, top)
        with suppress(ConfigError):
            rules = [*self._rules_of(root, invocation.options)]
        hidden_paths = secret_files.select_hidden(root, paths, rules, invocation.known_files)
        named_paths: tuple[str, ...] = ()
        if invocation.approved:
            arguments = invocation.arguments
            words = secret_files.split_words(str(arguments.get("command") or ""))
            cwd = str(arguments.get("cwd") or invocation.shell.cwd)
            named_paths = secret_files.find_named_secrets(root, cwd, words)
        return tuple(path for path in hidden_paths if path not in named_paths)

    def _find_private_home(self, root: str, _moment: int) -> PrivateHome | None:
        from treadle.adapters.sandbox.places import find_private_home

        return find_private_home(root, self.context.env, self.context.allowance.visible)

    async def make_run_branch(self, project: Project, chat: ChatId, message: int) -> GitBranchCreated | None:
        """The git branch of a run (W-06), made by git in the strongest sandbox that holds, not in that of the chat."""
        from treadle.adapters.workspace.git import make_branch

        if project.world:  # its references are the project's: a branch of it comes with a commit
            return None
        root = self._get_root(*project).path
        hidden_paths = self._guard_paths(root).hidden_paths

        def create_branch() -> GitBranchCreated | None:
            os.close(self._get_root(*project).open_top())  # RootChanged, before git is let near it
            return make_branch(root, chat, message, lambda: self._get_sandbox("auto"), hidden_paths)

        return await asyncio.to_thread(create_branch)


def bind_root(options: ChatOptions, owner: str) -> str:
    """The folder that the root of a chat is, or is to be; empty if there is none here. RootChanged: it is bound to
    another, or, with an `owner`, a link has come since."""
    root, root_id, _ = options.project
    if (location := locate(root)) is None:
        return ""
    if location[1] != root_id if root_id else owner and location[0] != root:
        raise make_root_changed_error(root)
    return location[1]


def remove_abandoned_folders(parent: str) -> None:
    """Remove the temporary folders of killed processes. A command that outlived its agent keeps the agent's data."""
    from treadle.adapters.sandbox.supervisor.folder import has_live_supervisor

    for folder in list_abandoned_folders(parent):
        with suppress(OSError):  # what cannot be looked into stays
            if not has_live_supervisor(f"{folder}/commands"):
                _remove(folder)


def _remove(path: str) -> None:
    if os.path.exists(path):
        from treadle.adapters.sandbox.supervisor.removal import remove_tree

        remove_tree(path)


def _find_system_keys(_moment: int) -> tuple[str, ...]:
    from treadle.adapters.sandbox.places import find_system_keys

    return tuple(find_system_keys())


def _find_outside_words(command: str, root: str) -> tuple[str, ...]:
    from treadle.adapters.policy.command_severity import find_outside_words

    return find_outside_words(command, root)
