"""Worlds as tools need them: copy-on-write views of a project in which chats work for long (W-11)."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from treadle.protocol.files import FileChange
from treadle.protocol.options import Project


class WorldPlaces(Protocol):
    """All methods block; call them from a thread. ToolError for a world that is not there."""

    def beneath(self, world: str) -> Project:
        """Where it is committed: the project, or the world of which it is one."""

    def view(self, world: str) -> str:
        """The folder with what was changed in it (see `Snapshots.effect`)."""

    def alone(self, world: str) -> AbstractContextManager[None]:
        """Nothing is changed in it by Treadle meanwhile, and it is not rebased, committed or dropped."""

    def committed(self, world: str, files: Sequence[FileChange]) -> None:
        """These changes of it were committed: from here on, what they left is what both sides began with."""
