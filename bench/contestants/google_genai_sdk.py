"""The google-genai SDK, with the HTTP client that it brings."""

from collections.abc import AsyncIterator, Awaitable, Callable

from google import genai
from google.genai.types import HttpOptions
from single import Ask, main_of


def open_sdk(url: str) -> tuple[Ask, Callable[[], Awaitable[None]]]:
    client = genai.Client(api_key="none", http_options=HttpOptions(base_url=url, timeout=600_000)).aio

    async def ask(model: str) -> AsyncIterator[str]:
        async for chunk in await client.models.generate_content_stream(model=model, contents="Go on."):
            if chunk.text:
                yield chunk.text

    return ask, client.aclose


if __name__ == "__main__":
    main_of(open_sdk)
