"""The changed files of a chat over HTTP, `chat.files`. A request is repeated under its key until the outcome is
there."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

import msgspec

from treadle.base.types import new_id
from treadle.client.http import Http
from treadle.protocol.files import FileChange, FileConflict
from treadle.protocol.http_answers import ChangedFile, Changes, RunList, RunView

Run = int | Literal["last", "all"]  # last: the newest run of which something is left; a number: as `runs` counts them.

PAGE = 100
ASK_S = 20  # For how long one request waits.


class ChangeSelection(TypedDict, total=False):
    """Which changes are meant: a run, or what was recorded after one seq and not after another; of them only these
    files and folders, or these hunks of files."""

    run: Run
    since: int
    upto: int
    paths: Sequence[str]
    hunks: Mapping[str, Sequence[int]]


class UndoSelection(ChangeSelection, total=False):
    merge: bool
    even_kept: bool


class Restoration(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a request or a preview for the files. With a `status` it is not known yet: the request is not
    carried out."""

    restore: str = ""  # Its name; of an undo, what a redo refers to.
    status: str = ""
    files: tuple[FileChange, ...] = ()
    total: int = 0
    conflicts: tuple[FileConflict, ...] = ()  # The files that were left alone, with the reason.
    error: str = ""  # Why nothing was done at all.


class ClientFiles:
    """`wait_s`: for how long an outcome is waited for. One that has not come by then has a `status` in its place."""

    def __init__(self, http: Http, at: str, wait_s: float = 120.0) -> None:
        self._http, self._at, self._wait_s = http, at, wait_s

    async def runs(self) -> tuple[RunView, ...]:
        """The runs that changed something, or might have, oldest first."""
        runs: tuple[RunView, ...] = ()
        while True:
            query = {"after": str(len(runs)), "limit": str(PAGE)}
            page = await self._http.get(f"{self._at}/runs", RunList, query)
            runs += page.runs
            if not page.runs or len(runs) >= page.total:
                return runs

    async def changes(self, run: Run = "last", path: str = "", *, even_kept: bool = False) -> tuple[ChangedFile, ...]:
        """Return the remaining changes of the chat, with hunks, numbered as `undo` and `keep` take them."""
        query = {"run": str(run), "path": path, "even_kept": str(even_kept).lower(), "limit": str(PAGE)}
        files: tuple[ChangedFile, ...] = ()
        while True:
            page = await self._http.get(f"{self._at}/changes", Changes, query | {"after": str(len(files))})
            files += page.files
            if not page.files or len(files) >= page.total:
                return files

    async def preview(self, **choice: Unpack[UndoSelection]) -> Restoration:
        """Return the result that the same undo would have now. Changes nothing."""
        return await self._http.change("POST", f"{self._at}/undo", {**choice, "preview": True}, Restoration)

    async def undo(self, **choice: Unpack[UndoSelection]) -> Restoration:
        """Undo changes of the last run, or of others. Later changes by others are left alone, or merged (`merge=True`);
        kept changes stay unless `even_kept=True`."""
        return await self._outcome("undo", choice)

    async def redo(self, undo: str = "", *, merge: bool = False) -> Restoration:
        """Take an undo back: the last one, or the one whose `restore` this is."""
        return await self._outcome("redo", {"undo": undo, "merge": merge})

    async def keep(self, **choice: Unpack[ChangeSelection]) -> Restoration:
        """Accept changes: an undo leaves them alone from now on."""
        return await self._outcome("keep", choice)

    async def back_to(
        self, message: int, *, conversation: bool = True, files: bool = True, merge: bool = False
    ) -> Restoration:
        """Go back to before an earlier message of yours: the conversation, the files, or both."""
        body = {"message": message, "conversation": conversation, "files": files, "merge": merge}
        return await self._outcome("back", body)

    async def _outcome(self, word: str, body: Mapping[str, Any]) -> Restoration:
        key, until = new_id("k"), time.monotonic() + self._wait_s
        while True:
            query = {"wait": str(ASK_S)}
            restoration = await self._http.change("POST", f"{self._at}/{word}", body, Restoration, key, query)
            if not restoration.status or time.monotonic() > until:
                return restoration
