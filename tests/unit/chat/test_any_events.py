"""Any log can be read: events made up at random, in any order, with references to nothing."""

import types
from typing import Any, Literal, NewType, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.chance import examples
from tests.unit.chat.player import CHAT, LIMITS, valid_history
from treadle.chat import snapshot
from treadle.chat.decide import decide
from treadle.chat.fold import fold
from treadle.chat.state import ChatState, build_summary, compute_status, list_open_actions
from treadle.chat.transcript import build_entries
from treadle.protocol import events as e
from treadle.protocol import wire

TEXT = st.sampled_from(["", "a", "1.0", "1.1", "2.0", "x.y", "long " * 700])
NUMBER = st.sampled_from([0, 1, 2, 3, 7, -1, 10**12])


def of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of any type that events are made of; few of each, so that they refer to each other."""
    if isinstance(kind, NewType):
        return TEXT
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (Union, types.UnionType):
        return st.one_of([of(arg) for arg in args])
    if origin is tuple:
        return st.lists(of(args[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(st.sampled_from(["max_turns", "n", "model"]), of(args[1]), max_size=2)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind)
        return st.builds(kind, **{name: of(hints[name]) for name in kind.__struct_fields__})
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: TEXT,
        int: NUMBER,
        bool: st.booleans(),
        float: st.sampled_from([0.0, 0.5, 90.0]),
        type(None): st.none(),
        Any: NUMBER | TEXT,
    }
    return plain[kind]


EVENTS = st.one_of([of(kind) for kind in e.RECORDED.values()])


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=25), st.integers(0, 25))
def test_any_log_can_be_folded_decided_and_kept(events: list[e.Event], position: int) -> None:
    state = ChatState(chat=CHAT)
    resumed = state
    for seq, event in enumerate(events, 1):
        envelope = e.Envelope(seq, CHAT, seq * 1_000, event, seq % 2)
        assert wire.decode(CHAT, wire.encode(envelope)) == envelope
        state, resumed = fold(state, envelope), fold(resumed, envelope)
        if seq == position:
            resumed = snapshot.decode(snapshot.encode(resumed)) or ChatState()
        decide(state, lambda: LIMITS)
        assert build_summary(state).status == compute_status(state)
        assert all(action.action is not None for action in list_open_actions(state))
        valid_history(build_entries(state))
    assert resumed == state
    assert state.head == len(events)
