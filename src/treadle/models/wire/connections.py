"""How connections to providers are made. Imports aiohttp, so it is itself imported at the first request."""

from asyncio import AbstractEventLoop
from functools import partial
from typing import cast

import aiohttp
from aiohttp.client_proto import ResponseHandler

KEEPALIVE_S = 60.0


class _Handler(ResponseHandler):
    def resume_reading(self, resume_parser: bool = True) -> None:
        """Whoever reads calls this for each piece that was read. From aiohttp 3.14 on, that goes through the parser
        each time, though there can be something left in it only when reading was paused: a quarter of all that a
        chunk costs."""
        if getattr(self, "_reading_paused", True):
            super().resume_reading(resume_parser)


def connector(loop: AbstractEventLoop) -> aiohttp.TCPConnector:
    """As many connections as are asked for. An aiohttp that makes its handlers in another way makes its own."""
    made = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S)
    made._factory = cast("partial[ResponseHandler]", partial(_Handler, loop=loop))
    return made
