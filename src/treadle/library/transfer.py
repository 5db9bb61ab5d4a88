"""Export, import and fork of chats: out of a store as JSON lines, into one, and as a copy that goes its own way from
some point (D-07, D-08). Reads and writes logs; drives nothing.

An export has one line per event, in the wire form of the specification: each has `seq` and `type`. The first has the
number of events under `events`. Bytes that lie outside the log (whole outputs, images) travel with the first event that
refers to them, under `blobs`: base64 by SHA-256. So a file is complete by itself, and a reader that needs only events
can ignore both keys.

An imported chat is untrusted text. This machine decides its rights, its model and its root (S-09): of its options only
those of PORTABLE hold, all others are those of a new chat of this machine. It is at rest, so that nothing of it is
carried out before a person continues it."""

import hashlib
import re
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from treadle.base.file_system import reach_faultpoint
from treadle.base.types import ChatId, Clock, SystemClock, make_chat_id
from treadle.chat import snapshot
from treadle.chat.closing import close_calls, close_check, end_turn, insert_turn_end
from treadle.chat.fold import fold_all
from treadle.chat.state import ChatState, build_summary
from treadle.chat.transitions import transition
from treadle.engine.log import SNAPSHOT_EVERY
from treadle.errors import ChatExists, Damaged, InvalidInput, NotFound
from treadle.ports.store import Snapshot, Store
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.commands import ChangeOptions
from treadle.protocol.events import Envelope
from treadle.protocol.options import ChatOptions
from treadle.protocol.references import list_needed_blobs
from treadle.protocol.workspace_events import RESTORED

PAGE = 500
_encoder = msgspec.json.Encoder()


PORTABLE = frozenset((
    "system_prompt", "dynamic_tools", "action_deadline_s", "on_deadline", "completion", "max_continuations",
    "continue_text", "summarize", "verify", "output_schema", "archived", "labels",
))  # fmt: skip
"""The options that say how a conversation is led. They move with a chat. The others say what may be done, where, by
whom and at what expense; a test has the list of them, so that of a new option it must be said which it is."""

_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


class _Extras(msgspec.Struct):
    """The parts of a line that `wire` does not know."""

    blobs: dict[str, str] = {}
    events: int = 0


async def read_chat(store: Store, chat: ChatId) -> list[Envelope]:
    return [wire.decode(chat, record) for record in await store.read(chat)]


async def export_chat(store: Store, chat: ChatId) -> AsyncIterator[bytes]:
    """The log as lines, each with its newline. A blob that is gone is left out."""
    sent_digests: set[str] = set()
    after_seq, head = 0, await store.read_head(chat)
    while after_seq < head and (records := await store.read(chat, after_seq, min(PAGE, head - after_seq))):
        for record in records:
            envelope = wire.decode(chat, record)
            line = wire.to_dict(envelope) | ({"events": head} if envelope.seq == 1 else {})
            carried: dict[str, str] = {}
            for digest in list_needed_blobs(envelope.data):
                if digest not in sent_digests:
                    with suppress(NotFound, Damaged):
                        carried[digest] = b64encode(await store.get_blob(digest)).decode()
                        sent_digests.add(digest)
            if carried:
                line["blobs"] = carried
            yield _encoder.encode(line) + b"\n"
        after_seq = records[-1].seq


async def import_chat(
    store: Store,
    lines: Iterable[bytes | str],
    new_id: bool = False,
    *,
    local: ChatOptions | None = None,
    owner: str = "",
    clock: Clock | None = None,
) -> ChatId:
    """Bring an exported chat in, under its own id or a new one, at rest and for `owner`. `local` are the options of a
    new chat here, which take the place of all that are not PORTABLE. Damaged or InvalidInput say which line is wrong,
    ChatExists that its id is taken; in every case nothing was written."""
    envelopes, blobs = _read(lines)
    chat = make_chat_id() if new_id else envelopes[0].chat
    if not new_id:
        with suppress(NotFound):
            await store.read_head(chat)
            raise ChatExists(f"chat {chat} exists already; import it under a new id, or leave it")
    for data in blobs:
        await store.put_blob(data)
    reach_faultpoint("transfer.blobs")
    log = _adapt_log(envelopes, local or ChatOptions(), owner, (clock or SystemClock()).now_ms())
    await _create(store, chat, log)
    return chat


def _adapt_log(envelopes: list[Envelope], local: ChatOptions, owner: str, now_ms: int) -> list[Envelope]:
    """A log from elsewhere, and what makes it a chat of this machine."""
    first = envelopes[0].data
    assert isinstance(first, e.SessionCreated)
    log = [replace(envelopes[0], data=replace(first, owner=owner)), *envelopes[1:]]
    state = fold_all(ChatState(chat=envelopes[0].chat), log)
    log += _seal(state, build_closing_events(state, "import"), log[-1].time_ms)
    state = fold_all(state, log[state.head :])
    log += _seal(state, [e.SessionImported(envelopes[0].chat)], now_ms)
    state = fold_all(state, log[state.head :])
    there, here = wire.to_wire_form(state.options), wire.to_wire_form(local)
    changes = {name: here[name] for name in here if name not in PORTABLE and here[name] != there[name]}
    return log + _seal(state, transition(state, ChangeOptions(changes, by="import")), now_ms)


def _read(lines: Iterable[bytes | str]) -> tuple[list[Envelope], list[bytes]]:
    envelopes: list[Envelope] = []
    blobs: list[bytes] = []
    announced_count = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            envelope = wire.from_json(line)
            try:
                extras = msgspec.json.decode(line, type=_Extras)
            except msgspec.MsgspecError as error:
                raise Damaged(f"its blobs or its count of events cannot be read: {error}") from error
            blobs += _decode_blobs(extras.blobs)
            announced_count = announced_count or extras.events
        except Damaged as error:
            raise Damaged(f"Line {number} cannot be read: {error}. Nothing was imported.") from error
        if wrong := _explain_misplaced(envelope, envelopes):
            raise InvalidInput(f"Line {number} does not belong there: {wrong}. Nothing was imported.")
        envelopes.append(envelope)
    if not envelopes:
        raise InvalidInput("There is no event to import; the input is empty.")
    if announced_count not in (0, len(envelopes)):
        raise InvalidInput(
            f"The first line says that there are {announced_count:,} events, and {len(envelopes):,} are here: "
            "the file was cut, or put together. Export the chat again. Nothing was imported."
        )
    return envelopes, blobs


def _explain_misplaced(envelope: Envelope, earlier: list[Envelope]) -> str:
    """The error of an event in its place behind the events `before`; empty if there is none."""
    expected = len(earlier) + 1
    if isinstance(envelope.data, e.Live) or envelope.ephemeral:
        return f"{envelope.type} is live only and stands in no log"
    if envelope.seq != expected:
        return f"its seq is {envelope.seq} where {expected} follows"
    if not envelope.chat:
        return "it names no chat"
    if not _ID.fullmatch(envelope.chat):
        return f"{envelope.chat[:80]!r} is no chat's id"
    if earlier and envelope.chat != earlier[0].chat:
        return f"it is of chat {envelope.chat}, the ones before it are of {earlier[0].chat}"
    if isinstance(envelope.data, e.SessionCreated) != (not earlier):
        return "a chat begins with session.created, and only once"
    return ""


def _decode_blobs(blobs: Mapping[str, str]) -> list[bytes]:
    """The blobs that a line brings; Damaged if they are not what their hash says."""
    try:
        contents = {digest: b64decode(text, validate=True) for digest, text in blobs.items()}
    except ValueError as error:
        raise Damaged(f"its blobs are no base64 by hash: {error}") from error
    for digest, data in contents.items():
        if hashlib.sha256(data).hexdigest() != digest:
            raise Damaged(f"the bytes of blob {digest} do not have this hash")
    return list(contents.values())


async def _create(store: Store, chat: ChatId, envelopes: Iterable[Envelope]) -> ChatState:
    """Begin a chat with all its events at once."""
    copies = [replace(envelope, chat=chat) for envelope in envelopes]
    state = fold_all(ChatState(chat=chat), copies)
    await store.create(build_summary(state), [wire.encode(envelope) for envelope in copies])
    reach_faultpoint("transfer.created")
    if state.head >= SNAPSHOT_EVERY:  # else the first one who opens it would fold all of it
        await store.save_snapshot(chat, Snapshot(state.head, snapshot.encode(state)))
    return state


async def fork_chat(
    store: Store,
    chat: ChatId,
    seq: int,
    changes: Mapping[str, Any] | None = None,
    *,
    clock: Clock | None = None,
    copy: ChatId | None = None,
) -> ChatId:
    """Begin a new chat as a copy of another up to `seq`, with some options changed, and with the id `copy` if that is
    given; ChatExists if there is one. The copy does not continue the work of the original: its open calls are closed,
    its run is ended, its queue is empty, and it is not archived."""
    head = await store.read_head(chat)
    if not 1 <= seq <= head:
        raise InvalidInput(f"Chat {chat} has events 1 to {head}; it cannot be forked at {seq}.")
    copied = [wire.decode(chat, record) for record in await store.read(chat, limit=seq)]
    if isinstance((first := copied[0]).data, e.SessionCreated):
        copied[0] = replace(first, data=replace(first.data, forked_from=f"{chat}@{seq}"))
    state = fold_all(ChatState(chat=chat), copied)
    # The events that end the copy get the time of the cut: a wall budget must not count the time that has passed since.
    copied += _seal(state, build_closing_events(state), copied[-1].time_ms)
    state = fold_all(state, copied[state.head :])
    option_changes = {**({"archived": False} if state.options.archived else {}), **(changes or {})}
    # Recorded in any case: it makes the copy the chat that was used last.
    events = transition(state, ChangeOptions(option_changes, by="fork")) or (e.OptionsChanged({}, by="fork"),)
    copied += _seal(state, events, (clock or SystemClock()).now_ms())
    copy = copy or make_chat_id()
    await _create(store, copy, copied)
    return copy


NOT_HERE = "This chat was copied before that was done; nothing was done here."


def build_closing_events(state: ChatState, reason: Literal["fork", "import"] = "fork") -> tuple[e.Event, ...]:
    """The events that bring a chat to rest, wherever it stands."""
    events: list[e.Event] = []
    if state.open_turn is not None:
        events.append(e.TurnEnd(state.open_turn.turn, finish_reason="interrupted"))
    elif (turn_end := end_turn(state)) is not None:  # cut off from the end of its turn, with which it was written
        events.append(turn_end)
    events += close_check(state)
    events += insert_turn_end(state, close_calls(state, reason))
    if state.run is not None:
        events.append(e.RunEnd("interrupted"))
    elif state.compacting:
        events.append(e.CompactionComplete(state.compacting, False, error="interrupted"))
    if state.restoring is not None:  # the files are the other chat's business
        events.append(RESTORED[state.restoring.kind](state.restoring.restore, error=NOT_HERE))
    events += [e.JobEnded(job.job, "lost", by=reason) for job in state.jobs]  # they are the other chat's
    events += [e.JobSettled(job.job, "discarded", by=reason) for job in state.pending_jobs]
    events += [e.QueueChanged("deleted", item.id) for item in state.queue]
    return tuple(events)


def _seal(state: ChatState, events: Iterable[e.Event], time_ms: int) -> list[Envelope]:
    return [Envelope(seq, state.chat, time_ms, event) for seq, event in enumerate(events, state.head + 1)]
