"""Treadle's adapters alone, without a loop: a model call through the port, its deltas and what they add up to."""

from collections.abc import AsyncIterator, Awaitable, Callable

from single import Ask, main_of, provider_of

from treadle.adapters.models.registry import ModelRegistry
from treadle.chat.assembly import Assembler
from treadle.ports.model import ModelRequest, TextDelta
from treadle.protocol.content import UserEntry

ADDRESSES = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "gemini": "GEMINI_BASE_URL",
    "ollama": "OLLAMA_HOST",
    "openai": "OPENAI_BASE_URL",
    "openai-responses": "OPENAI_BASE_URL",
}


def open_adapter(url: str) -> tuple[Ask, Callable[[], Awaitable[None]]]:
    provider = provider_of(url)
    models = ModelRegistry({ADDRESSES[provider]: url})

    async def ask(name: str) -> AsyncIterator[str]:
        model = models.get(f"{provider}:{name}")
        assembler = Assembler(1)
        async for deltas in model.stream(ModelRequest("", [UserEntry("Go on.")])):
            assembler.feed(deltas)
            for delta in deltas:
                if type(delta) is TextDelta:
                    yield delta.text
        assembler.finish(model.info.ref)

    return ask, models.close


if __name__ == "__main__":
    main_of(open_adapter)
