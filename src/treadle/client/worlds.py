"""Your worlds on a server, `client.worlds` (W-11 to W-13): views of projects in which chats work until they are
committed."""

from collections.abc import Callable
from contextlib import aclosing

import msgspec

from treadle.base.types import CallKey
from treadle.client.chats import ClientChat
from treadle.client.http import Http
from treadle.errors import ApiError
from treadle.protocol.events import ExecutionComplete, FilesChanged, RunEnd
from treadle.protocol.files import FileChange
from treadle.protocol.http_answers import ChatView, Rebased, WorldChanges, WorldList, WorldView


class WorldCommit(msgspec.Struct, frozen=True):
    """The result of a commit, and the chat that records it: `client.chat(done.chat).files.undo()` takes it back."""

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
        """Return the changes that a commit would make now, and its conflicts."""
        return await self._http.get(f"/api/worlds/{id}", WorldChanges)

    async def diff(self, id: str) -> str:
        """The same for people."""
        return (await self.show(id)).diff

    async def commit(self, id: str) -> WorldCommit:
        """Apply the changes of the world to the project. ApiError `conflict` if the same files were changed in the
        project: nothing is applied."""
        chat_view = await self._http.change("POST", f"/api/worlds/{id}/commit", {}, ChatView)
        completion, files = ExecutionComplete(CallKey(""), success=False), tuple[FileChange, ...]()
        async with aclosing(self._chat(chat_view.id).events(deltas=False)) as events:
            async for envelope in events:
                match envelope.data:
                    case ExecutionComplete() as completion:
                        pass
                    case FilesChanged(files=files):
                        pass
                    case RunEnd():
                        break
        if not completion.success:
            raise ApiError(409, "conflict", completion.error or completion.result)
        return WorldCommit(chat_view.id, files, completion.result)

    async def rebase(self, id: str) -> tuple[str, ...]:
        """Put it onto what changed meanwhile: the paths of texts that both had changed. ApiError `conflict` if they
        cannot be merged: nothing is changed."""
        return (await self._http.change("POST", f"/api/worlds/{id}/rebase", {}, Rebased)).merged

    async def drop(self, id: str) -> WorldView:
        """Remove the world with all its changes. ApiError `world_busy` if a chat works there."""
        return await self._http.change("POST", f"/api/worlds/{id}/drop", {}, WorldView)
