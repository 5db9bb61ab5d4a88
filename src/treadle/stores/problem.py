"""What `treadle fsck` has to say, whatever the store (D-06)."""

from typing import Literal

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong, and whether it was mended."""

    kind: Literal[
        "database", "record", "gap", "head", "summary", "orphan", "blob", "image", "changes", "snapshot", "ahead"
    ]
    text: str
    chat: str = ""
    seq: int = 0
    repaired: bool = False
