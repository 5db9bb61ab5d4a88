"""Idempotency: the Idempotency-Key of a request, and the answer that is remembered under it in the same commit as what
the request did (A-04). Only what was carried out is remembered: a refusal changed nothing, so the same request is
judged anew."""

import hashlib
from collections.abc import Callable

import msgspec

from treadle.chat.state import ChatState
from treadle.engine.log import Answer
from treadle.errors import AlreadyAnswered
from treadle.frontends.server.replies import ApiReply, Problem
from treadle.ports.store import ANSWER_MS, Remembered, Store

HEADER = "idempotency-key"
MAX_KEY = 255


class Key(msgspec.Struct, frozen=True):
    """A request under its key."""

    owner: str
    key: str
    request: str
    """The hash of method, path and body."""

    def answer(self, make_reply: Callable[[ChatState], ApiReply], now_ms: int) -> Answer:
        """Return a function that makes the answer to remember from the state of the chat after the request."""

        return lambda state: self.remembered(make_reply(state), now_ms)

    def remembered(self, reply: ApiReply, now_ms: int) -> Remembered:
        return Remembered(self.owner, self.key, self.request, reply.status, reply.body, now_ms)

    def own_id(self, prefix: str, now_ms: int) -> str:
        """An id for what this request makes: the same for every repetition, as long as its answer is remembered."""
        about = f"{self.owner}\n{self.key}\n{self.request}\n{now_ms // ANSWER_MS}"
        return f"{prefix}_{hashlib.sha256(about.encode()).hexdigest()[:32]}"

    def part(self, name: str) -> "Key":
        """The key of a step of this request. No request has such a key: they are printable."""
        return msgspec.structs.replace(self, key=f"{self.key}\x1f{name}")


def key_of(values: list[str], owner: str, method: str, path: str, body: bytes) -> Key | None:
    """The key of a request, or None if it has none. Problem if it cannot be used."""
    if not values:
        return None
    key = values[0]
    if len(values) > 1 or not key or len(key) > MAX_KEY or not (key.isascii() and key.isprintable()):
        raise Problem("bad_request", f"Idempotency-Key must be 1 to {MAX_KEY} printable characters, once.")
    about = hashlib.sha256(f"{method} {path}\n".encode() + body).hexdigest()
    return Key(owner, key, about)


async def remember(store: Store, key: Key | None, reply: ApiReply, now_ms: int) -> None:
    """Keep the answer to a request that appends to no log. AlreadyAnswered if it has one."""
    if key is not None:
        await store.remember(key.remembered(reply, now_ms))


async def first_answer(store: Store, key: Key) -> ApiReply | None:
    """The answer that the request got before; None when it is new."""
    remembered = await store.recall(key.owner, key.key)
    return None if remembered is None else repeat_reply(key, remembered)


def repeat_reply(key: Key, first: Remembered | AlreadyAnswered) -> ApiReply:
    """The first answer to the same request, which was given before or while this one was under way."""
    if first.request != key.request:
        raise Problem("idempotency_mismatch", f"The Idempotency-Key {key.key!r} was used for another request.")
    return ApiReply(first.status, first.body)
