"""The durable decision about a set of changes, once for each name (W-08): made, refused or discarded; finished or not;
being taken back or not. A decision is one file that exists or does not. Makes no change itself.

After `release` a stub stays for a while, so that a worker that was suspended meanwhile finds the decision made."""

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import msgspec

from treadle.adapters.workspace.paths.durable import Freeing, make_private_folder
from treadle.base.file_locks import lock_file
from treadle.base.file_system import create_file, reach_faultpoint, replace_file, sync_folder
from treadle.errors import ToolError
from treadle.protocol.content import Value
from treadle.protocol.files import FileChange, FileConflict, Uncaptured

Verdict = Literal["commit", "restore", "refuse", "discard", "released"]
"""commit: the effect of a view is made, all of it or nothing · restore: states are brought back, paths that others
changed meanwhile are left · refuse: nothing is made, because of conflicts · discard: nothing is made · released:
settled long ago, with any of these."""

_PATIENCE_S = 30.0
T = TypeVar("T")


class Journal(Value, frozen=True):
    name: str
    root: str
    verdict: Verdict
    view: str = ""
    files: tuple[FileChange, ...] = ()
    conflicts: tuple[FileConflict, ...] = ()
    uncaptured: tuple[Uncaptured, ...] = ()
    closed: Mapping[str, int] = {}
    """Folders that must be opened for it although their modes forbid it, and their modes, which they get back."""
    bound: str = ""  # Which folder the root was; see `workspace.paths.resolve`
    world: str = ""  # In which world of it, if in one (W-11)
    passing: bool = False  # True if the journal is removed once the changes are made, or refused


class Ending(Value, frozen=True):
    conflicts: tuple[FileConflict, ...] = ()
    git: str = ""


_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {kind: msgspec.json.Decoder(kind) for kind in (Journal, Ending)}


class Journals:
    """The decisions in one folder, which is made when first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    # -- deciding -----------------------------------------------------------------------------------------------

    def read(self, name: str) -> Journal | None:
        return self._read(self._make_file_path(name, "json"), Journal)

    def decide(self, journal: Journal) -> Journal:
        """Record the decision, unless there is one; the one that stands is given back."""
        reach_faultpoint("transaction.deciding")
        if self._write(self._make_file_path(journal.name, "json"), journal, exclusive=True):
            reach_faultpoint("transaction.decided")
            return journal
        return self.read(journal.name) or journal

    def withdraw(self, name: str) -> None:
        """As if nothing had been decided: all that was made has been taken back."""
        self._remove(name, "json")
        reach_faultpoint("transaction.withdrawn")
        self.begin(name)

    def begin(self, name: str) -> None:
        """Remove the mark of an earlier try: nothing is decided under this name."""
        self._remove(name, "back")

    def read_ending(self, name: str) -> Ending | None:
        return self._read(self._make_file_path(name, "end"), Ending)

    def record_ending(self, name: str, ending: Ending) -> None:
        self._write(self._make_file_path(name, "end"), ending, lasting=False)
        reach_faultpoint("transaction.ended")

    def turn_back(self, name: str) -> None:
        """From here on the changes are taken back, by this process or the next one."""
        self._write(self._make_file_path(name, "back"), Ending())

    def is_turned_back(self, name: str) -> bool:
        return os.path.exists(self._make_file_path(name, "back"))

    def release(self, name: str) -> None:
        """Reduce the decision to a stub, because its outcome is recorded elsewhere. An unfinished decision stays."""
        journal = self.read(name)
        if journal is None or journal.verdict == "released" or self._is_unfinished(journal):
            return
        with Freeing() as freeing:
            freeing.hold(self._make_file_path(name, "json"))
            freeing.hold(self._make_file_path(name, "end"))
            self._write(self._make_file_path(name, "json"), Journal(name, journal.root, "released"), lasting=False)
            self._remove(name, "end")

    def list_unfinished(self) -> Iterator[Journal]:
        """Decisions that are not carried out yet, or are being so at this moment."""
        journals = (self._read(file, Journal) for file in self._list_files(".json"))
        return (journal for journal in journals if journal is not None and self._is_unfinished(journal))

    def _is_unfinished(self, journal: Journal) -> bool:
        return journal.verdict in ("commit", "restore") and self.read_ending(journal.name) is None

    def sweep(self, older_than_s: float) -> int:
        """Remove what is left of what was settled long ago; returns how many decisions were forgotten."""
        cutoff = time.time() - older_than_s
        count = 0
        for file in self._list_files(""):
            with suppress(FileNotFoundError):
                if os.lstat(file).st_mtime > cutoff:
                    continue
                if file.endswith(".json"):
                    journal = self._read(file, Journal)
                    if journal is None or journal.verdict in ("commit", "restore"):
                        continue
                    count += 1
                elif not file.endswith(".tmp"):
                    continue
                os.unlink(file)
        return count

    @contextmanager
    def lock(self, root: str) -> Iterator[None]:
        """Only one process at a time makes changes to a root. A dead one holds no lock."""
        make_private_folder(self._folder)
        with ExitStack() as stack:
            try:
                stack.enter_context(lock_file(self._make_file_path(root, "lock"), _PATIENCE_S))
            except TimeoutError:
                other = "Another Treadle process has been changing this project for a long time"
                raise ToolError(f"{other}. Nothing was changed; try again.") from None
            yield

    def _make_file_path(self, name: str, ending: str) -> str:
        key = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:40]
        return os.path.join(self._folder, f"{key}.{ending}")

    def _list_files(self, ending: str) -> list[str]:
        with suppress(FileNotFoundError):
            return [os.path.join(self._folder, name) for name in os.listdir(self._folder) if name.endswith(ending)]
        return []

    def _read(self, file: str, kind: type[T]) -> T | None:
        try:
            with open(file, "rb") as stream:
                data = stream.read()
            if data.strip(b"\0"):
                return cast(T, _decoders[kind].decode(data))
            # A power cut has emptied it. A decision is written completely before it gets its name, so an emptied one
            # was released; an ending can be found out again.
            return Journal("", "", "released") if kind is Journal else None  # type: ignore[return-value]
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise ToolError(f"The journal {file} cannot be read ({error}). See `treadle fsck`.") from error

    def _write(self, file: str, content: Value, *, exclusive: bool = False, lasting: bool = True) -> bool:
        """In one step; False if it had to be new and is not. `lasting`: it survives a power cut."""
        make_private_folder(self._folder)
        data = msgspec.json.encode(content)
        if not exclusive:
            replace_file(file, data, sync=lasting)
        elif not create_file(file, data, sync=lasting):
            return False
        if lasting:
            sync_folder(self._folder)
        return True

    def _remove(self, name: str, ending: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._make_file_path(name, ending))
            sync_folder(self._folder)
