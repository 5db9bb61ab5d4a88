"""A state as bytes: read back exactly, or not at all. That it is the same in every state is in the property tests."""

import json

import msgspec
import pytest

from scripts.folded import FOLDED, LOGS, envelopes, now
from tests.unit.chat.logs import answer, chat, make_message
from treadle.base.types import make_call_key
from treadle.chat import snapshot
from treadle.chat.snapshot import KEY, RULES
from treadle.protocol import events as e


def test_a_state_with_everything_in_it() -> None:
    state = chat(
        make_message(), *answer(1, "a"), e.ExecutionStart(make_call_key(1, 0), "a", {"n": 10**30}, plan={"pre": "h"})
    )
    assert snapshot.decode(snapshot.encode(state)) == state


def test_bytes_of_another_shape_are_not_read() -> None:
    body = snapshot.encode(chat(make_message()))
    assert snapshot.decode(body.replace(KEY.encode(), b"0" * len(KEY))) is None


def test_a_state_that_older_rules_made_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    body = snapshot.encode(chat(make_message()))
    monkeypatch.setattr(snapshot, "KEY", KEY.replace(f"{RULES}.", f"{RULES + 1}."))
    assert snapshot.decode(body) is None


def test_rules_that_changed_have_a_new_version() -> None:
    """States that older rules made are kept in databases: the meaning of a log changes only with its version."""
    stored = json.loads(FOLDED.read_text(encoding="utf-8"))
    assert stored["rules"] == RULES, "the rules have a new version: run: python -m scripts.folded"
    assert now() == stored["logs"], "fold makes another state of a golden log: raise RULES in treadle/chat/snapshot.py"


def test_the_golden_logs_have_every_event() -> None:
    event_types = {envelope.type for file in LOGS.glob("*.jsonl") for envelope in envelopes(file)}
    assert event_types == set(e.RECORDED), "there is a new event: run: python -m scripts.folded"


def test_damaged_bytes_are_not_read() -> None:
    body = snapshot.encode(chat(make_message()))
    for size in range(0, len(body), 7):
        assert snapshot.decode(body[:size]) is None
    assert snapshot.decode(b"") is None
    assert snapshot.decode(msgspec.msgpack.encode([KEY, b"{}", 1])) is None
