"""Looking after trees and captures, for whoever collects garbage: which there are, when they were used, which images
they rely on. Decides nothing."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from treadle.faultpoint import faultpoint
from treadle.workspace.history.capture import CAPTURES, TREES, Capture, read_capture
from treadle.workspace.history.images import Images
from treadle.workspace.history.trees import read_tree

STAGE = "stage"
_ABANDONED_S = 86_400.0


class KnownTree(msgspec.Struct, frozen=True):
    """The last tree of a root. `used` is in seconds since 1970."""

    file: Path
    used: float


class Upkeep:
    """`folder` is where snapshots are kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._images = Images(folder)

    def trees(self) -> list[KnownTree]:
        found = []
        for file in _files(self._folder / TREES):
            with suppress(FileNotFoundError):
                found.append(KnownTree(file, file.stat().st_mtime))
        return found

    def captures(self) -> Iterator[tuple[Path, Capture | None]]:
        """Every capture with its file; None for one that cannot be read."""
        for file in _files(self._folder / CAPTURES):
            if file.suffix == ".json":
                yield file, read_capture(file)

    def tree_of(self, capture: Capture) -> Path:
        return self._folder / CAPTURES / capture.tree

    def relied_on(self, tree: Path) -> set[str] | None:
        """The hashes of what a tree says is kept; None if it cannot be read."""
        found = read_tree(tree)
        if found is None:
            return None
        nodes = (node for folder in found[0].folders.values() for node in folder.nodes.values())
        return {node.content.hex() for node in nodes if node.kept and len(node.content) == 32 and not node.left}

    def drop_trees(self, used_until: float, *, wait: bool = True) -> int:
        """Forget the trees that were not used since. Nobody begins to rely on one meanwhile; afterwards what is kept
        for them alone may go. BlockingIOError as with `Images.alone`."""
        count = 0
        if not self.trees():
            return count
        with self._images.alone(wait=wait):
            for tree in self.trees():
                if tree.used <= used_until:
                    tree.file.unlink(missing_ok=True)
                    faultpoint("snapshot.tree_dropped")
                    count += 1
        return count

    def drop_capture(self, file: Path, capture: Capture | None) -> None:
        file.unlink(missing_ok=True)
        if capture is not None:
            self.tree_of(capture).unlink(missing_ok=True)

    def tidy(self, *, stage: bool) -> None:
        """Remove what processes that died left half-done long ago; with `stage` also what was made ready for changes
        that are settled by now."""
        named = {capture.tree for _, capture in self.captures() if capture is not None}
        before = time.time() - _ABANDONED_S
        for folder in (TREES, CAPTURES):
            for file in _files(self._folder / folder, hidden=True):
                belongs = file.suffix == ".json" or file.name in named or (folder == TREES and file.name[0] != ".")
                with suppress(FileNotFoundError):
                    if not belongs and file.stat().st_ctime < before:
                        file.unlink()
        for ready in _files(self._folder / STAGE, hidden=True) if stage else ():
            if ready.lstat().st_mtime < before:
                shutil.rmtree(ready, ignore_errors=True)


def _files(folder: Path, *, hidden: bool = False) -> list[Path]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return [folder / name for name in sorted(names) if hidden or not name.startswith(".")]
