"""What `treadle fsck` has to say, whatever the store (D-06)."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from treadle.protocol.events import Event, ExecutionComplete, QueueChanged, UserMessage


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong, and whether it was mended."""

    kind: Literal["database", "record", "gap", "head", "summary", "orphan", "blob", "image", "changes", "snapshot"]
    text: str
    chat: str = ""
    seq: int = 0
    repaired: bool = False


def named_blobs(event: Event) -> Iterator[str]:
    """The blobs without which an event is not whole."""
    match event:
        case ExecutionComplete(output=output) if output:
            yield output
        case UserMessage(images=images) | QueueChanged(images=images):
            for image in images:
                yield image.blob
        case _:
            pass
