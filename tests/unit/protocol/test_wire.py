"""Envelopes as JSON and back; an unreadable record is never fatal (D-06, D-08)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.base.types import ChatId
from treadle.errors import Damaged, InvalidInput
from treadle.protocol import wire
from treadle.protocol.commands import ChangeOptions
from treadle.protocol.content import Usage
from treadle.protocol.events import AssistantMessage, Envelope, MessageDelta, RecordLost, RunEnd, UserMessage
from treadle.protocol.wire import UPCASTERS, Record, upcast

CHAT = ChatId("c_1")


def line(**changes: object) -> str:
    return json.dumps({"seq": 1, "chat": "c_1", "type": "user.message", "data": {"content": "hi"}} | changes)


def test_the_envelope_on_the_wire() -> None:
    payload = wire.to_dict(Envelope(17, CHAT, 1_700_000_000_007, RunEnd("done"), 3))
    assert list(payload) == ["seq", "id", "chat", "time", "type", "data", "version", "epoch"]
    assert payload["id"] == "c_1:17"
    assert payload["time"] == "2023-11-14T22:13:20.007Z"


def test_a_live_event_has_no_place() -> None:
    payload = wire.to_dict(Envelope(0, CHAT, 0, MessageDelta(1, "x")))
    assert payload["ephemeral"] is True
    assert "seq" not in payload
    assert "id" not in payload
    assert wire.from_json(wire.to_json(Envelope(0, CHAT, 0, MessageDelta(1, "x")))).ephemeral


@given(st.integers(-(10**13), 4 * 10**12))
def test_times_survive_to_the_millisecond(time_ms: int) -> None:
    assert wire.parse_time(wire.format_time(time_ms)) == time_ms


def test_times_of_other_writers() -> None:
    assert wire.parse_time("2023-11-14T23:13:20.007+01:00") == 1_700_000_000_007
    assert wire.parse_time("2023-11-14T22:13:20Z") == 1_700_000_000_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        line(type="user.massage"),
        line(data={"content": 5}),
        line(data={}),
        line(data=None),
        line(version=99),
        line(version=0),
        line(time="yesterday"),
        line(seq="one"),
    ],
)
def test_what_is_no_event_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(Damaged) as caught:
        wire.from_json(text)
    assert len(str(caught.value)) > 10


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(Damaged):
        wire.from_json(b'{"type": "user.message", "data": {"content": "\xff\xfe"}}')


def test_unknown_fields_are_passed_over() -> None:
    assert wire.from_json(line(colour="red", data={"content": "hi", "mood": "good"})).data == UserMessage("hi")


@pytest.mark.parametrize(
    ("kind", "version", "body"),
    [
        ("user.message", 1, b'{"content": "half'),
        ("user.message", 1, b"\xff"),
        ("user.message", 1, b'{"content": "\xff"}'),
        ("user.message", 7, b'{"content": "from the future"}'),
        ("user.message", 0, b'{"content": "marked by the store"}'),
        ("user.massage", 1, b"{}"),
        ("user.message", 1, b'{"content": "x", "delivery": "by pigeon"}'),
    ],
)
def test_a_damaged_record_stands_in_its_place_as_lost(kind: str, version: int, body: bytes) -> None:
    envelope = wire.decode(CHAT, Record(5, 1_000, kind, version, 2, body))
    assert isinstance(envelope.data, RecordLost)
    assert envelope.data.lost_type == kind
    assert envelope.data.reason
    assert (envelope.seq, envelope.time_ms, envelope.epoch) == (5, 1_000, 2)


def test_old_versions_are_lifted_step_by_step() -> None:
    table = {
        ("t", 1): lambda data: {"text": data["txt"]},
        ("t", 2): lambda data: {"content": data["text"].upper()},
    }
    assert upcast("t", 1, {"txt": "hi"}, table) == {"content": "HI"}
    assert upcast("t", 2, {"text": "hi"}, table) == {"content": "HI"}
    for kind, version in (("t", 3), ("u", 1)):
        with pytest.raises(Damaged, match=f"version {version}"):
            upcast(kind, version, {}, table)


def test_an_upcast_event_is_decoded_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UserMessage, "VERSION", 2)
    monkeypatch.setitem(UPCASTERS, ("user.message", 1), lambda data: {"content": data["text"]})
    assert wire.from_json(line(data={"text": "old"})).data == UserMessage("old")
    assert wire.from_json(line(version=2)).data == UserMessage("hi")
    with pytest.raises(Damaged):
        wire.from_json(line(data={"text": 5}))


def test_an_upcaster_that_cannot_cope_loses_one_record_not_the_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UserMessage, "VERSION", 2)
    monkeypatch.setitem(UPCASTERS, ("user.message", 1), lambda data: {"content": data["text"]})
    assert isinstance(wire.decode(CHAT, Record(1, 0, "user.message", 1, 0, b'{"other": 1}')).data, RecordLost)
    assert isinstance(wire.decode(CHAT, Record(1, 0, "user.message", 1, 0, b"[1]")).data, RecordLost)


def test_a_stored_form_reads_back_as_the_envelope_that_comes_with_it() -> None:  # D-06
    plain = Envelope(3, CHAT, 5, UserMessage("plain"), 2)
    unchanged, record = wire.encode_replacing(plain)
    assert unchanged is plain
    assert record == wire.encode(plain)
    replaced, record = wire.encode_replacing(Envelope(3, CHAT, 5, UserMessage("half \udc80 of one"), 2))
    assert wire.decode(CHAT, record) == replaced
    assert replaced.data == UserMessage("half \ufffd of one")
    with pytest.raises(InvalidInput):
        wire.encode_replacing(Envelope(3, CHAT, 5, AssistantMessage(1, usage=Usage(usd=float("inf"))), 2))


NESTED = b'{"call":"1.0","name":"x","arguments":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001


def test_a_record_that_is_nested_too_deeply_is_lost_and_no_more() -> None:  # D-06
    """Also where this Python could decode it: 3.13 decodes 5,000 levels."""
    assert isinstance(wire.decode(CHAT, Record(3, 5, "tool.execution_start", 3, 0, NESTED)).data, RecordLost)
    with pytest.raises(Damaged):
        wire.from_json(b'{"type":"tool.execution_start","seq":1,"data":' + NESTED + b"}")


@pytest.mark.parametrize("time_ms", [10**18, -(10**18), 253_402_300_800_000, "abc", None, 1.5])
def test_a_damaged_time_is_unknown_and_the_event_can_be_shown(time_ms: int) -> None:  # D-06
    envelope = wire.decode(CHAT, Record(3, time_ms, "user.message", 3, 0, b'{"content":"hi"}'))
    assert envelope.time_ms == 0
    assert wire.from_json(wire.to_json(envelope)) == envelope


def test_a_time_before_the_first_year_is_unknown() -> None:
    assert wire.from_json(line(time="0001-01-01T00:00:00+14:00")).time_ms == 0


def test_what_readers_could_not_visit_is_refused() -> None:  # S-20
    deep: object = 1
    for _ in range(300):
        deep = {"a": [deep]}
    with pytest.raises(InvalidInput, match="levels deep"):
        wire.encode_value(ChangeOptions({"output_schema": deep}))
