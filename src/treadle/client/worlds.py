"""Your worlds on a server, `client.worlds` (W-11 to W-13): views of projects in which chats work until somebody commits
them."""

from collections.abc import Callable
from contextlib import aclosing

import msgspec

from treadle.client.chats import ClientChat
from treadle.client.http import Http
from treadle.errors import ApiError
from treadle.protocol.events import ExecutionComplete, FilesChanged, RunEnd
from treadle.protocol.files import FileChange
from treadle.protocol.http_answers import ChatView, Rebased, WorldChanges, WorldList, WorldView
from treadle.types import CallKey


class WorldCommit(msgspec.Struct, frozen=True):
    """What a commit did, and where it is recorded: `client.chat(done.chat).files.undo()` takes it back."""

    chat: str
    files: tuple[FileChange, ...]
    text: str


class ClientWorlds:
    def __init__(self, http: Http, chat: Callable[[str], ClientChat]) -> None:
        self._http = http
        self._chat = chat

    async def list(self) -> tuple[WorldView, ...]:
        """The oldest first."""
        return (await self._http.get("/api/worlds", WorldList)).worlds

    async def show(self, id: str) -> WorldChanges:
        """What a commit would change now, and what is in its way."""
        return await self._http.get(f"/api/worlds/{id}", WorldChanges)

    async def diff(self, id: str) -> str:
        """The same for people."""
        return (await self.show(id)).diff

    async def commit(self, id: str) -> WorldCommit:
        """Make what was changed in it the project's own. ApiError `conflict` if somebody changed the same files:
        nothing is made."""
        begun = await self._http.change("POST", f"/api/worlds/{id}/commit", {}, ChatView)
        done, files = ExecutionComplete(CallKey(""), success=False), tuple[FileChange, ...]()
        async with aclosing(self._chat(begun.id).events(deltas=False)) as events:
            async for envelope in events:
                match envelope.data:
                    case ExecutionComplete() as done:
                        pass
                    case FilesChanged(files=files):
                        pass
                    case RunEnd():
                        break
        if not done.success:
            raise ApiError(409, "conflict", done.error or done.result)
        return WorldCommit(begun.id, files, done.result)

    async def rebase(self, id: str) -> tuple[str, ...]:
        """Put it onto what changed meanwhile: the paths of texts that both had changed. ApiError `conflict` if they
        cannot be merged: nothing is changed."""
        return (await self._http.change("POST", f"/api/worlds/{id}/rebase", {}, Rebased)).merged

    async def drop(self, id: str) -> WorldView:
        """Remove it with all that was changed in it. ApiError `world_busy` if somebody works there."""
        return await self._http.change("POST", f"/api/worlds/{id}/drop", {}, WorldView)
