import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from treadle.base.logs import log_warning
from treadle.base.types import ChatId
from treadle.engine.effects import load_full_event
from treadle.errors import StoreError
from treadle.frontends.server.connections import EVENT_STREAM
from treadle.frontends.server.guard import get_token
from treadle.frontends.server.replies import Problem, build_chat_line
from treadle.frontends.server.routing import ApiRequest, Route
from treadle.frontends.server.service import Service
from treadle.frontends.server.tokens import Token, get_owner
from treadle.protocol.events import Envelope
from treadle.protocol.http_queries import StreamQuery, WatchQuery
from treadle.protocol.http_requests import Body
from treadle.protocol.simple import SimpleView
from treadle.protocol.wire import to_wire_form

CHANGES = 100
HEARTBEAT = b": still here\n\n"
OPENING = b"retry: 1000\n\n"
"""Readers that lose the connection come back after a second, with the id of the last event they have."""
RESTARTING = 1012

Piece = tuple[int, bytes]
"""The id of a piece of news, 0 for a live one; and its JSON, or nothing if only the reader's place is moved."""
Pieces = AsyncIterator[list[Piece]]  # Some pieces at a time; none is a heartbeat.
Source = Callable[[], Pieces]
Resolve = Callable[[Service, str, Request | WebSocket, Body], Awaitable[Source]]


class Silence:
    """Tells when a heartbeat is due although news came: none of it was for this reader."""

    def __init__(self, most_s: float) -> None:
        self._most_s, self._since = most_s, time.monotonic()

    def is_broken(self, pieces: list[Piece]) -> bool:
        now = time.monotonic()
        if not pieces and now - self._since < self._most_s:
            return False
        self._since = now
        return True


async def resolve_chat(service: Service, user: str, request: Request | WebSocket, query: Body) -> Source:
    """The stream of one chat. Problem if there is no such chat, or no such place in its log."""
    assert isinstance(query, StreamQuery)
    state = await service.load_state(user, str(request.path_params["chat"]))
    after_seq = read_position(request, query.after) or 0
    if after_seq > state.head:
        text = f"The log ends at {state.head}; there is no event {after_seq}. Begin from the start."
        raise Problem("bad_request", text)
    turn = state.open_turn.turn if state.open_turn is not None else 0
    return lambda: _stream_chat(service, state.chat, after_seq, turn, query)


async def _stream_chat(service: Service, chat: ChatId, after_seq: int, turn: int, query: StreamQuery) -> Pieces:
    view = SimpleView() if query.view == "simple" else None
    silence = Silence(service.limits.heartbeat_s)
    async with service.feeds.open_reader(chat, after_seq, turn) as reader:
        async for batch in service.feeds.stream_batches(reader, service.limits.heartbeat_s, follow=query.follow):
            visible_events = [each for each in batch if query.deltas or not each.type.endswith("_delta")]
            if view is None:
                pieces = [(each.seq, service.frames.encode(each)) for each in visible_events]
            else:
                pieces = await _encode_words(service, view, visible_events, last=reader.live or not batch)
            if silence.is_broken(pieces):
                yield pieces
    if view is not None and (tail := view.flush()):
        yield [(seq, msgspec.json.encode(word)) for seq, word in tail]


async def _encode_words(service: Service, view: SimpleView, batch: list[Envelope], *, last: bool) -> list[Piece]:
    """The pieces for simple readers (A-11). An event that has no word moves their place in the log all the same."""
    pieces: list[Piece] = []
    for each in batch:
        words = view.show(await load_full_event(service.agent.deps.store, each))
        pieces += [(seq, msgspec.json.encode(word)) for seq, word in words]
        if each.seq and not words and not view.holds:
            pieces.append((each.seq, b""))
    if last:
        pieces += [(seq, msgspec.json.encode(word)) for seq, word in view.flush()]
    return pieces


async def resolve_watch(service: Service, user: str, request: Request | WebSocket, query: Body) -> Source:
    """The changes of all chats of the user. Problem if there is no such change to go on from."""
    assert isinstance(query, WatchQuery)
    newest = await service.agent.deps.store.wait_any(0, 0)
    if (after_change := read_position(request, query.after)) is not None and after_change > newest:
        raise Problem("bad_request", f"The last change has the number {newest}; there is no {after_change}.")
    begin = newest if after_change is None else after_change
    return lambda: _stream_changes(service, user, begin, query.follow)


async def _stream_changes(service: Service, user: str, after_change: int, follow: bool) -> Pieces:
    store = service.agent.deps.store
    ending = asyncio.ensure_future(service.draining.wait())
    silence = Silence(service.limits.heartbeat_s)
    try:
        while not ending.done():
            if listed := await store.list_changes(owner=get_owner(user), after_change=after_change, limit=CHANGES):
                after_change = listed[-1].change_number
                pieces: list[Piece] = []
                for each in listed:
                    line = {"changed": each.change_number, "chat": to_wire_form(build_chat_line(each))}
                    pieces.append((each.change_number, msgspec.json.encode(line)))
                if silence.is_broken(pieces):
                    yield pieces
            if len(listed) == CHANGES:
                continue
            if not follow:
                return
            waiting = asyncio.ensure_future(store.wait_any(after_change, service.limits.heartbeat_s))
            try:
                await asyncio.wait((waiting, ending), return_when=asyncio.FIRST_COMPLETED)
                if silence.is_broken([]):
                    yield []
                owner = get_owner(user)
                if waiting.done() and not await store.list_changes(owner=owner, after_change=after_change, limit=1):
                    after_change = waiting.result()  # a change of another user
            finally:
                waiting.cancel()
    finally:
        ending.cancel()


async def events(call: ApiRequest) -> Response:
    return await _open_stream(call, resolve_chat, call.get_query(StreamQuery))


async def watch(call: ApiRequest) -> Response:
    return await _open_stream(call, resolve_watch, call.get_query(WatchQuery))


async def _open_stream(call: ApiRequest, resolve: Resolve, query: Body) -> Response:
    pieces = await resolve(call.service, call.user, call.request, query)
    with call.service.hold_stream(call.user):
        pass  # refused here, where it can still be said how
    return EventStream(call.service, get_token(call.request), pieces)


# -- sending ----------------------------------------------------------------------------------------------------------
# A reader that takes nothing for too long is disconnected (`treadle.frontends.server.connections`) and can come back
# where it was. One whose token is revoked is sent no more.


def encode_event(data: bytes, id: int = 0) -> bytes:
    """One server-sent event. Live ones have no id, so that a reader comes back behind the last recorded one."""
    if not data:
        return b"id: %d\n\n" % id
    return b"id: %d\ndata: %b\n\n" % (id, data) if id else b"data: %b\n\n" % data


def read_position(request: Request | WebSocket, default_position: int | None) -> int | None:
    """Where a reader wants to go on: its Last-Event-ID, else `after` of its address."""
    if not (last_event_id := request.headers.get("last-event-id", "").strip()):
        return default_position
    if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 17):
        raise Problem("bad_request", f"Last-Event-ID {last_event_id[:40]!r} is no seq; it is a number from the stream.")
    return int(last_event_id)


async def stream_while_good(service: Service, token: Token, pieces: Pieces) -> Pieces:
    """The pieces, until the token is good no more: that is looked at once in a heartbeat (S-13)."""
    looked = time.monotonic()
    async with aclosing(pieces):  # type: ignore[type-var]
        async for batch in pieces:
            if time.monotonic() - looked >= service.limits.heartbeat_s:
                looked = time.monotonic()
                if not service.tokens.is_good(token):
                    return
            yield batch


class EventStream(Response):
    """Server-sent events. Open streams are counted in `run`."""

    def __init__(self, service: Service, token: Token, pieces: Source) -> None:
        super().__init__(media_type=EVENT_STREAM)
        del self.headers["content-length"]
        self.headers["x-accel-buffering"] = "no"
        self._service, self._token, self._pieces = service, token, pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            return await _send_body(send, b"", last=True)
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            await _cancel(sending, leaving)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            with self._service.hold_stream(self._token.user):
                await _send_body(send, OPENING)
                pieces = stream_while_good(self._service, self._token, self._pieces())
                async with aclosing(pieces):  # type: ignore[type-var]
                    async for batch in pieces:
                        await _send_body(send, b"".join(encode_event(data, id) for id, data in batch) or HEARTBEAT)
        except StoreError as error:
            log_warning("a stream ends early: %s", error)
        await _send_body(send, OPENING, last=True)


async def _send_body(send: Send, data: bytes, last: bool = False) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": not last})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def converse(service: Service, token: Token, socket: WebSocket, pieces: Source) -> None:
    """The same over a WebSocket: one message a piece, an empty one as heartbeat. The client's messages are ignored."""
    with service.hold_stream(token.user):
        await socket.accept()
        sending = asyncio.ensure_future(_talk(socket, stream_while_good(service, token, pieces())))
        leaving = asyncio.ensure_future(_wait_for_close(socket))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            is_connected = not leaving.done()
        finally:
            await _cancel(sending, leaving)
    if is_connected:  # the last message to it takes no place among the user's streams
        with suppress(RuntimeError, WebSocketDisconnect):
            await socket.close(RESTARTING if service.draining.is_set() else 1000)


async def _talk(socket: WebSocket, pieces: Pieces) -> None:
    try:
        async with aclosing(pieces):  # type: ignore[type-var]
            async for batch in pieces:
                for _id, data in [piece for piece in batch if piece[1]] or [(0, b"")]:
                    await socket.send_text(data.decode())
    except StoreError as error:
        log_warning("a stream ends early: %s", error)
    except (WebSocketDisconnect, RuntimeError):
        pass  # the other side has left


async def _wait_for_close(socket: WebSocket) -> None:
    with suppress(WebSocketDisconnect):
        while (await socket.receive())["type"] != "websocket.disconnect":
            pass


async def _cancel(*tasks: "asyncio.Future[None]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


TAG = "streams"
ROUTES = (
    Route("GET", "/api/chats/{chat}/events", events, "Follow a chat: recorded events, and live ones between them.",
          query=StreamQuery, media_type=EVENT_STREAM, codes=("too_many_streams", "draining")),
    Route("GET", "/api/watch", watch, "Follow which chats change.", query=WatchQuery, media_type=EVENT_STREAM,
          codes=("too_many_streams", "draining")),
)  # fmt: skip
SOCKETS: tuple[tuple[str, Resolve, type[Body]], ...] = (
    ("/api/chats/{chat}/events", resolve_chat, StreamQuery),
    ("/api/watch", resolve_watch, WatchQuery),
)
