"""The references of events to objects outside the log: one list for export, import, `treadle gc` and `treadle fsck`. It
is derived from the markers on the fields of the types, so that it includes new fields automatically (D-06, D-08)."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from treadle.protocol.content import Perhaps, Refers
from treadle.protocol.events import RECORDED, Event
from treadle.protocol.files import FileChange

Kind = Literal["blob", "manifest", "image"]
_HASH = re.compile(r"[0-9a-f]{64}")
_NOTHING = ("file", "fingerprint")  # marks of hashes under which nothing is kept


class Reference(msgspec.Struct, frozen=True):
    """A hash of something that is kept outside the log."""

    kind: Kind
    digest: str
    path: str = ""  # the file of the project that it is about, if it is about one
    needed: bool = True  # True if the absence of the object is an error

    @property
    def in_store(self) -> bool:
        """True if the object is a blob beside the log."""
        return self.kind != "image"


def references(value: Event | FileChange) -> Iterator[Reference]:
    """Yield the references of a recorded value itself. Those in a manifest come from calls with its changes."""
    yield from _within(value, "", True)


def lost_without(event: Event) -> list[str]:
    """The blobs without which an event is not whole."""
    needed = (reference.digest for reference in references(event) if reference.in_store and reference.needed)
    return list(dict.fromkeys(needed))


def _within(value: Any, path: str, needed: bool) -> Iterator[Reference]:
    if isinstance(value, msgspec.Struct):
        path = getattr(value, "path", path)
        if isinstance(value, FileChange) and value.before is not None and value.after is not None:
            # If only the mode changed, the change overwrote no bytes, so none need to be stored.
            needed = needed and value.before.digest != value.after.digest
        for name, to, perhaps in _fields(type(value)):
            field_value = getattr(value, name)
            if not to:
                yield from _within(field_value, path, needed and not perhaps)
            elif to == "plan":
                yield from (Reference("image", digest, path, False) for digest in _hashes(field_value))
            elif field_value:
                yield Reference(to, field_value, path, needed and not perhaps)
    elif isinstance(value, tuple | list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _within(item, path, needed)


def _hashes(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if _HASH.fullmatch(value):
            yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _hashes(item)


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any, bool], ...]:
    """The fields of a type that refer to something, or lead to it: name, to what, and whether only perhaps."""
    reference_fields: list[tuple[str, Any, bool]] = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if name not in kind.__struct_fields__:
            continue
        marks = getattr(hint, "__metadata__", ())
        to = next((mark.to for mark in marks if isinstance(mark, Refers)), "")
        if to not in _NOTHING and (to or _leads(hint)):
            reference_fields.append((name, to, any(isinstance(mark, Perhaps) for mark in marks)))
    return tuple(reference_fields)


def _leads(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return bool(_fields(hint))
    inner = get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint)
    return any(_leads(each) for each in inner)


@cache
def referring() -> frozenset[str]:
    """The types of events that may refer to anything at all; no other need be decoded to find out."""
    return frozenset(name for name, kind in RECORDED.items() if _fields(kind))
