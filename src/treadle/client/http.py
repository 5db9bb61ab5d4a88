"""HTTP requests to a server of Treadle: the token, errors as ApiError, retries under one Idempotency-Key; and the event
stream of a chat, opened again behind the last event: every event comes once and in order (A-07, D-04)."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from treadle.base.http.client import HttpClient, HttpResponse
from treadle.base.types import ChatId, make_id
from treadle.errors import ApiError, Damaged, InvalidInput
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.http_answers import ErrorReply

T = TypeVar("T")
Pairs = Mapping[str, str]
AGAIN = frozenset({429, 502, 503, 504})  # The server, or what stands before it, cannot answer now.
FIRST_S = 0.1
LONGEST_S = 3.0
ANSWER_S = 30.0
SILENCE_S = 35.0  # Streams have a heartbeat every 10 seconds; one that is silent for so long is dead.


class Pause:
    """How long to wait before the next try: longer each time, and never the same for all clients of a server."""

    def __init__(self) -> None:
        self._next_s = FIRST_S

    async def __call__(self) -> None:
        await asyncio.sleep(self._next_s * random.uniform(0.5, 1.0))
        self._next_s = min(self._next_s * 2, LONGEST_S)


class Http:
    """`patience_s`: for how long a server that cannot be reached is asked again."""

    def __init__(self, url: str, token: str, patience_s: float) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Accept-Encoding": "gzip", **({"Authorization": f"Bearer {token}"} if token else {})}
        self._patience_s, self._client = patience_s, HttpClient()
        self.away = False  # True if the last attempt could not reach the server.

    async def get(self, path: str, kind: type[T], query: Pairs | None = None) -> T:
        return _decode_answer(await self._ask("GET", path, None, {}, query or {}), kind)

    async def change(
        self, method: str, path: str, body: object, kind: type[T], key: str = "", query: Pairs | None = None
    ) -> T:
        """A request that changes something. `key`: for one that may be repeated by another process, too."""
        headers = {"Idempotency-Key": key or make_id("k"), "Content-Type": "application/json"}
        answer = await self._ask(method, path, msgspec.json.encode(body), headers, query or {})
        return _decode_answer(answer or b"null", kind)

    async def _ask(self, method: str, path: str, body: bytes | None, headers: Pairs, query: Pairs) -> bytes:
        until = time.monotonic() + self._patience_s
        pause = Pause()
        while True:
            try:
                async with self._track_reachability(), asyncio.timeout(ANSWER_S):
                    with await self._send_request(method, path, headers, query, body) as response:
                        answer = await response.read_all()
                self._check_response(response, answer)
                return answer
            except ApiError as error:
                if (error.status and error.status not in AGAIN) or time.monotonic() > until:
                    raise
            await pause()

    @asynccontextmanager
    async def stream(self, path: str, headers: Pairs, query: Pairs) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of a stream, as they come. ApiError if it cannot be had, breaks off or falls silent."""
        async with self._track_reachability(), asyncio.timeout(SILENCE_S):
            response = await self._send_request("GET", path, {"Accept": "text/event-stream", **headers}, query)
        with response:
            if response.status >= 300:
                answer = b""
                with suppress(OSError):
                    async with asyncio.timeout(ANSWER_S):
                        answer = await response.read_all()
                self._check_response(response, answer)
            yield self._stream_pieces(response)

    async def _stream_pieces(self, response: HttpResponse) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    piece = await response.read()
            except OSError as error:
                reason = str(error) or type(error).__name__
                raise ApiError(0, "cut_off", f"The server {self._url} broke off its answer: {reason}.") from error
            if not piece:
                return
            yield piece

    async def _send_request(
        self, method: str, path: str, headers: Pairs, query: Pairs, body: bytes | None = None
    ) -> HttpResponse:
        url = f"{self._url}{path}?{urlencode(query)}" if query else self._url + path
        try:
            return await self._client.request(method, url, {**self._headers, **headers}, body)
        except ValueError as error:
            raise InvalidInput(f"The server {self._url} cannot be asked: {error}.") from error

    @asynccontextmanager
    async def _track_reachability(self) -> AsyncIterator[None]:
        """Notes whether the server can be reached, and says so in an ApiError if not."""
        try:
            yield
            self.away = False
        except OSError as error:  # time-outs, too
            self.away = True
            reason = str(error) or type(error).__name__
            raise ApiError(0, "unreachable", f"The server {self._url} cannot be reached: {reason}.") from error

    def _check_response(self, response: HttpResponse, answer: bytes) -> None:
        if response.redirect:
            message = f"The server {self._url} redirects to {response.redirect[:500]}, which is not followed."
            raise ApiError(response.status, "redirect", message)
        if response.status >= 400:
            raise decode_error(response.status, answer)

    async def close(self) -> None:
        await self._client.close()


def decode_error(status: int, answer: bytes) -> ApiError:
    """Return the error of an answer. An answer that is not Treadle's, such as a proxy's, is quoted."""
    try:
        error_body = msgspec.json.decode(answer, type=ErrorReply).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ApiError(status, "http", f"The server answered {status}: {answer[:200].decode(errors='replace')!r}")
    return ApiError(status, error_body.code, error_body.message)


def _decode_answer(answer: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        text = f"The answer is not Treadle's: {answer[:200].decode(errors='replace')!r}"
        raise ApiError(200, "http", text) from error


class Lines:
    """Bytes to the data of server-sent events. Each of ours is one line, and the envelope has its seq."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()


class _Seq(msgspec.Struct):
    seq: int = 0


class Gap(Exception):
    """An event is missing: the connection is made again."""


class Place:
    """How far a reader is: the last event it has, and the turn of which it has seen pieces."""

    def __init__(self, after_seq: int) -> None:
        self.after = after_seq
        self.connected = False  # True if the server has answered since this was last set to False.
        self._turn = 0

    def take(self, data: bytes) -> e.Envelope | None:
        """The envelope, if it comes next; None for one that came before, or that is newer than this client."""
        try:
            envelope = wire.from_json(data)
        except Damaged:
            self._advance_to(_decode_answer(data, _Seq).seq)
            return None
        match envelope.data:
            case e.MessageDelta(turn=turn) | e.ReasoningDelta(turn=turn) | e.ToolCallDelta(turn=turn):
                self._turn = turn
            case e.AssistantReset() | e.AssistantMessage() | e.TurnEnd():
                self._turn = 0
        return envelope if self._advance_to(envelope.seq) else None

    def _advance_to(self, seq: int) -> bool:
        if seq > self.after + 1:
            raise Gap
        fresh = not seq or seq > self.after
        self.after = max(self.after, seq)
        return fresh

    def reset(self, chat: ChatId) -> e.Envelope | None:
        """After a reconnection the text so far comes again: the event that discards the text seen before, if any."""
        turn, self._turn = self._turn, 0
        return e.Envelope(0, chat, time.time_ns() // 1_000_000, e.AssistantReset(turn)) if turn else None


async def follow(
    http: Http, chat: ChatId, after_seq: int, deltas: bool, patience_s: float
) -> AsyncGenerator[e.Envelope, None]:
    """Yield every event after `after_seq`, and live ones, until the caller stops. ApiError: no such chat or server."""
    place, pause = Place(after_seq), Pause()
    lost_at = time.monotonic()
    while True:
        failure: ApiError | None = None
        try:
            async with aclosing(_stream_envelopes(http, chat, place, deltas)) as envelopes:
                async for envelope in envelopes:
                    pause = Pause()
                    yield envelope
        except Gap:
            pass
        except ApiError as error:
            failure = error
        # A quiet stream is no outage: patience begins when the connection is lost.
        if place.connected and (failure is None or not failure.status):
            place.connected, lost_at = False, time.monotonic()
        elif failure is not None and (failure.status not in (0, *AGAIN) or time.monotonic() - lost_at > patience_s):
            raise failure
        await pause()
        if (dropped := place.reset(chat)) is not None:
            yield dropped


async def _stream_envelopes(http: Http, chat: ChatId, place: Place, deltas: bool) -> AsyncGenerator[e.Envelope, None]:
    headers = {"Last-Event-ID": str(place.after)} if place.after else {}
    lines = Lines()
    async with http.stream(f"/api/chats/{chat}/events", headers, {} if deltas else {"deltas": "false"}) as pieces:
        place.connected = True
        async for piece in pieces:
            for data in lines.feed(piece):
                if (envelope := place.take(data)) is not None:
                    yield envelope
