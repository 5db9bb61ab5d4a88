"""The openai SDK: both of its protocols, with the least that its documentation shows for a stream."""

from collections.abc import AsyncIterator, Awaitable, Callable

from openai import AsyncOpenAI
from single import Ask, main_of, provider_of


def open_sdk(url: str) -> tuple[Ask, Callable[[], Awaitable[None]]]:
    client = AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=600)

    async def ask_chat(model: str) -> AsyncIterator[str]:
        stream = await client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "Go on."}],
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in stream:
            for choice in chunk.choices:
                if choice.delta.content:
                    yield choice.delta.content

    async def ask_responses(model: str) -> AsyncIterator[str]:
        stream = await client.responses.create(model=model, input="Go on.", stream=True, store=False)
        async for event in stream:
            if event.type == "response.output_text.delta":
                yield event.delta

    return ask_responses if provider_of(url) == "openai-responses" else ask_chat, client.close


if __name__ == "__main__":
    main_of(open_sdk)
