"""Very many changes of files: the first of them for an event, all of them in a blob (D-06)."""

from collections.abc import Sequence

import msgspec

from treadle.ports.store import Store
from treadle.protocol.files import FileChange

SHOWN = 200
"""So many changes stand in one event."""


class Spilled(msgspec.Struct, frozen=True):
    """Changes as an event carries them."""

    files: tuple[FileChange, ...]
    manifest: str = ""
    total: int = 0


async def spill(files: Sequence[FileChange], store: Store) -> Spilled:
    if len(files) <= SHOWN:
        return Spilled(tuple(files))
    return Spilled(tuple(files[:SHOWN]), await store.put_blob(msgspec.json.encode(files)), len(files))
