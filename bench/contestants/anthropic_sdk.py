"""The anthropic SDK, with raw events: its helper that adds them up costs more."""

from collections.abc import AsyncIterator, Awaitable, Callable

from anthropic import AsyncAnthropic
from single import Ask, main_of


def open_sdk(url: str) -> tuple[Ask, Callable[[], Awaitable[None]]]:
    client = AsyncAnthropic(base_url=url, api_key="none", max_retries=0, timeout=600)

    async def ask(model: str) -> AsyncIterator[str]:
        stream = await client.messages.create(
            model=model, max_tokens=4096, messages=[{"role": "user", "content": "Go on."}], stream=True
        )
        async for event in stream:
            if event.type == "content_block_delta" and event.delta.type == "text_delta":
                yield event.delta.text

    return ask, client.close


if __name__ == "__main__":
    main_of(open_sdk)
