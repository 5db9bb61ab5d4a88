"""Connections that are aborted when the other side takes nothing. Every answer passes here: plain ones, streams, and
the last frame of either. Closing a connection politely waits until its buffer is sent, which may be never."""

import asyncio
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

HEADERS_S = 20.0
STALL_S = 30.0
"""How often a connection with unsent bytes is looked at. One that has taken nothing between two looks is aborted; a
stream can be resumed where it was."""

if TYPE_CHECKING:
    _Protocol = H11Protocol
else:
    _Protocol = object


class StallWatch(_Protocol):
    """Only a connection whose writers wait, or that is closing, is counted as stalled: there the buffer can only become
    smaller."""

    _paused = False
    _unsent = 0
    """Bytes that were unsent at the last look, if the connection was stalled; else 0."""
    _next_look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._next_look = asyncio.get_running_loop().call_later(STALL_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        self._paused = True
        super().pause_writing()

    def resume_writing(self) -> None:
        self._paused, self._unsent = False, 0
        super().resume_writing()

    def _look(self) -> None:
        if self.transport.get_protocol() is not self:
            return  # it has become a WebSocket, which is watched by itself
        unsent = self.transport.get_write_buffer_size() if self._paused or self.transport.is_closing() else 0
        if self._unsent and unsent >= self._unsent:
            self.transport.abort()
            return
        self._unsent = unsent
        self._next_look = asyncio.get_running_loop().call_later(STALL_S, self._look)


class TimedH11Protocol(H11Protocol):
    """Must send the headers of a request in time (S-20): uvicorn bounds only the pause between requests, so that a
    client that sends one byte now and then would keep its connection for ever, and enough of them all there are. Closes
    a connection whose next request is begun, or was never begun, and is not there in time."""

    _headers_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._lacks_headers() and self.conn.trailing_data[0]:
            self._expect_headers()
        else:
            self._stop_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._lacks_headers() and self.conn.trailing_data[0]:  # a request that was begun behind the last one
            self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _lacks_headers(self) -> bool:
        return self.conn.their_state is h11.IDLE

    def _expect_headers(self) -> None:
        if self._headers_due is None:
            self._headers_due = self.loop.call_later(HEADERS_S, self._close_if_late)

    def _stop_timer(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def _close_if_late(self) -> None:
        self._headers_due = None
        transport: Any = self.transport
        if self._lacks_headers() and not transport.is_closing():
            transport.abort()  # closing would wait for a client that reads nothing


class HttpConnection(StallWatch, TimedH11Protocol):
    pass


class SocketConnection(StallWatch, WebSocketsSansIOProtocol):  # type: ignore[misc]
    pass
