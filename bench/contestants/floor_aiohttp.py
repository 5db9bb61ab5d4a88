"""The upper floor: aiohttp and msgspec, one session for all chats."""

from collections.abc import AsyncIterator

import aiohttp
from floor import Floor
from harness import Setting, main


class AiohttpWire:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def post(self, body: bytes) -> AsyncIterator[bytes]:
        async with self._session.post(self._url, data=body) as response:
            response.raise_for_status()
            async for data in response.content.iter_any():
                yield data


class AiohttpFloor(Floor):
    def __init__(self, setting: Setting) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        super().__init__(setting, lambda: AiohttpWire(self._session, f"{setting.url}/chat/completions"))

    async def close(self) -> None:
        await self._session.close()
        await super().close()


async def make(setting: Setting) -> AiohttpFloor:
    return AiohttpFloor(setting)


if __name__ == "__main__":
    main(make)
