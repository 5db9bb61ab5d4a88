"""The golden files of events (V-06): for every type its version, its shape, and two instances in wire form.

    python -m scripts.golden            # write files of types that have none, and refresh the examples of the others
    python -m scripts.golden --reset    # accept changed shapes without a new version: only for what was never released

A change of shape is a new VERSION: raise it, add an upcaster from the old one to `treadle.protocol.wire`, rename the
old file to `<type>.v<old version>.json`, and run this.
"""

import json
import sys
import types
from pathlib import Path
from typing import Any, Literal, NewType, Union, get_args, get_origin, get_type_hints

import msgspec

from tests.golden.samples import SAMPLES
from treadle.base.types import ChatId
from treadle.protocol import wire
from treadle.protocol.events import LIVE, RECORDED, Envelope, Event

FOLDER = Path(__file__).parents[1] / "tests" / "golden" / "events"
CHAT = ChatId("c_0123456789abcdef")
TIME_MS = 1_700_000_000_123


def type_text(kind: Any) -> str:
    """A type as it stands in a shape and in the reference."""
    if isinstance(kind, NewType):
        return str(kind.__name__)
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " | ".join(json.dumps(arg) for arg in args)
    if origin in (Union, types.UnionType):
        return " | ".join(type_text(arg) for arg in args)
    if origin is tuple:
        return f"list of {type_text(args[0])}"
    if origin is dict:
        return f"object of {type_text(args[1])}"
    plain = {str: "text", int: "integer", float: "number", bool: "true or false", type(None): "null", Any: "anything"}
    return plain.get(kind) or str(kind.__name__)


def structs_in(kind: Any) -> list[type[msgspec.Struct]]:
    """The structs that a type mentions, directly or inside a container."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind]
    return [found for arg in get_args(kind) if get_origin(kind) is not Literal for found in structs_in(arg)]


def fields(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The fields as they are on the wire, with their types; a field that may be left out is marked."""
    hints = get_type_hints(kind)
    found: dict[str, str] = {}
    for field in msgspec.structs.fields(kind):
        optional = "" if field.required else ", optional"
        found[field.encode_name] = type_text(hints[field.name]) + optional
    return found


def parts(kind: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """Every struct that stands inside this one, at any depth."""
    found: list[type[msgspec.Struct]] = []
    waiting = [kind]
    while waiting:
        hints = get_type_hints(waiting.pop())
        for inner in [struct for hint in hints.values() for struct in structs_in(hint)]:
            if inner not in found:
                found.append(inner)
                waiting.append(inner)
    return sorted(found, key=lambda struct: struct.__name__)


def shape(kind: type[Event]) -> dict[str, Any]:
    """All that a reader of this event must know of its form. The fingerprint that a version stands for."""
    return {"fields": fields(kind), "parts": {inner.__name__: fields(inner) for inner in parts(kind)}}


def minimal(event: Event) -> Event:
    """The event with nothing but its required fields."""
    required = {field.name for field in msgspec.structs.fields(type(event)) if field.required}
    return type(event)(**{name: getattr(event, name) for name in required})


def envelope(event: Event) -> Envelope:
    live = event.TYPE in LIVE
    return Envelope(0 if live else 17, CHAT, TIME_MS, event, 0 if live else 2)


def golden(kind: type[Event]) -> dict[str, Any]:
    sample = SAMPLES[kind.TYPE]
    least = minimal(sample)
    return {
        "type": kind.TYPE,
        "version": kind.VERSION,
        "recorded": kind.TYPE in RECORDED,
        "shape": shape(kind),
        "full": wire.to_dict(envelope(sample)),
        "minimal": wire.to_dict(envelope(least)) | {"data": msgspec.to_builtins(least)},
    }


def write(folder: Path, reset: bool) -> list[str]:
    """Write what may be written; the types whose shape changed without a new version are refused and returned."""
    refused: list[str] = []
    for name, kind in (RECORDED | LIVE).items():
        path = folder / f"{name}.json"
        made = golden(kind)
        if path.exists() and not reset:
            old = json.loads(path.read_text(encoding="utf-8"))
            if old["version"] != made["version"] or old["shape"] != made["shape"]:
                refused.append(name)
                continue
        path.write_text(json.dumps(made, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return refused


def main(arguments: list[str]) -> int:
    refused = write(FOLDER, "--reset" in arguments)
    for name in refused:
        print(f"{name}: its shape changed; give it a new VERSION, see the top of scripts/golden.py", file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
