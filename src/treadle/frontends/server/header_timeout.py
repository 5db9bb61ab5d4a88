"""HTTP connections that must send the headers of a request in time. uvicorn bounds only the pause between requests: a
client that sends one byte now and then would keep its connection for ever, and enough of them all that there are
(S-20)."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_S = 20.0


class TimedH11Protocol(H11Protocol):
    """Closes a connection whose next request is begun, or was never begun, and is not there in time."""

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
