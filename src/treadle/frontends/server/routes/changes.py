"""Routes for changed files (W-02 to W-04, A-06). Every change is a command, carried out by the worker of the chat."""

import posixpath
import time
from collections.abc import Sequence

import msgspec

from treadle.base.types import ChatId, make_id
from treadle.diff.changes import drop_parents, is_folder
from treadle.diff.diff import FileDiff, build_file_diff
from treadle.engine.effects import load_full_event
from treadle.errors import InvalidInput, OutsideRoot, Refused, RootChanged, ToolError
from treadle.frontends.server.replies import ApiReply, encode_reply
from treadle.frontends.server.routes.conversation import carry_out
from treadle.frontends.server.routing import ApiRequest, Route
from treadle.frontends.server.service import Service
from treadle.library.files import ChatFiles, Completed, RunSpan
from treadle.ports.workspace import escape_name
from treadle.protocol import commands as c
from treadle.protocol import wire
from treadle.protocol.events import Envelope, Restored, UserMessage
from treadle.protocol.files import FileChange
from treadle.protocol.http_answers import Accepted, ChangedFile, Changes, Restoration, RunList, RunView
from treadle.protocol.http_queries import ChangesQuery, Page, WaitQuery
from treadle.protocol.http_requests import ChangeChoice, GoBack, KeepFiles, RedoFiles, UndoFiles

MOST_FILES = 500
MOST_CHARACTERS = 1 << 20  # So much of diffs is shown in one answer.
TASK = 200
PAGE = 500
LOOK_S = 1.0
COMPLETE_S = 20.0  # So long a request waits for one that was begun before it.


async def runs(call: ApiRequest) -> ApiReply:
    query = call.get_query(Page)
    chat, files = await _open_files(call)
    spans = await files.runs()
    views: list[RunView] = []
    for number, span in list(enumerate(spans, 1))[query.after : query.after + query.limit]:
        records = await call.deps.store.read(chat, span.since - 1, 1)
        event = wire.decode(chat, records[0]).data if records else None
        task = event.content[:TASK] if isinstance(event, UserMessage) else ""
        views.append(RunView(run=number, message=span.since, upto=span.upto, content=task))
    return encode_reply(RunList(runs=tuple(views), total=len(spans)))


async def changes(call: ApiRequest) -> ApiReply:
    query = call.get_query(ChangesQuery)
    chat, files = await _open_files(call)
    run: int | str = int(query.run) if query.run.isdecimal() else query.run
    span = await _resolve_span(files, run, query.even_kept)
    paths = await _resolve_log_paths(call.service, chat, (query.path,) if query.path else ())
    all_changes = await files.changes(span, paths, even_kept=query.even_kept)
    visible_changes = sorted(drop_parents(all_changes), key=lambda each: each.path)
    remaining_chars = MOST_CHARACTERS
    looks: list[ChangedFile] = []
    for change in visible_changes[query.after : query.after + query.limit]:
        try:
            look = await files.look(change)
        except RootChanged:
            raise
        except (ToolError, OSError):
            look = build_file_diff(change, (None, None))  # the project is on another machine
        view, remaining_chars = _fit_hunks(look, remaining_chars)
        looks.append(view)
    return encode_reply(Changes(since=span.since, upto=span.upto, files=tuple(looks), total=len(visible_changes)))


def _fit_hunks(look: FileDiff, remaining_chars: int) -> tuple[ChangedFile, int]:
    """As many hunks as there is room for."""
    hunks = []
    for hunk in look.hunks:
        remaining_chars -= sum(map(len, hunk.lines))
        if remaining_chars < 0:
            break
        hunks.append(hunk)
    fields = {name: getattr(look.change, name) for name in ("path", "action", "added", "removed", "before", "after")}
    view = ChangedFile(**fields, notes=look.notes, hunks=tuple(hunks), cut=len(hunks) < len(look.hunks))
    return view, max(remaining_chars, 0)


async def undo(call: ApiRequest) -> ApiReply:
    body = call.get_body(UndoFiles)
    chat, files = await _open_files(call)
    span, paths, hunks = await _resolve_choice(call.service, chat, files, body, body.even_kept)
    completed_restore = await _complete_restore(call.service, chat)
    if completed_restore is not None and completed_restore.request.kind == "redo":  # the last run may be another now
        span, paths, hunks = await _resolve_choice(call.service, chat, files, body, body.even_kept)
    if body.preview:
        plan = await files.preview(span, paths, hunks=hunks, merge=body.merge, even_kept=body.even_kept)
        files_shown, conflicts, total = plan.files[:MOST_FILES], plan.conflicts[:MOST_FILES], _count_files(plan.files)
        view = Restoration(restore="", preview=True, files=files_shown, total=total, conflicts=conflicts, error="")
        return encode_reply(view)
    command = await files.undoing(span, paths, hunks=hunks, merge=body.merge, even_kept=body.even_kept)
    return await _restore(call, command, completed_restore)


async def redo(call: ApiRequest) -> ApiReply:
    body = call.get_body(RedoFiles)
    chat, files = await _open_files(call)
    completed_restore = await _complete_restore(call.service, chat)
    again = completed_restore.request.of if completed_restore is not None else ""
    return await _restore(call, await files.redoing(body.undo or again, merge=body.merge), completed_restore)


async def keep(call: ApiRequest) -> ApiReply:
    body = call.get_body(KeepFiles)
    chat, files = await _open_files(call)
    command = files.keeping(*await _resolve_choice(call.service, chat, files, body))
    return await _restore(call, command, await _complete_restore(call.service, chat))


async def back(call: ApiRequest) -> ApiReply:
    body = call.get_body(GoBack)
    chat, _ = await _open_files(call)
    command = c.Rewind(body.message, body.conversation, body.files, make_id("u") if body.files else "", body.merge)
    return await _restore(call, command, await _complete_restore(call.service, chat) if body.files else None)


async def _complete_restore(service: Service, chat: ChatId) -> Completed | None:
    """Wait for a request that was begun and not ended (W-02). Refused if no worker completes it soon."""
    state = await service.agent.deps.log.load(chat)
    if state.restoring is None or state.run is not None:
        return None
    service.go_on(state)
    restored = await _wait_for_outcome(service, chat, state.restoring.restore, state.head, COMPLETE_S)
    if restored is None:
        problem = f"The {state.restoring.kind} that was begun in this chat has not ended"
        raise Refused("busy", f"{problem}; ask again when a worker is there.")
    return Completed(state.restoring, restored)


async def _restore(call: ApiRequest, command: c.Restore | c.Rewind, completed_restore: Completed | None) -> ApiReply:
    if completed_restore is None or not completed_restore.is_answer_to(command):
        return await carry_out(call, command, restore=command.restore, status=202)
    chat = await call.find_chat()
    answer = encode_reply(await _build_restoration(call.service, chat, completed_restore.outcome_event))
    return await call.service.execute(chat, (), call.key, lambda _state: answer)


async def await_outcome(call: ApiRequest, response: ApiReply) -> ApiReply:
    """With `wait` what came of it, as soon as it is recorded; the first answer when that takes too long."""
    wait_s = call.get_query(WaitQuery).wait
    if response.status != 202 or not wait_s:
        return response
    accepted = msgspec.json.decode(response.body, type=Accepted)
    if not accepted.restore:  # only the conversation went back, and that is done
        return encode_reply(Restoration(restore="", preview=False, files=(), total=0, conflicts=(), error=""))
    restored = await _wait_for_outcome(call.service, ChatId(accepted.chat), accepted.restore, accepted.head, wait_s)
    if restored is None:
        return response
    return encode_reply(await _build_restoration(call.service, ChatId(accepted.chat), restored))


async def _wait_for_outcome(service: Service, chat: ChatId, restore: str, seq: int, wait_s: float) -> Restored | None:
    store = service.agent.deps.store
    until = time.monotonic() + wait_s
    while True:
        while records := await store.read(chat, seq, PAGE):
            seq = records[-1].seq
            for record in records:
                event = wire.decode(chat, record).data
                if isinstance(event, Restored) and event.restore == restore:
                    return event
        remaining_s = until - time.monotonic()
        if remaining_s <= 0 or service.draining.is_set():
            return None
        await store.wait(chat, seq, min(remaining_s, LOOK_S))


async def _build_restoration(service: Service, chat: ChatId, restored: Restored) -> Restoration:
    """The outcome, with the complete list of files unless that is lost."""
    full = (await load_full_event(service.agent.deps.store, Envelope(0, chat, 0, restored))).data
    assert isinstance(full, Restored)
    total = _count_files(full.files) if len(full.files) >= full.total else full.total
    fields = {name: getattr(full, name) for name in ("restore", "files", "conflicts", "error")}
    return Restoration(preview=False, total=total, **fields)


def _count_files(files: Sequence[FileChange]) -> int:
    return sum(not is_folder(file) for file in files)


async def _open_files(call: ApiRequest) -> tuple[ChatId, ChatFiles]:
    state = await call.load_state()
    await call.service.require_project(state)
    return state.chat, call.service.agent.chat(state.chat).files


async def _resolve_choice(
    service: Service, chat: ChatId, files: ChatFiles, choice: ChangeChoice, even_kept: bool = False
) -> tuple[RunSpan, tuple[str, ...], dict[str, tuple[int, ...]]]:
    if choice.paths and choice.hunks:
        raise InvalidInput("Name either files (paths) or hunks; a hunk names its file itself.")
    paths = await _resolve_log_paths(service, chat, (*choice.paths, *choice.hunks))
    hunks = dict(zip(paths, choice.hunks.values(), strict=True)) if choice.hunks else {}
    if not (choice.since or choice.upto):
        return await _resolve_span(files, choice.run, even_kept), paths, hunks
    if choice.run != "last":
        raise InvalidInput("Name either a run, or since and upto.")
    return RunSpan(choice.since, choice.upto), paths, hunks


async def _resolve_span(files: ChatFiles, run: int | str, even_kept: bool) -> RunSpan:
    if run == "all":
        return RunSpan()
    if isinstance(run, str):
        return await files.last_run(even_kept=even_kept)
    spans = await files.runs()
    if run > len(spans):
        last = f"the last one that may have changed files is {len(spans)}" if spans else "none has changed files"
        raise InvalidInput(f"There is no run {run} in this chat; {last}.")
    return spans[run - 1]


async def _resolve_log_paths(service: Service, chat: ChatId, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Paths as the log has them. Nothing on disk is looked at: they only choose among what was recorded."""
    if not paths:
        return ()
    root = (await service.agent.deps.log.load(chat)).options.root
    return tuple(path if path.startswith("//") else _require_inside(root, path) for path in paths)


def _require_inside(root: str, path: str) -> str:
    normal = posixpath.normpath(path)
    if posixpath.isabs(normal):
        normal = posixpath.relpath(normal, root or "/")
    if normal == ".." or normal.startswith("../"):
        raise OutsideRoot(f"{escape_name(path)} is outside the project.")
    return normal


TAG = "files"
_AT = "/api/chats/{chat}"
_CODES = ("archived", "busy", "awaiting_action", "invalid_input", "root_changed")
ROUTES = (
    Route("GET", f"{_AT}/runs", runs, "List the runs that may have changed files.", reply=RunList, query=Page),
    Route("GET", f"{_AT}/changes", changes, "List the changes of a chat and their present state, by hunk.",
          reply=Changes, query=ChangesQuery, codes=("invalid_input", "outside_root", "root_changed")),
    Route("POST", f"{_AT}/undo", undo, "Take changes of files back, or see what that would do.", 202, Accepted,
          body=UndoFiles, query=WaitQuery, codes=(*_CODES, "tool", "outside_root"), finish=await_outcome,
          finished=Restoration),
    Route("POST", f"{_AT}/redo", redo, "Take an undo back.", 202, Accepted, body=RedoFiles, query=WaitQuery,
          codes=_CODES, finish=await_outcome, finished=Restoration),
    Route("POST", f"{_AT}/keep", keep, "Accept changes: an undo leaves them alone from now on.", 202, Accepted,
          body=KeepFiles, query=WaitQuery, codes=(*_CODES, "outside_root"), finish=await_outcome, finished=Restoration),
    Route("POST", f"{_AT}/back", back, "Go back to before an earlier message: conversation, files, or both.", 202,
          Accepted, body=GoBack, query=WaitQuery, codes=(*_CODES, "no_such_message"), finish=await_outcome,
          finished=Restoration),
)  # fmt: skip
