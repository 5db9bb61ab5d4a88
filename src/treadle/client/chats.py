"""Chats of a server: a handle sends commands and reads events, and holds nothing; there may be any number."""

import time
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

import msgspec

from treadle.base.types import ChatId, make_id
from treadle.client.http import Http, follow
from treadle.errors import NotFound
from treadle.protocol import http_answers as a
from treadle.protocol.commands import Result
from treadle.protocol.events import Delivery, Envelope, OpenAction
from treadle.protocol.files import FileChange, FileConflict
from treadle.protocol.http_answers import ChangedFile, Changes, RunList, RunView
from treadle.protocol.permissions import RuleScope
from treadle.protocol.tools import DynamicTool
from treadle.protocol.views import ChildView, JobChanges, JobOutput, JobView, Status

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
    """The outcome of a request or preview for the files; with a `status` it is not carried out yet."""

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
        return await self._request_restoration("undo", choice)

    async def redo(self, undo: str = "", *, merge: bool = False) -> Restoration:
        """Take an undo back: the last one, or the one whose `restore` this is."""
        return await self._request_restoration("redo", {"undo": undo, "merge": merge})

    async def keep(self, **choice: Unpack[ChangeSelection]) -> Restoration:
        """Accept changes: an undo leaves them alone from now on."""
        return await self._request_restoration("keep", choice)

    async def back_to(
        self, message: int, *, conversation: bool = True, files: bool = True, merge: bool = False
    ) -> Restoration:
        """Go back to before an earlier message of yours: the conversation, the files, or both."""
        body = {"message": message, "conversation": conversation, "files": files, "merge": merge}
        return await self._request_restoration("back", body)

    async def _request_restoration(self, word: str, body: Mapping[str, Any]) -> Restoration:
        key, until = make_id("k"), time.monotonic() + self._wait_s
        while True:
            query = {"wait": str(ASK_S)}
            restoration = await self._http.change("POST", f"{self._at}/{word}", body, Restoration, key, query)
            if not restoration.status or time.monotonic() > until:
                return restoration


JOB_TAIL = 16_000


class ClientJob:
    """A background command of a chat. `view` is what was known when it was last asked about. Only the server on whose
    machine a job runs can reach it: ApiError `job_elsewhere` from the others."""

    def __init__(self, http: Http, at: str, view: JobView) -> None:
        self.view, self._http = view, http
        self._at = f"{at}/jobs/{view.job}"

    async def tail(self, offset: int = -JOB_TAIL) -> JobOutput:
        """Return the output from a byte on; a negative offset counts from the end. Continue from `next`."""
        return await self._http.get(f"{self._at}/output", JobOutput, {"offset": str(offset)})

    async def send(self, text: str = "", *, enter: bool = True, end: bool = False) -> JobView:
        """Write to its input, with a line end behind it unless `enter` is false; `end` closes the input."""
        payload = {"text": text, "enter": enter, "end": end}
        self.view = await self._http.change("POST", f"{self._at}/input", payload, JobView)
        return self.view

    async def stop(self) -> JobView:
        """End it with everything it started."""
        self.view = await self._http.change("POST", f"{self._at}/stop", {}, JobView)
        return self.view

    async def changes(self) -> JobChanges:
        """Its changes that are not committed, once it has ended."""
        return await self._http.get(f"{self._at}/changes", JobChanges)

    async def commit(self) -> a.Accepted:
        """Commit its changes to the project; the chat's log tells the outcome."""
        return await self._http.change("POST", f"{self._at}/commit", {}, a.Accepted)

    async def discard(self) -> JobView:
        """Discard its changes that are not committed, once it has ended."""
        self.view = await self._http.change("POST", f"{self._at}/discard", {}, JobView)
        return self.view


class ClientChat:
    def __init__(self, http: Http, id: str, patience_s: float, warnings: Sequence[str] = ()) -> None:
        self.id = ChatId(id)
        self.warnings = tuple(warnings)  # Warnings about the options of a chat that was created here.
        self._http, self._patience_s = http, patience_s
        self._at = f"/api/chats/{id}"

    async def send(
        self,
        content: str,
        *,
        delivery: Delivery = "queued",
        images: Sequence[tuple[str, bytes]] = (),
        expand: bool = False,
    ) -> a.Accepted:
        """Say something. A busy chat queues it, or is steered by it (`delivery="steering"`). `images`: each with its
        media type before it. `expand`: for what a person typed; then `/name words` and `@server:uri` stand for what
        `commands` and `resources` list."""
        pictures = [{"media_type": kind, "data": b64encode(data).decode()} for kind, data in images]
        body = {"content": content, "delivery": delivery, "images": pictures, "expand": expand}
        return await self._post("messages", {name: value for name, value in body.items() if value})

    async def commands(self) -> tuple[a.CommandView, ...]:
        """Return what can be typed as `/name words`: own commands, and prompts of the chat's MCP servers."""
        return (await self._http.get(f"{self._at}/commands", a.CommandList)).commands

    async def resources(self) -> tuple[a.ResourceView, ...]:
        """Return the resources that can be attached as `@server:uri`."""
        return (await self._http.get(f"{self._at}/resources", a.ResourceList)).resources

    async def interrupt(self) -> a.Accepted:
        """Stop the run."""
        return await self._post("interrupt", {})

    async def approve(
        self,
        action: OpenAction,
        *,
        arguments: Mapping[str, Any] | None = None,
        offer: int | None = None,
        scope: RuleScope = "chat",
    ) -> a.Accepted:
        """Allow what was shown; with `arguments` something else in its place. With `offer` the rule of that number
        among `action.offers` answers for its like from now on."""
        rule = None if offer is None else {"offer": offer, "scope": scope}
        return await self._decide(action, "allow", arguments=arguments, rule=rule)

    async def deny(self, action: OpenAction, feedback: str = "") -> a.Accepted:
        return await self._decide(action, "deny", feedback=feedback)

    async def _decide(self, action: OpenAction, decision: Literal["allow", "deny"], **more: Any) -> a.Accepted:
        fields = {name: value for name, value in more.items() if value}
        return await self._post(f"approvals/{action.action}", {"decision": decision, "hash": action.hash, **fields})

    async def answer(self, action: OpenAction | str, text: str) -> a.Accepted:
        action_id = action if isinstance(action, str) else action.action
        return await self._post(f"answers/{action_id}", {"answer": text})

    async def submit(self, results: Sequence[Result], key: str = "") -> None:
        """Hand in the results of all open calls of client tools (A-03). `key`: see `Http.change`."""
        payload = [{"tool_call_id": r.tool_call_id, "output": r.output, "is_error": r.is_error} for r in results]
        await self._http.change("POST", f"{self._at}/tool-results", {"results": payload}, object, key)

    async def edit(self, message: int, content: str, *, files: bool = False) -> a.Accepted:
        """Replace your message at this seq and run again from there; with `files` those go back to that point first."""
        payload = {"content": content, "files": files}
        return await self._http.change("PUT", f"{self._at}/messages/{message}", payload, a.Accepted)

    async def arguments(self, action: OpenAction) -> dict[str, Any]:
        """The arguments of a call that waits for approval, as its tool would get them: to change some of them."""
        for each in (await self.info()).actions:
            if each.action == action.action:
                return each.arguments
        raise NotFound("this is not asked any more")

    async def edit_queued(self, queued: str, content: str) -> a.Accepted:
        return await self._http.change("PUT", f"{self._at}/queue/{queued}", {"content": content}, a.Accepted)

    async def delete_queued(self, queued: str) -> a.Accepted:
        return await self._http.change("DELETE", f"{self._at}/queue/{queued}", {}, a.Accepted)

    async def promote(self, queued: str) -> a.Accepted:
        """Make a queued message the next one, steering the run that is under way."""
        return await self._post(f"queue/{queued}/promote", {})

    async def fork(self, seq: int = 0) -> "ClientChat":
        """Begin a new chat as a copy of this one up to an event; without `seq` the whole of it."""
        body = {"seq": seq or (await self.info()).head}
        view = await self._http.change("POST", f"{self._at}/fork", body, a.ChatView)
        return ClientChat(self._http, view.id, self._patience_s, view.warnings)

    async def export(self) -> bytes:
        """The whole log as JSON lines."""
        async with self._http.stream(f"{self._at}/export", {}, {}) as pieces:
            return b"".join([piece async for piece in pieces])

    async def models(self) -> tuple[a.ModelView, ...]:
        """The models that the server offers; `change(model=…)` takes one."""
        return (await self._http.get("/api/models", a.ModelList)).models

    @property
    def files(self) -> ClientFiles:
        """The chat's changes to the files of its project, with undo, redo and keep."""
        return ClientFiles(self._http, self._at)

    async def jobs(self) -> list[ClientJob]:
        """Its background commands, those that run and those that have ended lately: to read, to talk to, to stop."""
        views = (await self._http.get(f"{self._at}/jobs", a.JobList)).jobs
        return [ClientJob(self._http, self._at, view) for view in views]

    async def children(self) -> tuple[ChildView, ...]:
        """The chats that its calls began, and theirs, each behind the one that began it."""
        return (await self._http.get(f"{self._at}/children", a.ChildList)).children

    async def actions(self, *, below: bool = False) -> tuple[a.ActionView, ...]:
        """Return the actions that wait for a person; with `below`, also those of the chats below this one. Answer each
        in the chat that it names: `client.chat(view.chat).approve(view.action)`."""
        return (await self._http.get(f"{self._at}/actions", a.ActionList, {"below": str(below).lower()})).actions

    async def apply(
        self, path: str = "", *, content: str | None = None, block: int = 0, patch: str | None = None
    ) -> a.Accepted:
        """Write a fenced block of the last answer, or `content`, to a file; the events report the result. `block`: its
        number, from 1; optional if there is only one. `patch`: a patch instead of the above, which is applied whole or
        not at all."""
        payload = {"path": path or None, "content": content, "block": block or None, "patch": patch}
        return await self._post("apply", {name: value for name, value in payload.items() if value is not None})

    async def run_command(self, line: str) -> a.Accepted:
        """Run a command of a person's own in the project; the events report the result."""
        return await self._post("apply", {"command": line})

    async def compact(self) -> a.Accepted:
        return await self._post("compact", {})

    async def change(self, /, **changes: Any) -> a.ChatView:
        """Change title, labels or options; `archived=True` archives it."""
        return await self._http.change("PATCH", self._at, changes, a.ChatView)

    async def delete(self) -> None:
        """Delete the chat and its sub-agents for good. One that works is refused: interrupt it first."""
        await self._http.change("DELETE", self._at, {}, object)

    async def info(self) -> a.ChatView:
        """The chat as it is now."""
        return await self._http.get(self._at, a.ChatView)

    async def messages(self, *, limit: int = 50) -> tuple[a.MessageView, ...]:
        """The last entries of the conversation."""
        return (await self._http.get(f"{self._at}/messages", a.MessageList, {"limit": str(limit)})).messages

    def events(self, after_seq: int = 0, *, deltas: bool = True) -> AsyncGenerator[Envelope, None]:
        """Every event behind `after_seq`, and live ones between them, until you leave. Comes back by itself after any
        disconnection: each event comes once and in order, and `assistant.reset` says when partial text comes again."""
        return follow(self._http, self.id, after_seq, deltas, self._patience_s)

    async def _post(self, endpoint: str, body: Mapping[str, Any]) -> a.Accepted:
        return await self._http.change("POST", f"{self._at}/{endpoint}", body, a.Accepted)


class Chats:
    """`tools` are those that new chats are given."""

    def __init__(self, http: Http, tools: Callable[[], Sequence[DynamicTool]], patience_s: float) -> None:
        self._http, self._tools, self._patience_s = http, tools, patience_s

    async def create(self, content: str = "", **options: Any) -> ClientChat:
        """Begin a chat, and with `content` its first run. Options are those of the API: `model`, `root`, `mode`,
        `system_prompt`, `labels`, `title` …; without `dynamic_tools` it gets the tools of this client."""
        options.setdefault("dynamic_tools", self._tools())
        body = {"content": content, **options} if content else options
        view = await self._http.change("POST", "/api/chats", msgspec.to_builtins(body), a.ChatView)
        return ClientChat(self._http, view.id, self._patience_s, view.warnings)

    async def get(self, id: str) -> ClientChat:
        """Return an existing chat. ApiError with status 404 if there is none, or if it belongs to another user."""
        chat = ClientChat(self._http, id, self._patience_s)
        await chat.info()
        return chat

    async def search(self, text: str, *, archived: bool | None = None, limit: int = 50) -> tuple[a.FoundChat, ...]:
        """Chats by words in them, newest change first."""
        query = {"text": text, "limit": str(limit)}
        if archived is not None:
            query["archived"] = str(archived).lower()
        return (await self._http.get("/api/search", a.FoundList, query)).chats

    async def list(
        self, *, status: Status | None = None, archived: bool | None = None, label: str = "", query: str = ""
    ) -> AsyncIterator[a.ChatLine]:
        """Chats, newest change first."""
        filters = {"status": status or "", "label": label, "query": query}
        filters["archived"] = "" if archived is None else str(archived).lower()
        cursor = ""
        while True:
            params = {name: value for name, value in (filters | {"cursor": cursor}).items() if value}
            page = await self._http.get("/api/chats", a.ChatList, params)
            for line in page.chats:
                yield line
            if not (cursor := page.next):
                return
