"""`treadle fsck` beside the stores: damage in undo data; a database with damaged pages, whose readable records are
copied into a new one (D-06); and one that is older than its home, as after a backup was restored: commands that the
logs do not know are set aside."""

import asyncio
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from treadle.adapters.sandbox.supervisor.commands import SupervisedCommands
from treadle.adapters.stores.packing import Problem
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.adapters.stores.sqlite.salvage import Salvaged, salvage
from treadle.adapters.workspace.history.capture import Upkeep
from treadle.adapters.workspace.history.content_store import ContentStore
from treadle.adapters.workspace.history.journal import Journal, Journals
from treadle.adapters.workspace.history.snapshots import ProjectSnapshots
from treadle.adapters.workspace.root import Root
from treadle.base.types import CallKey, ChatId
from treadle.chat.fold import fold_all
from treadle.chat.state import ChatState, build_summary
from treadle.engine.effects import find_import_seq, stream_events, stream_references
from treadle.errors import NotFound, StoreError, ToolError
from treadle.library.housekeeping.retention import DAY_S, EVER, Retention, compute_worth, get_undo_folder, read_stamp
from treadle.ports.snapshots import UndoRequest
from treadle.ports.store import Commit, Listed, Store
from treadle.protocol import wire
from treadle.protocol.events import AssistantMessage, CheckStarted, ExecutionStart, TrialStart


async def inspect(store: Store, home: Path, retention: Retention, *, repair: bool) -> list[Problem]:
    if not get_undo_folder(home).is_dir():
        return []
    chats = await store.list()
    at_work = {str(listed.summary.chat) for listed in chats if listed.leased}
    problems = await asyncio.to_thread(lambda: list(_find_damage(home, at_work, repair)))
    line = max(read_stamp(home).line, time.time() - retention.days * DAY_S)
    images = ContentStore(get_undo_folder(home))
    for listed in chats:
        if compute_worth(listed) > line:
            problems += await _find_missing_images(store, listed, images)
    return problems


def _find_damage(home: Path, at_work: set[str], repair: bool) -> Iterator[Problem]:
    folder = get_undo_folder(home)
    images, upkeep = ContentStore(folder), Upkeep(folder)
    for digest in list(images.verify()):
        if repair:
            images.drop(digest)
        yield Problem("image", f"the stored file {digest[:16]}… is damaged", repaired=repair)
    for tree in upkeep.list_trees():
        relied = upkeep.read_kept_hashes(tree.file)
        if relied is None or not all(map(images.has_object, relied)):
            yield Problem("snapshot", f"the tree {tree.file.name[:16]}… cannot be relied on", repaired=repair)
    if repair:
        upkeep.drop_trees(EVER)  # caches, and what they say is kept may just have been dropped
    for file, capture in upkeep.iterate_captures():
        if capture is None or upkeep.read_kept_hashes(upkeep.get_tree_path(capture)) is None:
            if repair:
                upkeep.drop_capture(file, capture)
            text = f"the snapshot {capture.name if capture else file.name} cannot be read"
            yield Problem("snapshot", text, _parse_chat(capture.name if capture else ""), repaired=repair)
    old = [path for path in map(Path, images.list_unfinished_files()) if _age(path) > DAY_S]
    for path in old:
        if repair:
            path.unlink(missing_ok=True)
    if old:
        yield Problem("snapshot", f"{len(old)} half-written files of processes that died", repaired=repair)
    if (home / "worlds").is_dir():
        yield from _check_worlds(home, repair)
    yield from _check_journals(home, at_work, repair)


def _check_worlds(home: Path, repair: bool) -> Iterator[Problem]:
    from treadle.library.worlds.record import WorldFolders

    folders = WorldFolders(str(home))
    yield from (Problem("world", text) for text in folders.find_problems())
    for world in filter(folders.has_lost_stamp, folders.iterate_worlds()):
        text, repaired = f"the world {world.id} has lost the record of when it was last rebased or committed", repair
        if repair:
            try:
                with folders.lock_world(world.id):
                    pass  # this mends it
            except (ToolError, NotFound, OSError) as error:
                text, repaired = f"{text}: {error}", False
        yield Problem("world", text, repaired=repaired)


def _check_journals(home: Path, at_work: set[str], repair: bool) -> Iterator[Problem]:
    for journal in Journals(get_undo_folder(home) / "journals").list_unfinished():
        if _parse_chat(journal.name) in at_work:
            continue
        text = f"changes of {len(journal.files):,} files in {journal.root} were begun and not completed"
        if not repair:
            yield Problem("changes", f"{text}; the chat completes them when it goes on", _parse_chat(journal.name))
            continue
        error = _complete(journal, home)
        yield Problem("changes", f"{text}{error and f': {error}'}", _parse_chat(journal.name), repaired=not error)


def _complete(journal: Journal, home: Path) -> str:
    """Empty, or why that cannot be done."""
    ground = None
    try:
        if journal.world:
            from treadle.library.worlds.home import WorldGround
            from treadle.library.worlds.record import WorldFolders

            ground = WorldGround(WorldFolders(str(home)), journal.world)
        snapshots = ProjectSnapshots(Root(journal.root, journal.bound, ground), home)
        if journal.verdict == "commit":
            snapshots.commit(journal.name, journal.view)
        else:
            snapshots.apply(journal.name, UndoRequest(()))
    except (ToolError, NotFound, OSError) as error:
        return str(error)
    return ""


async def _find_missing_images(store: Store, listed: Listed, images: ContentStore) -> list[Problem]:
    """Changes that cannot be undone although they should be."""
    last_seq: dict[tuple[str, str], int] = {}
    async for seq, reference in stream_references(store, listed.summary.chat):
        if reference.kind == "image" and reference.needed:
            last_seq[reference.path, reference.digest] = seq
    missing = await asyncio.to_thread(lambda: [key for key in last_seq if not images.has_object(key[1])])
    since = await find_import_seq(store, listed.summary.chat) if missing else 0
    if not (missing_paths := list(dict.fromkeys(key[0] for key in missing if last_seq[key] > since))):
        return []
    text = f"the content before a change of {missing_paths[0]} is no longer stored"
    more = f", and of {len(missing_paths) - 1:,} more files" if len(missing_paths) > 1 else ""
    return [Problem("image", text + more, listed.summary.chat)]


def _parse_chat(name: str) -> str:
    return name.split("/")[0]


def _age(path: Path) -> float:
    with suppress(FileNotFoundError):
        return time.time() - path.stat().st_mtime
    return 0.0


class Rescue(msgspec.Struct, frozen=True):
    salvaged: Salvaged
    lost_records: dict[str, int]  # By chat: how many records are lost, as far as that can be known.
    problems: tuple[Problem, ...]

    @property
    def intact_chats(self) -> int:
        return self.salvaged.chats - len(self.lost_records)


async def rescue(path: Path) -> Rescue:
    """Make a sound database of what can be read of a damaged one. StoreError if there can be none."""
    try:
        salvaged = await asyncio.to_thread(salvage, path)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"nothing can be salvaged of {path}: {error}") from error
    store = SqliteStore(salvaged.path)
    try:
        problems = await store.check(repair=True)
        touched = {problem.chat for problem in problems if problem.kind in ("gap", "record", "head", "summary")}
        lost_records = {}
        for chat in sorted(touched | set(salvaged.nameless)):
            log = [wire.decode(ChatId(chat), record) for record in await store.read(ChatId(chat))]
            line = build_summary(fold_all(ChatState(chat=ChatId(chat)), log))  # anew from the log
            await store.append(Commit(ChatId(chat), (), line, durable=True))
            lost_records[chat] = sum(envelope.type == "session.record_lost" for envelope in log)
    finally:
        await store.close()
    # So that the new database can be put in the old one's place as one file.
    with suppress(sqlite3.Error), closing(sqlite3.connect(salvaged.path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Rescue(salvaged, {chat: count for chat, count in lost_records.items() if count}, tuple(problems))


_SHOWN = 5
_TELLING = {kind.TYPE for kind in (AssistantMessage, CheckStarted, ExecutionStart, TrialStart)}


async def look_ahead(store: Store, home: Path, *, repair: bool) -> list[Problem]:
    """Report the commands in the home whose calls are missing from the logs. Chats at work are skipped."""
    commands = SupervisedCommands(home / "commands")
    problems: list[Problem] = []
    for listed in await store.list():
        chat = listed.summary.chat
        on_disk = await asyncio.to_thread(commands.list_known_keys, chat)
        if on_disk and not listed.leased and (unrecorded_calls := await _find_lost_calls(store, chat, on_disk)):
            set_aside = [repair and await asyncio.to_thread(commands.set_aside, chat, key) for key in unrecorded_calls]
            more = f" and {len(unrecorded_calls) - _SHOWN} more" if len(unrecorded_calls) > _SHOWN else ""
            text = (
                "the database is older than the home: commands were run that the log does not have "
                f"({', '.join(unrecorded_calls[:_SHOWN])}{more}), as after a backup was restored; their changes to the "
                "project stay"
            )
            problems.append(Problem("ahead", text, chat, repaired=all(set_aside)))
    return problems


async def _find_lost_calls(store: Store, chat: ChatId, on_disk: Iterable[CallKey]) -> list[CallKey]:
    requested: set[str] = set()
    names: dict[str, str] = {}
    async for _, event in stream_events(store, chat, _TELLING):
        match event:
            case AssistantMessage(tool_requests=requests):
                requested |= {request.call for request in requests}
            case ExecutionStart() | TrialStart() | CheckStarted():
                call, plan = event.check if isinstance(event, CheckStarted) else event.call, event.plan
                requested.add(call)
                names[call] = (plan or {}).get("own") or call
    return [key for key in on_disk if _is_lost(key, requested, names)]


def _is_lost(key: CallKey, requested: set[str], names: dict[str, str]) -> bool:
    """Of a call that the log has and that has not begun, nothing can be told: it may have been tried, or stopped."""
    name = key.partition("~")[0]
    call = name.partition("-")[0]
    return call not in requested or names.get(call, name) != name
