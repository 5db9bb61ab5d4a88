"""What a call did to the files of the project, as events; and the way back to them. Of very many changes only the first
stand in the log, and all of them in a blob (D-06)."""

from collections.abc import AsyncIterator

import msgspec

from treadle.chat.ledger import Entry
from treadle.engine.deps import Deps
from treadle.errors import Damaged, NotFound
from treadle.ports.store import Store
from treadle.ports.toolset import Outcome
from treadle.protocol import wire
from treadle.protocol.events import (
    CheckpointCreated,
    Envelope,
    Event,
    FilesChanged,
    Kept,
    Redone,
    RestoreRequested,
    SessionImported,
    Undone,
    WorkspaceConflict,
)
from treadle.protocol.files import FileChange
from treadle.protocol.references import REFERRING, Reference, references
from treadle.types import CallKey, ChatId

_PAGE = 5_000
_SHORT_PAGE = 500
_LEDGER = {
    kind.TYPE for kind in (FilesChanged, Undone, Redone, Kept, RestoreRequested, CheckpointCreated, SessionImported)
}
_manifests = msgspec.json.Decoder(tuple[FileChange, ...])


async def workspace_events(call: CallKey, outcome: Outcome | None, deps: Deps) -> list[Event]:
    """What stands behind a call's result: what it changed, or what kept it from changing anything."""
    events: list[Event] = []
    if outcome is None:
        return events
    if outcome.files or outcome.uncaptured:
        all_of = await deps.spill(outcome.files)
        events.append(
            FilesChanged(
                all_of.files,
                call,
                outcome.source,
                all_of.manifest,
                all_of.total,
                outcome.uncaptured,
                outcome.git,
            )
        )
    if outcome.conflicts:
        events.append(WorkspaceConflict(outcome.conflicts, call))
    return events


class Ledger(msgspec.Struct, frozen=True):
    """The history of the project's files, out of the log."""

    entries: tuple[Entry, ...] = ()
    requests: tuple[RestoreRequested, ...] = ()
    checkpoints: tuple[int, ...] = ()
    """The messages that began runs which changed something, or might have."""


async def read_ledger(store: Store, chat: ChatId) -> Ledger:
    """What was recorded about files here: of a chat from elsewhere, what came after it was brought here. Reads the log
    in pages and decodes only what it is about."""
    entries: list[Entry] = []
    requests: list[RestoreRequested] = []
    checkpoints: list[int] = []
    since = 0
    while records := await store.read(chat, after=since, limit=_PAGE):
        since = records[-1].seq
        for record in records:
            if record.type not in _LEDGER:
                continue
            event = wire.decode(chat, record).data
            if isinstance(event, RestoreRequested):
                requests.append(event)
            elif isinstance(event, CheckpointCreated):
                checkpoints.append(event.message)
            elif isinstance(event, SessionImported):
                entries, requests, checkpoints = [], [], []
            elif isinstance(event, FilesChanged | Undone | Redone | Kept):
                files = await _all_files(event, record.seq, store)
                entries.append(Entry(record.seq, event, files, _asked(event, requests)))
    return Ledger(tuple(entries), tuple(requests), tuple(checkpoints))


def _asked(event: FilesChanged | Undone | Redone | Kept, requests: list[RestoreRequested]) -> RestoreRequested | None:
    if isinstance(event, FilesChanged):
        return None
    return next((request for request in reversed(requests) if request.restore == event.restore), None)


async def _all_files(event: FilesChanged | Undone | Redone | Kept, seq: int, store: Store) -> tuple[FileChange, ...]:
    if not event.manifest:
        return event.files
    try:
        return await _read_manifest(store, event.manifest)
    except (NotFound, Damaged) as error:
        raise Damaged(
            f"the list of the {event.total:,} files that event {seq} changed is lost ({error}), so what this chat "
            "changed can be neither shown nor undone; an export from before may still have it"
        ) from error


async def whole_list(store: Store, envelope: Envelope) -> Envelope:
    """The event with all files that it is about, where the log has only the first; as it is if the rest is lost."""
    event = envelope.data
    if not isinstance(event, FilesChanged | Undone | Redone | Kept) or not event.manifest:
        return envelope
    try:
        files = await _read_manifest(store, event.manifest)
    except (NotFound, Damaged):
        return envelope
    return msgspec.structs.replace(envelope, data=msgspec.structs.replace(event, files=files))


async def _read_manifest(store: Store, digest: str) -> tuple[FileChange, ...]:
    try:
        return _manifests.decode(await store.get_blob(digest))
    except msgspec.MsgspecError as error:
        raise Damaged(f"blob {digest} is no list of changes: {error}") from error


async def all_references(store: Store, chat: ChatId) -> AsyncIterator[tuple[int, Reference]]:
    """Everything that a log refers to, with the seq of the event; what manifests list follows them. A manifest
    that is lost hides only what it alone listed."""
    since = 0
    while records := await store.read(chat, after=since, limit=_SHORT_PAGE):  # others are served in between
        since = records[-1].seq
        for record in records:
            if record.type not in REFERRING:
                continue
            for found in references(wire.decode(chat, record).data):
                yield record.seq, found
                for listed in await _listed(store, found):
                    yield record.seq, listed


async def imported_at(store: Store, chat: ChatId) -> int:
    """Up to which event a log tells of another machine; 0: it is all of this one."""
    since = found = 0
    while records := await store.read(chat, after=since, limit=_PAGE):
        since = records[-1].seq
        found = max((record.seq for record in records if record.type == SessionImported.TYPE), default=found)
    return found


async def _listed(store: Store, found: Reference) -> list[Reference]:
    try:
        files = await _read_manifest(store, found.digest) if found.kind == "manifest" else ()
    except (NotFound, Damaged):
        return []
    return [reference for file in files for reference in references(file)]
