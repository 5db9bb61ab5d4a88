"""A contestant without memory or tools, for what reads a provider's stream: each message is one model call."""

from collections.abc import AsyncIterator, Awaitable, Callable

from harness import Setting, main

Ask = Callable[[str], AsyncIterator[str]]
"""Calls the model of this name and yields the text of its answer, piece by piece."""
Open = Callable[[str], tuple[Ask, Callable[[], Awaitable[None]]]]
"""From the provider's address: a way to ask, and a way to close."""


class SingleChat:
    def __init__(self, ask: Ask, model: str) -> None:
        self._ask = ask
        self._model = model

    async def send(self, text: str) -> AsyncIterator[str]:
        whole: list[str] = []
        async for piece in self._ask(self._model):
            whole.append(piece)
            yield piece
        "".join(whole)  # an answer is worth something only when it is whole


class Single:
    def __init__(self, open_: Open, url: str) -> None:
        self._ask, self.close = open_(url)

    async def chat(self, model: str, name: str) -> SingleChat:
        return SingleChat(self._ask, model)


def main_of(open_: Open) -> None:
    async def make(setting: Setting) -> Single:
        return Single(open_, setting.url)

    main(make)


def provider_of(url: str) -> str:
    """The first part of the server's path."""
    return url.split("/")[3]
