"""The dependencies of the loop: ports, and the few settings of the engine itself."""

import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol

import msgspec

from treadle.base.types import CallKey, ChatId, Clock
from treadle.engine.effects import Spilled
from treadle.engine.log import Log
from treadle.engine.silence_timeout import ANSWER_S, BASE_S, RETRY_LIMIT_S, SILENCE_S
from treadle.ports.hooks import Chain, Hooks
from treadle.ports.model import Models
from treadle.ports.observer import Observer
from treadle.ports.policy import Policy
from treadle.ports.snapshots import Effect, Plan
from treadle.ports.store import RENEW_S, Store
from treadle.ports.toolset import Toolset
from treadle.protocol.events import GitBranchCreated, RestoreRequested
from treadle.protocol.files import FileChange
from treadle.protocol.options import ChatOptions, Project

Tidy = Callable[[ChatId, Collection[CallKey]], Awaitable[None]]
"""Ends what a chat's calls left running on this machine, except for calls that are still open."""

Branch = Callable[[Project, ChatId, int], Awaitable[GitBranchCreated | None]]
"""(project, chat, message) → the git branch that was made for the run which the message began; None: there is no
repository, or nothing to branch from (W-06)."""

Bind = Callable[[ChatOptions, str], str]
"""(options, owner) → which folder the root of a chat is; empty: none. RootChanged if the chat is bound to another."""


class Restorer(Protocol):
    """Takes changes of files back (W-02). ToolError if that cannot be done at all."""

    async def carry_out(self, chat: ChatId, project: Project, request: RestoreRequested) -> Effect:
        """Once: after a crash it completes what was begun."""

    async def is_apply_decided(self, chat: ChatId, project: Project, request: RestoreRequested) -> bool:
        """True if it is decided that the request is carried out. A repeated `carry_out` then completes it."""

    async def preview(self, chat: ChatId, project: Project, request: RestoreRequested) -> Plan: ...

    async def read_texts(
        self, project: Project, changes: Sequence[FileChange]
    ) -> list[tuple[bytes | None, bytes | None]]:
        """The texts at both ends of changes, as far as they can be had; see `Snapshots.read_texts`."""

    async def release(self, chat: ChatId, project: Project, request: RestoreRequested) -> None:
        """Its outcome is recorded: forget the journal."""


class Deps(msgspec.Struct, frozen=True):
    store: Store
    models: Models
    tools: Toolset
    policy: Policy
    log: Log
    clock: Clock
    spill: Callable[[Sequence[FileChange]], Awaitable[Spilled]]
    system_text: Callable[[ChatOptions], str] = lambda _options: ""
    chance: Callable[[], float] = random.random
    retry_base_s: float = BASE_S
    retry_limit_s: float = RETRY_LIMIT_S  # in runs that no person watches; 0: no limit
    silence_s: float = SILENCE_S
    answer_s: float = ANSWER_S
    renew_s: float = RENEW_S  # how often leases are renewed: a third of how long they last in the store
    hooks: Hooks = Chain()
    observer: Observer = Observer()
    redact: Callable[[str], str] = str  # removes secrets from a text before it is cut (S-11); the log records none
    redact_live: Callable[[], Callable[[str], str]] = lambda: str  # the same for live text, one stream each
    tidy: Tidy | None = None
    on_chat_released: Callable[[ChatId], None] | None = None  # told when a chat is not driven here any more
    restorer: Restorer | None = None
    branch: Branch | None = None
    bind: Bind | None = None
    shared: bool = False  # True if workers on other machines may use the store as well
