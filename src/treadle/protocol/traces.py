"""What one call leaves behind for later ones. Recorded with its result, so that it survives restarts and moves to
another worker."""

import msgspec

from treadle.protocol.content import Value
from treadle.protocol.marks import FileHash


class Seen(Value, frozen=True):
    """A file as the model knows it: the SHA-256 of what it read or wrote (T-13); empty: it knows that there is none."""

    path: str
    digest: FileHash


class Shell(Value, frozen=True):
    """The chat's shell between commands (T-14)."""

    cwd: str = "."
    """Relative to the root."""
    exports: dict[str, str] = msgspec.field(default_factory=dict)
    """Variables that differ from the environment a fresh command has."""
    unset: tuple[str, ...] = ()
