"""Routes for changed files: list, undo, redo, keep (W-02 to W-04, A-06). Looking asks the log and the snapshots of this
machine; every change is a command, carried out by whoever drives the chat, here or elsewhere."""

import posixpath
import time
from collections.abc import Sequence

import msgspec

from treadle.engine.effects import whole_list
from treadle.errors import InvalidInput, OutsideRoot, Refused, RootChanged, ToolError
from treadle.files import ChatFiles, Completed, RunSpan
from treadle.lines.changes import is_folder, without_parents
from treadle.lines.hunks import Shown, shown
from treadle.ports.snapshots import Plan
from treadle.ports.workspace import inert
from treadle.protocol import commands as c
from treadle.protocol import wire
from treadle.protocol.events import Envelope, Restored, UserMessage
from treadle.protocol.files import FileChange
from treadle.protocol.http_answers import Accepted, ChangedFile, Changes, Restoration, RunList, RunView
from treadle.protocol.http_queries import ChangesQuery, Page, WaitQuery
from treadle.protocol.http_requests import ChangeChoice, GoBack, KeepFiles, RedoFiles, UndoFiles
from treadle.server.replies import ApiReply, reply
from treadle.server.routes.conversation import carry_out
from treadle.server.routing import ApiRequest, Route
from treadle.server.service import Service
from treadle.types import ChatId, new_id

MOST_FILES = 500
MOST_CHARACTERS = 1 << 20
"""So much of diffs is shown in one answer."""
TASK = 200
PAGE = 500
LOOK_S = 1.0
COMPLETE_S = 20.0
"""So long a request waits for one that was begun before it."""

# -- looking ----------------------------------------------------------------------------------------------------------


async def runs(call: ApiRequest) -> ApiReply:
    wanted = call.query(Page)
    chat, files = await _files(call)
    found = await files.runs()
    page = list(enumerate(found, 1))[wanted.after : wanted.after + wanted.limit]
    shown = [
        RunView(run=number, message=span.since, upto=span.upto, content=await _task(call.service, chat, span.since))
        for number, span in page
    ]
    return reply(RunList(runs=tuple(shown), total=len(found)))


async def _task(service: Service, chat: ChatId, message: int) -> str:
    for record in await service.agent.deps.store.read(chat, message - 1, 1):
        said = wire.decode(chat, record).data
        return said.content[:TASK] if isinstance(said, UserMessage) else ""
    return ""


async def changes(call: ApiRequest) -> ApiReply:
    wanted = call.query(ChangesQuery)
    chat, files = await _files(call)
    run: int | str = int(wanted.run) if wanted.run.isdecimal() else wanted.run
    span = await _span(files, run, wanted.even_kept)
    paths = await _recorded(call.service, chat, (wanted.path,) if wanted.path else ())
    found = await files.changes(span, paths, even_kept=wanted.even_kept)
    told = sorted(without_parents(found), key=lambda each: each.path)
    page = told[wanted.after : wanted.after + wanted.limit]
    left = MOST_CHARACTERS
    looks: list[ChangedFile] = []
    for change in page:
        look, left = _fitting(await _look(files, change), left)
        looks.append(look)
    return reply(Changes(since=span.since, upto=span.upto, files=tuple(looks), total=len(told)))


async def _look(files: ChatFiles, change: FileChange) -> Shown:
    try:
        return await files.look(change)
    except RootChanged:
        raise
    except (ToolError, OSError):
        return shown(change, (None, None))  # the project is on another machine


def _fitting(look: Shown, left: int) -> tuple[ChangedFile, int]:
    """As many hunks as there is room for."""
    hunks = []
    for hunk in look.hunks:
        left -= sum(map(len, hunk.lines))
        if left < 0:
            break
        hunks.append(hunk)
    change = look.change
    fitting = ChangedFile(
        path=change.path,
        action=change.action,
        added=change.added,
        removed=change.removed,
        before=change.before,
        after=change.after,
        notes=look.notes,
        hunks=tuple(hunks),
        cut=len(hunks) < len(look.hunks),
    )
    return fitting, max(left, 0)


# -- going back and forth ---------------------------------------------------------------------------------------------


async def undo(call: ApiRequest) -> ApiReply:
    wanted = call.body(UndoFiles)
    chat, files = await _files(call)
    span, paths, hunks = await _chosen(call.service, chat, files, wanted, wanted.even_kept)
    begun = await _completed(call.service, chat)
    if begun is not None and begun.request.kind == "redo":  # the last run may be another now
        span, paths, hunks = await _chosen(call.service, chat, files, wanted, wanted.even_kept)
    if wanted.preview:
        plan = await files.preview(span, paths, hunks=hunks, merge=wanted.merge, even_kept=wanted.even_kept)
        return reply(_planned(plan))
    command = await files.undoing(span, paths, hunks=hunks, merge=wanted.merge, even_kept=wanted.even_kept)
    return await _restore(call, command, begun)


async def redo(call: ApiRequest) -> ApiReply:
    wanted = call.body(RedoFiles)
    chat, files = await _files(call)
    begun = await _completed(call.service, chat)
    again = begun.request.of if begun is not None else ""
    return await _restore(call, await files.redoing(wanted.undo or again, merge=wanted.merge), begun)


async def keep(call: ApiRequest) -> ApiReply:
    wanted = call.body(KeepFiles)
    chat, files = await _files(call)
    command = files.keeping(*await _chosen(call.service, chat, files, wanted))
    return await _restore(call, command, await _completed(call.service, chat))


async def back(call: ApiRequest) -> ApiReply:
    wanted = call.body(GoBack)
    chat, _ = await _files(call)
    restore = new_id("u") if wanted.files else ""
    command = c.Rewind(wanted.message, wanted.conversation, wanted.files, restore, wanted.merge)
    return await _restore(call, command, await _completed(call.service, chat) if wanted.files else None)


async def _completed(service: Service, chat: ChatId) -> Completed | None:
    """A request that was begun and not ended comes first: until then the project is neither as before nor as after
    (W-02). Refused if nobody completes it soon: the one who does may be a worker elsewhere."""
    state = await service.agent.deps.log.load(chat)
    if state.restoring is None or state.run is not None:
        return None
    service.go_on(state)
    done = await _recorded_outcome(service, chat, state.restoring.restore, state.head, COMPLETE_S)
    if done is None:
        kind = state.restoring.kind
        raise Refused(
            "busy", f"The {kind} that was begun in this chat has not ended; ask again when a worker is there."
        )
    return Completed(state.restoring, done)


async def _restore(call: ApiRequest, command: c.Restore | c.Rewind, begun: Completed | None) -> ApiReply:
    if begun is None or not begun.answers(command):
        return await carry_out(call, command, restore=command.restore, status=202)
    chat = await call.service.owned(call.user, call.path("chat"))
    answer = reply(_done(await _whole(call.service, chat, begun.done)))
    done, _ = await call.service.execute(chat, (), call.key, lambda _state: answer)
    return done


async def outcome(call: ApiRequest, done: ApiReply) -> ApiReply:
    """With `wait` what came of it, as soon as it is recorded; the first answer when that takes too long."""
    wait_s = call.query(WaitQuery).wait
    if done.status != 202 or not wait_s:
        return done
    asked = msgspec.json.decode(done.body, type=Accepted)
    if not asked.restore:  # only the conversation went back, and that is done
        return reply(Restoration(restore="", preview=False, files=(), total=0, conflicts=(), error=""))
    found = await _recorded_outcome(call.service, ChatId(asked.chat), asked.restore, asked.head, wait_s)
    if found is None:
        return done
    return reply(_done(await _whole(call.service, ChatId(asked.chat), found)))


async def _recorded_outcome(service: Service, chat: ChatId, restore: str, after: int, wait_s: float) -> Restored | None:
    store = service.agent.deps.store
    until = time.monotonic() + wait_s
    while True:
        while records := await store.read(chat, after, PAGE):
            after = records[-1].seq
            for record in records:
                said = wire.decode(chat, record).data
                if isinstance(said, Restored) and said.restore == restore:
                    return said
        left = until - time.monotonic()
        if left <= 0 or service.draining.is_set():
            return None
        await store.wait(chat, after, min(left, LOOK_S))


async def _whole(service: Service, chat: ChatId, done: Restored) -> Restored:
    """What came of it with all files, however many they are."""
    found = (await whole_list(service.agent.deps.store, Envelope(0, chat, 0, done))).data
    assert isinstance(found, Restored)
    return found


def _done(said: Restored) -> Restoration:
    return Restoration(
        restore=said.restore,
        preview=False,
        files=said.files,
        total=_number(said.files) if len(said.files) >= said.total else said.total,  # the list may be lost
        conflicts=said.conflicts,
        error=said.error,
    )


def _number(files: Sequence[FileChange]) -> int:
    return sum(not is_folder(file) for file in files)


def _planned(plan: Plan) -> Restoration:
    return Restoration(
        restore="",
        preview=True,
        files=plan.files[:MOST_FILES],
        total=_number(plan.files),
        conflicts=plan.conflicts[:MOST_FILES],
        error="",
    )


# -- which changes are meant ------------------------------------------------------------------------------------------


async def _files(call: ApiRequest) -> tuple[ChatId, ChatFiles]:
    state = await call.service.state(call.user, call.path("chat"))
    await call.service.project(state)
    return state.chat, call.service.agent.chat(state.chat).files


async def _chosen(
    service: Service, chat: ChatId, files: ChatFiles, wanted: ChangeChoice, even_kept: bool = False
) -> tuple[RunSpan, tuple[str, ...], dict[str, tuple[int, ...]]]:
    if wanted.paths and wanted.hunks:
        raise InvalidInput("Name either files (paths) or hunks; a hunk names its file itself.")
    paths = await _recorded(service, chat, (*wanted.paths, *wanted.hunks))
    hunks = dict(zip(paths, wanted.hunks.values(), strict=True)) if wanted.hunks else {}
    if not (wanted.since or wanted.upto):
        return await _span(files, wanted.run, even_kept), paths, hunks
    if wanted.run != "last":
        raise InvalidInput("Name either a run, or since and upto.")
    return RunSpan(wanted.since, wanted.upto), paths, hunks


async def _span(files: ChatFiles, run: int | str, even_kept: bool) -> RunSpan:
    if run == "all":
        return RunSpan()
    if isinstance(run, str):
        return await files.last_run(even_kept=even_kept)
    found = await files.runs()
    if run > len(found):
        last = f"the last one that may have changed files is {len(found)}" if found else "none has changed files"
        raise InvalidInput(f"There is no run {run} in this chat; {last}.")
    return found[run - 1]


async def _recorded(service: Service, chat: ChatId, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Paths as the log has them. Nothing on disk is looked at: they only choose among what was recorded."""
    if not paths:
        return ()
    root = (await service.agent.deps.log.load(chat)).options.root
    return tuple(path if path.startswith("//") else _inside(root, path) for path in paths)


def _inside(root: str, path: str) -> str:
    normal = posixpath.normpath(path)
    if posixpath.isabs(normal):
        normal = posixpath.relpath(normal, root or "/")
    if normal == ".." or normal.startswith("../"):
        raise OutsideRoot(f"{inert(path)} is outside the project.")
    return normal


TAG = "files"
_AT = "/api/chats/{chat}"
_CODES = ("archived", "busy", "awaiting_action", "invalid_input", "root_changed")
ROUTES = (
    Route("GET", f"{_AT}/runs", runs, "List the runs that may have changed files.", TAG, reply=RunList, query=Page),
    Route(
        "GET", f"{_AT}/changes", changes, "List the changes of a chat and their present state, by hunk.", TAG,
        reply=Changes, query=ChangesQuery, codes=("invalid_input", "outside_root", "root_changed"),
    ),
    Route(
        "POST", f"{_AT}/undo", undo, "Take changes of files back, or see what that would do.", TAG, 202, Accepted,
        body=UndoFiles, query=WaitQuery, codes=(*_CODES, "tool", "outside_root"), finish=outcome, finished=Restoration,
    ),
    Route(
        "POST", f"{_AT}/redo", redo, "Take an undo back.", TAG, 202, Accepted,
        body=RedoFiles, query=WaitQuery, codes=_CODES, finish=outcome, finished=Restoration,
    ),
    Route(
        "POST", f"{_AT}/keep", keep, "Accept changes: an undo leaves them alone from now on.", TAG, 202, Accepted,
        body=KeepFiles, query=WaitQuery, codes=(*_CODES, "outside_root"), finish=outcome, finished=Restoration,
    ),
    Route(
        "POST", f"{_AT}/back", back, "Go back to before an earlier message: conversation, files, or both.", TAG, 202,
        Accepted, body=GoBack, query=WaitQuery, codes=(*_CODES, "no_such_message"), finish=outcome,
        finished=Restoration,
    ),
)  # fmt: skip
