"""Looking for damage in what is kept so that changes can be undone, and mending what can be mended (`treadle fsck`)."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.adapters.stores.integrity import Problem
from treadle.adapters.workspace.history.capture import Upkeep
from treadle.adapters.workspace.history.content_store import ContentStore
from treadle.adapters.workspace.history.journal import Journal, Journals
from treadle.adapters.workspace.history.snapshots import ProjectSnapshots
from treadle.adapters.workspace.root import Root
from treadle.engine.effects import all_references, imported_at
from treadle.errors import NotFound, ToolError
from treadle.library.housekeeping.retention import DAY_S, EVER, Retention, folder_of, read_stamp, worth_of
from treadle.ports.snapshots import UndoRequest
from treadle.ports.store import Listed, Store

if TYPE_CHECKING:
    from treadle.library.worlds.record import WorldFolders


async def inspect(store: Store, home: Path, retention: Retention, *, repair: bool) -> list[Problem]:
    """Everything that is wrong with the snapshots beside a database."""
    if not folder_of(home).is_dir():
        return []
    chats = await store.list()
    at_work = {str(listed.summary.chat) for listed in chats if listed.leased}
    problems = await asyncio.to_thread(lambda: list(_damage(home, at_work, repair)))
    line = max(read_stamp(home).line, time.time() - retention.days * DAY_S)
    images = ContentStore(folder_of(home))
    for listed in chats:
        if worth_of(listed) > line:
            problems += await _missing(store, listed, images)
    return problems


def _damage(home: Path, at_work: set[str], repair: bool) -> Iterator[Problem]:
    folder = folder_of(home)
    images, upkeep = ContentStore(folder), Upkeep(folder)
    damaged = list(images.verify())
    for digest in damaged:
        if repair:
            images.drop(digest)
        yield Problem("image", f"the stored file {digest[:16]}… is damaged", repaired=repair)
    for tree in upkeep.trees():
        if (relied := upkeep.relied_on(tree.file)) is None or not all(images.has(digest) for digest in relied):
            yield Problem("snapshot", f"the tree {tree.file.name[:16]}… cannot be relied on", repaired=repair)
    if repair:
        upkeep.drop_trees(EVER)  # caches, and what they say is kept may just have been dropped
    for file, capture in upkeep.captures():
        if capture is None or upkeep.relied_on(upkeep.tree_of(capture)) is None:
            if repair:
                upkeep.drop_capture(file, capture)
            subject = f"the snapshot {capture.name}" if capture else f"the snapshot {file.name}"
            yield Problem(
                "snapshot", f"{subject} cannot be read", _chat(capture.name if capture else ""), repaired=repair
            )
    yield from _left_over(images, repair)
    if (home / "worlds").is_dir():
        yield from _worlds(home, repair)
    yield from _unfinished(home, at_work, repair)


def _worlds(home: Path, repair: bool) -> Iterator[Problem]:
    from treadle.library.worlds.record import WorldFolders

    folders = WorldFolders(str(home))
    yield from (Problem("world", text) for text in folders.problems())
    for world in folders.all():
        if not folders.has_lost_stamp(world):
            continue
        text = f"the world {world.id} has lost the record of when it was last rebased or committed"
        error = _mend(folders, world.id) if repair else ""
        yield Problem("world", f"{text}{error and f': {error}'}", repaired=repair and not error)


def _mend(folders: "WorldFolders", id: str) -> str:
    try:
        with folders.alone(id):
            return ""  # this mends it
    except (ToolError, NotFound, OSError) as error:
        return str(error)


def _left_over(images: ContentStore, repair: bool) -> Iterator[Problem]:
    old = [path for path in map(Path, images.half_done()) if _age(path) > DAY_S]
    for path in old:
        if repair:
            path.unlink(missing_ok=True)
    if old:
        yield Problem("snapshot", f"{len(old)} half-written files of processes that died", repaired=repair)


def _unfinished(home: Path, at_work: set[str], repair: bool) -> Iterator[Problem]:
    for journal in Journals(folder_of(home) / "journals").unfinished():
        if _chat(journal.name) in at_work:
            continue
        text = f"changes of {len(journal.files):,} files in {journal.root} were begun and not completed"
        if not repair:
            yield Problem("changes", f"{text}; the chat completes them when it goes on", _chat(journal.name))
            continue
        error = _complete(journal, home)
        yield Problem("changes", f"{text}{error and f': {error}'}", _chat(journal.name), repaired=not error)


def _root_of(journal: Journal, home: Path) -> Root:
    if not journal.world:
        return Root(journal.root, journal.bound)
    from treadle.library.worlds.ground import WorldGround
    from treadle.library.worlds.record import WorldFolders

    return Root(journal.root, journal.bound, WorldGround(WorldFolders(str(home)), journal.world))


def _complete(journal: Journal, home: Path) -> str:
    try:
        snapshots = ProjectSnapshots(_root_of(journal, home), home)
        if journal.verdict == "commit":
            snapshots.commit(journal.name, journal.view)
        else:
            snapshots.apply(journal.name, UndoRequest(()))
    except (ToolError, NotFound, OSError) as error:
        return str(error)
    return ""


async def _missing(store: Store, listed: Listed, images: ContentStore) -> list[Problem]:
    """Changes that cannot be undone although they should be."""
    last_seq: dict[tuple[str, str], int] = {}
    async for seq, reference in all_references(store, listed.summary.chat):
        if reference.kind == "image" and reference.needed:
            last_seq[reference.path, reference.digest] = seq
    missing = await asyncio.to_thread(lambda: [key for key in last_seq if not images.has(key[1])])
    since = await imported_at(store, listed.summary.chat) if missing else 0
    missing_paths = list(dict.fromkeys(key[0] for key in missing if last_seq[key] > since))
    if not missing_paths:
        return []
    text = f"the content before a change of {missing_paths[0]} is no longer stored"
    more = f", and of {len(missing_paths) - 1:,} more files" if len(missing_paths) > 1 else ""
    return [Problem("image", text + more, listed.summary.chat)]


def _chat(name: str) -> str:
    return name.split("/")[0]


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
