"""The changed files of a chat over HTTP, `chat.files`: list, undo, redo, keep. Whoever drives the chat carries it out;
a request is repeated under its key until the outcome is there."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

import msgspec

from treadle.client.http import Http
from treadle.protocol.files import FileChange, FileConflict
from treadle.protocol.http_answers import ChangedFile, Changes, RunList, RunView
from treadle.types import new_id

Run = int | Literal["last", "all"]
"""last: the newest run of which something is left; a number: as `runs` counts them."""

PAGE = 100
ASK_S = 20
"""For how long one request waits."""


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
    """What became of the files, or would. With a `status` it is not known yet: nobody has carried it out so far."""

    restore: str = ""
    """Its name; of an undo, what a redo refers to."""
    status: str = ""
    files: tuple[FileChange, ...] = ()
    total: int = 0
    conflicts: tuple[FileConflict, ...] = ()
    """What was left alone, and why."""
    error: str = ""
    """Why nothing was done at all."""


class ClientFiles:
    """`wait_s`: for how long an outcome is waited for. One that has not come by then has a `status` in its place."""

    def __init__(self, http: Http, at: str, wait_s: float = 120.0) -> None:
        self._http = http
        self._at = at
        self._wait_s = wait_s

    async def runs(self) -> tuple[RunView, ...]:
        """The runs that changed something, or might have, oldest first."""
        found: tuple[RunView, ...] = ()
        while True:
            query = {"after": str(len(found)), "limit": str(PAGE)}
            page = await self._http.get(f"{self._at}/runs", RunList, query)
            found += page.runs
            if not page.runs or len(found) >= page.total:
                return found

    async def changes(self, run: Run = "last", path: str = "", *, even_kept: bool = False) -> tuple[ChangedFile, ...]:
        """What is left of the chat's changes, with hunks, numbered as `undo` and `keep` take them."""
        wanted = {"run": str(run), "path": path, "even_kept": str(even_kept).lower(), "limit": str(PAGE)}
        found: tuple[ChangedFile, ...] = ()
        while True:
            page = await self._http.get(f"{self._at}/changes", Changes, wanted | {"after": str(len(found))})
            found += page.files
            if not page.files or len(found) >= page.total:
                return found

    async def preview(self, **choice: Unpack[UndoSelection]) -> Restoration:
        """What an undo of the same would do now. Changes nothing."""
        return await self._http.change("POST", f"{self._at}/undo", {**choice, "preview": True}, Restoration)

    async def undo(self, **choice: Unpack[UndoSelection]) -> Restoration:
        """Take changes back: of the last run, or of others. What somebody changed since is left alone, or merged
        (`merge=True`); what was kept stays unless `even_kept=True`."""
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
        wanted = {"message": message, "conversation": conversation, "files": files, "merge": merge}
        return await self._outcome("back", wanted)

    async def _outcome(self, word: str, body: Mapping[str, Any]) -> Restoration:
        key, until = new_id("k"), time.monotonic() + self._wait_s
        while True:
            query = {"wait": str(ASK_S)}
            found = await self._http.change("POST", f"{self._at}/{word}", body, Restoration, key, query)
            if not found.status or time.monotonic() > until:
                return found
