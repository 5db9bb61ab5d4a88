"""Every type of V-01, V-02, V-03, V-04 and V-05 has a golden file here, and a change of its shape is a new version with
an upcaster (V-06)."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scripts.golden import FOLDER, envelope, minimal, parts, shape, write
from tests.golden.samples import SAMPLES
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.wire import UPCASTERS

EVERY = e.RECORDED | e.LIVE
TYPES = sorted(EVERY)


def load(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def test_every_type_has_a_golden_file_and_every_file_a_type() -> None:
    current = {path.stem for path in FOLDER.glob("*.json") if ".v" not in path.stem}
    assert current == set(EVERY)


def test_the_lists_of_types_are_closed() -> None:  # V-01 to V-05
    assert not set(e.RECORDED) & set(e.LIVE)
    assert all(name == kind.TYPE for name, kind in EVERY.items())
    assert all(issubclass(kind, e.Live) == (name in e.LIVE) for name, kind in EVERY.items())


@pytest.mark.parametrize("name", TYPES)
def test_a_change_of_shape_is_a_new_version(name: str) -> None:
    golden = load(name)
    kind = EVERY[name]
    assert golden["version"] == kind.VERSION, f"{name} has a new version: run: python -m scripts.golden"
    assert golden["shape"] == shape(kind), (
        f"the shape of {name} changed: see scripts/golden.py for a new version, or --reset"
    )
    assert golden["recorded"] == (name in e.RECORDED)


@pytest.mark.parametrize("name", sorted(e.RECORDED))
def test_every_older_version_can_still_be_read(name: str) -> None:
    kind = e.RECORDED[name]
    for version in range(1, kind.VERSION):
        assert (name, version) in UPCASTERS, f"{name} has no upcaster from version {version}"
        old = load(f"{name}.v{version}")
        assert type(wire.from_json(json.dumps(old["full"]))) is e.Envelope


@pytest.mark.parametrize("name", TYPES)
def test_the_golden_file_reads_as_what_it_stands_for(name: str) -> None:
    golden = load(name)
    full, least = wire.from_json(json.dumps(golden["full"])), wire.from_json(json.dumps(golden["minimal"]))
    assert msgspec.to_builtins(full.data) == msgspec.to_builtins(SAMPLES[name])  # field by field, for the message
    assert full == envelope(SAMPLES[name])
    assert least == envelope(minimal(SAMPLES[name]))
    assert wire.to_dict(full) == golden["full"]


@pytest.mark.parametrize("name", TYPES)
def test_the_sample_says_something_in_every_field(name: str) -> None:
    """Else a field could be lost on the way and no test would show it."""
    empty_fields = [field for field in _defaults(SAMPLES[name]) if field]
    assert empty_fields == []


def _defaults(value: msgspec.Struct) -> list[str]:
    default_fields: list[str] = []
    for field in msgspec.structs.fields(type(value)):
        field_value = getattr(value, field.name)
        default = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
        if not field.required and field_value == default:
            default_fields.append(f"{type(value).__name__}.{field.name}")
    return default_fields


@pytest.mark.parametrize("name", sorted(e.RECORDED))
def test_the_stored_form_is_read_back_exactly(name: str) -> None:  # D-04
    for event in (SAMPLES[name], minimal(SAMPLES[name])):
        sample = envelope(event)
        assert wire.decode(sample.chat, wire.encode(sample)) == sample


def test_a_changed_shape_is_not_written_over(tmp_path: Path) -> None:
    assert write(tmp_path, reset=False) == []
    path = tmp_path / "session.idle.json"
    old = json.loads(path.read_text())
    old["shape"]["fields"]["reason"] = "integer"
    path.write_text(json.dumps(old))
    assert write(tmp_path, reset=False) == ["session.idle"]
    assert json.loads(path.read_text()) == old
    assert write(tmp_path, reset=True) == []


def test_a_shape_reaches_into_what_an_event_is_made_of() -> None:
    inner = [each.__name__ for each in parts(e.SessionCreated)]
    assert inner == ["Budget", "ChatOptions", "DynamicTool", "Rule", "Skill"]
    assert shape(e.SessionCreated)["parts"]["Budget"]["usd"] == "number, optional"
    assert shape(e.TurnRetry)["fields"]["class"] == "text"


def test_a_chat_with_the_old_turn_cap_keeps_it() -> None:  # L-03, V-06
    least = wire.decode_event("session.created", 4, b'{"options":{"model":"openai:gpt-4.1"}}')
    explicit = wire.decode_event("session.created", 4, b'{"options":{"max_turns":7}}')
    new = wire.decode_event("session.created", 5, b'{"options":{}}')
    events = (least, explicit, new)
    assert [each.options.max_turns for each in events if isinstance(each, e.SessionCreated)] == [20, 7, 100]


@pytest.mark.parametrize(
    ("old", "options"),
    [("session.created.v1", "options"), ("session.created.v2", "options"), ("session.options_changed.v1", "changes")],
)
def test_a_chat_that_asked_by_words_still_does(old: str, options: str) -> None:  # S-07: no upgrade widens a chat
    full = load(old)["full"]
    assert full["data"][options]["mode"] == "ask"
    event = msgspec.to_builtins(wire.from_json(json.dumps(full)).data)
    assert event[options]["mode"] == "confirm"
