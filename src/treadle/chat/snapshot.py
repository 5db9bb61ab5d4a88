"""A state as bytes and back. A cache only: bytes from another version of the state, or of the rules that made it, are
not read, and the log is folded instead."""

import hashlib

import msgspec
from msgspec.structs import replace

from treadle.chat import state as states
from treadle.chat.history import History
from treadle.chat.state import ChatState
from treadle.chat.transcript import rebuild
from treadle.protocol import content, events, options
from treadle.protocol.content import Entry


def _compute_shape() -> str:
    """Names the shape of everything in a state; it changes when any field does."""
    values = [value for module in (states, content, options, events) for value in vars(module).values()]
    kinds = [value for value in values if isinstance(value, type) and issubclass(value, msgspec.Struct)]
    shapes = sorted(f"{kind.__name__}{kind.__struct_fields__}" for kind in kinds)
    return hashlib.sha256("".join(shapes).encode()).hexdigest()[:16]


RULES = 15
"""The version of the fold rules. Raise it whenever `fold` derives another state from the same log: snapshots of older
rules are then ignored. A test compares the folded states of golden logs."""
KEY = f"{RULES}.{_compute_shape()}"


class _Body(msgspec.Struct, array_like=True):
    key: str
    state: bytes
    entries: msgspec.Raw


# Made at import, as in `wire`.
_body_decoder = msgspec.msgpack.Decoder(_Body)
_entries_decoder = msgspec.msgpack.Decoder(list[Entry])
_state_decoder = msgspec.json.Decoder(ChatState, dec_hook=lambda _kind, _value: History())


def encode(state: ChatState) -> bytes:
    entries = msgspec.Raw(msgspec.msgpack.encode(state.history.slice(0)))
    # As JSON: arguments may hold integers that are too large for msgpack.
    bare = msgspec.json.encode(replace(state, history=History(), transcript=History()), enc_hook=lambda _value: None)
    return msgspec.msgpack.encode(_Body(KEY, bare, entries))


def decode(body: bytes) -> ChatState | None:
    """The state, or None when these bytes are not of this version."""
    try:
        read = _body_decoder.decode(body)
        if read.key != KEY:
            return None
        history: History[Entry] = History(_entries_decoder.decode(read.entries))
        state = _state_decoder.decode(read.state)
    except msgspec.MsgspecError:
        return None
    return replace(state, history=history, transcript=rebuild(history, state.compaction))
