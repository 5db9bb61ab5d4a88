"""A state as bytes: read back exactly, or not at all. That it is the same in every state is in the property tests."""

import msgspec

from tests.unit.chat.logs import answer, chat, said
from treadle.chat import snapshot
from treadle.chat.snapshot import SHAPE
from treadle.protocol import events as e
from treadle.types import call_key


def test_a_state_with_everything_in_it() -> None:
    state = chat(said(), *answer(1, "a"), e.ExecutionStart(call_key(1, 0), "a", {"n": 10**30}, plan={"pre": "h"}))
    assert snapshot.decode(snapshot.encode(state)) == state


def test_bytes_of_another_shape_are_not_read() -> None:
    body = snapshot.encode(chat(said()))
    assert snapshot.decode(body.replace(SHAPE.encode(), b"0" * len(SHAPE))) is None


def test_damaged_bytes_are_not_read() -> None:
    body = snapshot.encode(chat(said()))
    for cut in range(0, len(body), 7):
        assert snapshot.decode(body[:cut]) is None
    assert snapshot.decode(b"") is None
    assert snapshot.decode(msgspec.msgpack.encode([SHAPE, b"{}", 1])) is None
