"""Events as JSON lines on standard output: what `--json` prints, and nothing else."""

import sys
from collections.abc import Sequence

from treadle.protocol import wire
from treadle.protocol.events import Envelope
from treadle.protocol.files import FileChange


class JsonLines:
    """One event a line, each written out at once."""

    def __init__(self) -> None:
        self._out = sys.stdout.buffer

    def event(self, envelope: Envelope) -> None:
        self._out.write(wire.to_json(envelope) + b"\n")
        self._out.flush()

    def changed(self, files: Sequence[FileChange]) -> None:
        """The events have told it."""
