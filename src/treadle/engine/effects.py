"""Reads the records about files of the project from a log: changes, undos, and the blobs that they refer to. Of very
many changes only the first are in the log, and all of them in a blob (D-06)."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from typing import get_args

import msgspec

from treadle.base.types import ChatId
from treadle.chat.ledger import Change, LedgerEntry
from treadle.errors import Damaged, NotFound
from treadle.ports.store import Store
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.files import FileChange
from treadle.protocol.references import Reference, iterate_references, list_referring_types

_PAGE = 5_000
_SHORT_PAGE = 500
_LEDGER = {kind.TYPE for kind in (*get_args(Change), e.RestoreRequested, e.CheckpointCreated, e.SessionImported)}
_manifests = msgspec.json.Decoder(tuple[FileChange, ...])
SHOWN = 200  # so many changes stand in one event


class Ledger(msgspec.Struct, frozen=True):
    entries: tuple[LedgerEntry, ...] = ()
    requests: tuple[e.RestoreRequested, ...] = ()
    checkpoints: tuple[int, ...] = ()  # the messages that began runs which changed something, or might have


async def read_ledger(store: Store, chat: ChatId) -> Ledger:
    """Read the records about files. Of an imported chat only records after the import count."""
    entries: list[LedgerEntry] = []
    requests: list[e.RestoreRequested] = []
    checkpoints: list[int] = []
    async for seq, event in stream_events(store, chat, _LEDGER):
        if isinstance(event, e.RestoreRequested):
            requests.append(event)
        elif isinstance(event, e.CheckpointCreated):
            checkpoints.append(event.message)
        elif isinstance(event, e.SessionImported):
            entries, requests, checkpoints = [], [], []
        elif isinstance(event, Change):
            files, request = event.files, None
            if event.manifest:
                try:
                    files = await _read_manifest(store, event.manifest)
                except (NotFound, Damaged) as error:
                    raise Damaged(
                        f"the list of the {event.total:,} files that event {seq} changed is lost ({error}), so what "
                        "this chat changed can be neither shown nor undone; an export from before may still have it"
                    ) from error
            if not isinstance(event, e.FilesChanged):
                request = next((each for each in reversed(requests) if each.restore == event.restore), None)
            entries.append(LedgerEntry(seq, event, files, request))
    return Ledger(tuple(entries), tuple(requests), tuple(checkpoints))


async def stream_events(
    store: Store, chat: ChatId, types: Collection[str], *, page: int = _PAGE
) -> AsyncIterator[tuple[int, e.Event]]:
    """The events of some types with their seqs; of the log, only these are read, page by page."""
    since = 0
    while records := await store.read_types(chat, types, after_seq=since, limit=page):
        since = records[-1].seq
        for record in records:
            yield record.seq, wire.decode(chat, record).data


async def load_full_event(store: Store, envelope: e.Envelope) -> e.Envelope:
    """The event with all files that it is about, where the log has only the first; as it is if the rest is lost."""
    event = envelope.data
    if not isinstance(event, Change) or not event.manifest:
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


async def stream_references(store: Store, chat: ChatId) -> AsyncIterator[tuple[int, Reference]]:
    """Yield all references of a log, with the seq of the event; the references in a manifest follow it. A lost manifest
    hides only references that it alone listed."""
    async for seq, event in stream_events(
        store, chat, list_referring_types(), page=_SHORT_PAGE
    ):  # others are served in between
        for reference in iterate_references(event):
            yield seq, reference
            if reference.kind == "manifest":
                with suppress(NotFound, Damaged):
                    for file in await _read_manifest(store, reference.digest):
                        for listed in iterate_references(file):
                            yield seq, listed


async def find_import_seq(store: Store, chat: ChatId) -> int:
    """Up to which event a log tells of another machine; 0: it is all of this one."""
    import_seq = 0
    async for seq, _ in stream_events(store, chat, {e.SessionImported.TYPE}):
        import_seq = seq
    return import_seq


class Spilled(msgspec.Struct, frozen=True):
    files: tuple[FileChange, ...]
    manifest: str = ""
    total: int = 0


async def spill(files: Sequence[FileChange], store: Store) -> Spilled:
    if len(files) <= SHOWN:
        return Spilled(tuple(files))
    return Spilled(tuple(files[:SHOWN]), await store.put_blob(msgspec.json.encode(files)), len(files))
