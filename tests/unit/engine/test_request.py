"""The pictures of a request: each is read once, even if the conversation changes."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from treadle.engine.deps import Deps
from treadle.engine.request import load_pictures
from treadle.errors import StoreError
from treadle.ports.model import Memo, ModelRequest
from treadle.protocol.content import AssistantEntry, Entry, Image, UserEntry


class Blobs:
    """A store of pictures that counts how often it is asked, and that may fail once."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fails = False

    async def get_blob(self, digest: str) -> bytes:
        self.asked.append(digest)
        if self.fails:
            self.fails = False
            raise StoreError("the disk is gone for a moment")
        return digest.encode()


def make_entry(seq: int, *pictures: str) -> UserEntry:
    return UserEntry("look", images=tuple(Image("image/png", blob) for blob in pictures), seq=seq)


async def load(blobs: Blobs, memo: Memo, *entries: Entry) -> None:
    request = ModelRequest("", entries, memo=memo)
    await load_pictures(request, cast(Deps, cast(Any, SimpleNamespace(store=blobs))))


async def test_pictures_are_read_once_and_those_of_an_edited_conversation_too() -> None:  # L-21
    blobs, memo = Blobs(), Memo()
    first, answer = make_entry(1, "a"), AssistantEntry(1, "yes")
    await load(blobs, memo, first)
    await load(blobs, memo, first, answer, make_entry(3, "b"))
    assert blobs.asked == ["a", "b"]
    await load(blobs, memo, first, answer, make_entry(9, "c"), AssistantEntry(2, "yes"))
    await load(blobs, memo, make_entry(12, "d"))
    assert blobs.asked == ["a", "b", "c", "d"]
    assert set(memo.pictures) == {"a", "b", "c", "d"}


async def test_a_picture_that_could_not_be_read_is_read_again() -> None:  # L-21
    blobs, memo = Blobs(), Memo()
    blobs.fails = True
    entry = make_entry(1, "a")
    with pytest.raises(StoreError):
        await load(blobs, memo, entry)
    await load(blobs, memo, entry)
    assert memo.pictures == {"a": b"a"}
