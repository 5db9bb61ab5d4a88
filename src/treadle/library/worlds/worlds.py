"""The operations on worlds (`Agent.worlds`). A commit is a call in the log of a chat."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager

from msgspec.structs import replace

from treadle.base.loop_thread import Facade, make_blocking
from treadle.engine.deps import Deps
from treadle.errors import Conflict, ToolError, WorldBusy
from treadle.library.chat import Chat
from treadle.library.command_stream import CommandStream, collect_changes
from treadle.library.worlds.home import WorldHome
from treadle.library.worlds.record import World
from treadle.ports.snapshots import Effect
from treadle.ports.store import ChatFilter
from treadle.protocol.commands import Rename
from treadle.protocol.content import Value
from treadle.protocol.files import FileChange
from treadle.protocol.options import ChatOptions
from treadle.protocol.views import Status

Answering = Callable[[Chat], Awaitable[CommandStream | None]]
"""Answers what a chat asks, and gives what to follow then; None: the question stays open."""
_AT_WORK: tuple[Status, ...] = ("pending", "running", "interrupting")


class Committed(Value, frozen=True):
    """The changes of a commit, and the call that records it: `chat.files.undo()` of that chat takes it back."""

    chat: str
    call: str
    files: tuple[FileChange, ...]
    text: str


class Worlds:
    """`begin` makes a chat in which a world is committed; `jobs_in`: True if background commands run in a world."""

    def __init__(
        self, home: WorldHome, deps: Deps, options: ChatOptions, begin: Callable[[ChatOptions], Chat],
        jobs_in: Callable[[str], Awaitable[bool]],
    ) -> None:  # fmt: skip
        self._home, self._jobs_in, self._deps, self._options, self._begin = home, jobs_in, deps, options, begin

    def make_commit_options(self, world: World) -> ChatOptions:
        """The options of a chat in which a world is committed. It asks what it would ask about any set of changes; that
        there are changes at all was asked before."""
        return replace(
            self._options,
            root=world.root,
            root_id=world.root_id,
            world=world.parent,
            mode=self._options.mode if self._options.mode in ("auto-edit", "autopilot") else "ask",
            interactive=True,  # the question waits until a person answers it
            tools=(),  # no model works in a chat for commits
            instructions="",
            skills=(),
        )

    async def open(
        self, root: str | os.PathLike[str], parent: str = "", *, owner: str = "", label: str = "", id: str = ""
    ) -> World:
        """A new world of a project, or of the world `parent`. Nothing is copied until it is written, where the system
        has overlays; else `how` and `why` say so. With an `id` the one of this name, made if there is none."""
        return await asyncio.to_thread(self._home.open, os.fspath(root), parent, owner, label, id)

    async def get(self, id: str) -> World:
        """NotFound if there is none."""
        return await asyncio.to_thread(self._home.folders.get, id)

    async def list(self) -> list[World]:
        """The oldest first."""
        return await asyncio.to_thread(lambda: [*self._home.folders.iterate_worlds()])

    async def effect(self, id: str) -> Effect:
        """The changes that a commit would make now, and its conflicts."""
        return await asyncio.to_thread(self._home.compute_effect, id)

    async def diff(self, id: str) -> str:
        """The same for people, bounded and inert."""
        return await asyncio.to_thread(self._home.render_diff, id)

    async def commit(self, id: str, into: Chat | None = None, answer: Answering | None = None) -> Committed:
        """Commit the changes of the world to the project (or to its parent), as one call in the log of `into`, which
        must work there; without one, of a new chat. Conflict if others changed the same files: nothing is made.
        Sensitive changes are asked about in that chat: `answer` answers; ToolError if the question stays open."""
        world = await self.get(id)
        chat = into or self._begin(self.make_commit_options(world))
        if into is None:
            await chat.open()
            await chat.command(Rename(f"commit {world.label or id}"))
        progress = await collect_changes(chat.commit_world(id))
        while progress.completion is None and answer is not None and (following := await answer(chat)) is not None:
            progress = await collect_changes(following)
        completion = progress.completion
        if completion is None:
            waits = f"The commit of {id} waits for an approval in chat {chat.id}"
            raise ToolError(f"{waits}. Answer it there, or with: treadle approve {chat.id}")
        if not completion.success:
            raise Conflict(completion.error or completion.result)
        return Committed(chat.id, completion.call, progress.files, completion.result)

    async def bring_in(self, name: str, id: str) -> Effect:
        """The commit alone, for a tool that records the effect as its own outcome. `name` is the call's
        (`chat/call`): called again with it, this completes what was begun and gives back the same."""
        return await asyncio.to_thread(self._home.bring_in, name, id)

    async def call_off(self, name: str, id: str) -> Effect | None:
        """See to it that the commit of this name is not made; if it was, or had begun, it is completed and told."""
        return await asyncio.to_thread(self._home.call_off, name, id)

    async def rebase(self, id: str) -> tuple[str, ...]:
        """Put it onto what changed meanwhile: the paths where two changes of one text were merged. Conflict if some
        cannot be: nothing is changed, and the world can still be looked at, mended and rebased again."""
        return await asyncio.to_thread(self._home.rebase, id)

    def run_inside(self, id: str, command: Sequence[str]) -> int:
        """Run a program of the user's in a world, not confined; blocks until it ends, and gives its exit code."""
        return self._home.run_inside(id, command)

    def open_folder(self, id: str) -> AbstractContextManager[str]:
        """A path of the world's files inside the block. Changes there have no undo and cannot be merged. Blocks."""
        return self._home.open_folder(id)

    async def drop(self, id: str) -> None:
        """Remove it with its changes. WorldBusy if a chat or a command works there, or there are worlds of it."""
        for status in _AT_WORK:
            for listed in await self._deps.store.list(ChatFilter(status=status)):
                chat = listed.summary.chat
                if listed.leased and (await self._deps.log.load(chat)).options.world == id:
                    raise WorldBusy(f"The chat {chat} works in the world {id}; stop it first.")
        if await self._jobs_in(id):
            raise WorldBusy(f"Commands run in the world {id}; stop them first.")
        await asyncio.to_thread(self._home.drop, id)


class SyncWorlds(Facade[Worlds]):
    """`Worlds` without `async` (E-05)."""

    open = make_blocking(Worlds.open)
    get = make_blocking(Worlds.get)
    list = make_blocking(Worlds.list)
    effect = make_blocking(Worlds.effect)
    diff = make_blocking(Worlds.diff)
    rebase = make_blocking(Worlds.rebase)
    drop = make_blocking(Worlds.drop)

    def commit(self, id: str) -> Committed:
        return self._loop.run(self._wrapped.commit(id))
