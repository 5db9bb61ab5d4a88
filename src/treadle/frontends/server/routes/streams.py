"""Routes for streams (A-07): the events of one chat, and the changes of all chats of a user; as server-sent events and
over a WebSocket, from one source."""

import asyncio
import time

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from treadle.base.types import ChatId
from treadle.engine.effects import whole_list
from treadle.frontends.server.guard import token_of
from treadle.frontends.server.problems import Problem
from treadle.frontends.server.routing import ApiRequest, Route
from treadle.frontends.server.service import Service
from treadle.frontends.server.sse import MEDIA_TYPE
from treadle.frontends.server.streaming import EventStream, Piece, Pieces, converse, position
from treadle.frontends.server.tokens import Token, owner_of
from treadle.frontends.server.views import chat_line
from treadle.protocol.events import Envelope
from treadle.protocol.http_queries import StreamQuery, WatchQuery
from treadle.protocol.http_requests import Body
from treadle.protocol.simple import SimpleView
from treadle.protocol.wire import to_wire_form

CHANGES = 100


class Silence:
    """Tells when a heartbeat is due although news came: none of it was for this reader."""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._since = time.monotonic()

    def broken(self, pieces: list[Piece]) -> bool:
        now = time.monotonic()
        if not pieces and now - self._since < self._most_s:
            return False
        self._since = now
        return True


class StreamRequest(msgspec.Struct, frozen=True):
    """A stream of a chat, checked."""

    chat: ChatId
    after_seq: int
    turn: int
    query: StreamQuery


async def resolve_stream(
    service: Service, user: str, request: Request | WebSocket, query: StreamQuery
) -> StreamRequest:
    """NotFound, or what is wrong with the place where the reader wants to go on."""
    state = await service.state(user, str(request.path_params["chat"]))
    after_seq = position(request, query.after) or 0
    if after_seq > state.head:
        raise Problem(
            "bad_request", f"The log ends at {state.head}; there is no event {after_seq}. Begin from the start."
        )
    return StreamRequest(state.chat, after_seq, state.open_turn.turn if state.open_turn is not None else 0, query)


async def pieces_of(service: Service, stream: StreamRequest) -> Pieces:
    """Yield the pieces of a chat's stream."""
    query = stream.query
    view = SimpleView() if query.view == "simple" else None
    silence = Silence(service.limits.heartbeat_s)
    async with service.feeds.reading(stream.chat, stream.after_seq, stream.turn) as reader:
        async for batch in service.feeds.batches(reader, service.limits.heartbeat_s, follow=query.follow):
            visible_events = [each for each in batch if query.deltas or not each.type.endswith("_delta")]
            if view is None:
                pieces = [(each.seq, service.frames.json(each)) for each in visible_events]
            else:
                pieces = await _in_words(service, view, visible_events, last=reader.live or not batch)
            if silence.broken(pieces):
                yield pieces
    if view is not None and (tail := view.flush()):
        yield [(seq, msgspec.json.encode(word)) for seq, word in tail]


async def _in_words(service: Service, view: SimpleView, batch: list[Envelope], *, last: bool) -> list[Piece]:
    """Return the pieces for simple readers (A-11).
    An event that has no word moves their place in the log all the same.
    """
    pieces: list[Piece] = []
    for each in batch:
        words = view.show(await whole_list(service.agent.deps.store, each))
        pieces += [(seq, msgspec.json.encode(word)) for seq, word in words]
        if each.seq and not words and not view.holds:
            pieces.append((each.seq, b""))
    if last:
        pieces += [(seq, msgspec.json.encode(word)) for seq, word in view.flush()]
    return pieces


async def events(call: ApiRequest) -> Response:
    stream = await resolve_stream(call.service, call.user, call.request, call.query(StreamQuery))
    with call.service.streaming(call.user):
        pass  # refused here, where it can still be said how
    return EventStream(call.service, token_of(call.request), lambda: pieces_of(call.service, stream))


async def chat_socket(service: Service, token: Token, socket: WebSocket, query: Body) -> None:
    assert isinstance(query, StreamQuery)
    stream = await resolve_stream(service, token.user, socket, query)
    await converse(service, token, socket, lambda: pieces_of(service, stream))


async def changes_of(service: Service, user: str, after_change: int, follow: bool) -> Pieces:
    """Every chat of the user that changes, as it is then."""
    store = service.agent.deps.store
    ending = asyncio.ensure_future(service.draining.wait())
    silence = Silence(service.limits.heartbeat_s)
    try:
        while not ending.done():
            listed = await store.changes(owner=owner_of(user), after_change=after_change, limit=CHANGES)
            if listed:
                after_change = listed[-1].change_number
                lines = [{"changed": each.change_number, "chat": to_wire_form(chat_line(each))} for each in listed]
                pieces = [
                    (each.change_number, msgspec.json.encode(line)) for each, line in zip(listed, lines, strict=True)
                ]
                if silence.broken(pieces):
                    yield pieces
            if len(listed) == CHANGES:
                continue
            if not follow:
                return
            waiting = asyncio.ensure_future(store.wait_any(after_change, service.limits.heartbeat_s))
            try:
                await asyncio.wait((waiting, ending), return_when=asyncio.FIRST_COMPLETED)
                if silence.broken([]):
                    yield []
                if waiting.done() and not await store.changes(owner=owner_of(user), after_change=after_change, limit=1):
                    after_change = waiting.result()  # a change of another user
            finally:
                waiting.cancel()
    finally:
        ending.cancel()


async def begin_watch(service: Service, request: Request | WebSocket, query: WatchQuery) -> int:
    newest = await service.agent.deps.store.wait_any(0, 0)
    after_change = position(request, query.after)
    if after_change is not None and after_change > newest:
        raise Problem("bad_request", f"The last change has the number {newest}; there is no {after_change}.")
    return newest if after_change is None else after_change


async def watch(call: ApiRequest) -> Response:
    query = call.query(WatchQuery)
    after_change = await begin_watch(call.service, call.request, query)
    with call.service.streaming(call.user):
        pass
    token = token_of(call.request)
    return EventStream(call.service, token, lambda: changes_of(call.service, token.user, after_change, query.follow))


async def watch_socket(service: Service, token: Token, socket: WebSocket, query: Body) -> None:
    assert isinstance(query, WatchQuery)
    after_change = await begin_watch(service, socket, query)
    await converse(service, token, socket, lambda: changes_of(service, token.user, after_change, query.follow))


TAG = "streams"
ROUTES = (
    Route(
        "GET", "/api/chats/{chat}/events", events, "Follow a chat: recorded events, and live ones between them.", TAG,
        query=StreamQuery, media_type=MEDIA_TYPE, codes=("too_many_streams", "draining"),
    ),
    Route(
        "GET", "/api/watch", watch, "Follow which chats change.", TAG, query=WatchQuery, media_type=MEDIA_TYPE,
        codes=("too_many_streams", "draining"),
    ),
)  # fmt: skip
SOCKETS = (
    ("/api/chats/{chat}/events", chat_socket, StreamQuery),
    ("/api/watch", watch_socket, WatchQuery),
)
