"""Connections that are aborted when the other side takes nothing. Every answer passes here: plain ones, streams, and
the last frame of either. Closing a connection politely waits until its buffer is sent, which may be never."""

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from treadle.frontends.server.header_timeout import TimedH11Protocol

STALL_S = 30.0
"""How often a connection with unsent bytes is looked at. One that has taken nothing between two looks is aborted; a
stream can be resumed where it was."""

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol

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


class HttpConnection(StallWatch, TimedH11Protocol):
    pass


class SocketConnection(StallWatch, WebSocketsSansIOProtocol):  # type: ignore[misc]
    pass
