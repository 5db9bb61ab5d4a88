"""Reads the records about files of the project from a log: changes, undos, and the blobs that they refer to. Of very
many changes only the first are in the log, and all of them in a blob (D-06)."""

from collections.abc import AsyncIterator, Collection, Sequence

import msgspec

from treadle.base.types import ChatId
from treadle.chat.ledger import LedgerEntry
from treadle.errors import Damaged, NotFound
from treadle.ports.store import Store
from treadle.protocol import wire
from treadle.protocol.events import (
    ChangesKept,
    CheckpointCreated,
    Envelope,
    Event,
    FilesChanged,
    Redone,
    RestoreRequested,
    SessionImported,
    Undone,
)
from treadle.protocol.files import FileChange
from treadle.protocol.references import Reference, references, referring

_PAGE = 5_000
_SHORT_PAGE = 500
_LEDGER = {
    kind.TYPE
    for kind in (FilesChanged, Undone, Redone, ChangesKept, RestoreRequested, CheckpointCreated, SessionImported)
}
_manifests = msgspec.json.Decoder(tuple[FileChange, ...])


SHOWN = 200
"""So many changes stand in one event."""


class Ledger(msgspec.Struct, frozen=True):
    """The history of the project's files, out of the log."""

    entries: tuple[LedgerEntry, ...] = ()
    requests: tuple[RestoreRequested, ...] = ()
    checkpoints: tuple[int, ...] = ()
    """The messages that began runs which changed something, or might have."""


async def read_ledger(store: Store, chat: ChatId) -> Ledger:
    """Read the records about files. Of an imported chat only records after the import count."""
    entries: list[LedgerEntry] = []
    requests: list[RestoreRequested] = []
    checkpoints: list[int] = []
    async for seq, event in events_of(store, chat, _LEDGER):
        if isinstance(event, RestoreRequested):
            requests.append(event)
        elif isinstance(event, CheckpointCreated):
            checkpoints.append(event.message)
        elif isinstance(event, SessionImported):
            entries, requests, checkpoints = [], [], []
        elif isinstance(event, FilesChanged | Undone | Redone | ChangesKept):
            files = await _all_files(event, seq, store)
            entries.append(LedgerEntry(seq, event, files, _find_request(event, requests)))
    return Ledger(tuple(entries), tuple(requests), tuple(checkpoints))


async def events_of(
    store: Store, chat: ChatId, types: Collection[str], *, page: int = _PAGE
) -> AsyncIterator[tuple[int, Event]]:
    """The events of some types with their seqs; of the log, only these are read, page by page."""
    since = 0
    while records := await store.read_types(chat, types, after_seq=since, limit=page):
        since = records[-1].seq
        for record in records:
            yield record.seq, wire.decode(chat, record).data


def _find_request(
    event: FilesChanged | Undone | Redone | ChangesKept, requests: list[RestoreRequested]
) -> RestoreRequested | None:
    if isinstance(event, FilesChanged):
        return None
    return next((request for request in reversed(requests) if request.restore == event.restore), None)


async def _all_files(
    event: FilesChanged | Undone | Redone | ChangesKept, seq: int, store: Store
) -> tuple[FileChange, ...]:
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
    if not isinstance(event, FilesChanged | Undone | Redone | ChangesKept) or not event.manifest:
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
    """Yield all references of a log, with the seq of the event; the references in a manifest follow it. A lost manifest
    hides only references that it alone listed."""
    async for seq, event in events_of(store, chat, referring(), page=_SHORT_PAGE):  # others are served in between
        for reference in references(event):
            yield seq, reference
            for listed in await _listed(store, reference):
                yield seq, listed


async def imported_at(store: Store, chat: ChatId) -> int:
    """Up to which event a log tells of another machine; 0: it is all of this one."""
    import_seq = 0
    async for seq, _ in events_of(store, chat, {SessionImported.TYPE}):
        import_seq = seq
    return import_seq


async def _listed(store: Store, parent_reference: Reference) -> list[Reference]:
    try:
        files = await _read_manifest(store, parent_reference.digest) if parent_reference.kind == "manifest" else ()
    except (NotFound, Damaged):
        return []
    return [reference for file in files for reference in references(file)]


class Spilled(msgspec.Struct, frozen=True):
    """Changes as an event carries them."""

    files: tuple[FileChange, ...]
    manifest: str = ""
    total: int = 0


async def spill(files: Sequence[FileChange], store: Store) -> Spilled:
    if len(files) <= SHOWN:
        return Spilled(tuple(files))
    return Spilled(tuple(files[:SHOWN]), await store.put_blob(msgspec.json.encode(files)), len(files))
