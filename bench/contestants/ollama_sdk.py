"""The ollama SDK."""

from collections.abc import AsyncIterator, Awaitable, Callable

from ollama import AsyncClient
from single import Ask, main_of


def open_sdk(url: str) -> tuple[Ask, Callable[[], Awaitable[None]]]:
    client = AsyncClient(host=url, timeout=600)

    async def ask(model: str) -> AsyncIterator[str]:
        said = [{"role": "user", "content": "Go on."}]
        async for part in await client.chat(model=model, messages=said, stream=True):
            if part.message.content:
                yield part.message.content

    return ask, client._client.aclose  # it has no way of its own to close


if __name__ == "__main__":
    main_of(open_sdk)
