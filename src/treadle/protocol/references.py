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


def iterate_references(value: Event | FileChange) -> Iterator[Reference]:
    """Yield the references of a recorded value itself. Those in a manifest come from calls with its changes."""
    yield from _iterate_within(value, "", True)


def list_needed_blobs(event: Event) -> list[str]:
    """The blobs without which an event is not whole."""
    needed = (reference.digest for reference in iterate_references(event) if reference.in_store and reference.needed)
    return list(dict.fromkeys(needed))


def _iterate_within(value: Any, path: str, needed: bool) -> Iterator[Reference]:
    if isinstance(value, msgspec.Struct):
        path = getattr(value, "path", path)
        if isinstance(value, FileChange) and value.before is not None and value.after is not None:
            # If only the mode changed, the change overwrote no bytes, so none need to be stored.
            needed = needed and value.before.digest != value.after.digest
        for name, to, perhaps in _list_reference_fields(type(value)):
            field_value = getattr(value, name)
            if not to:
                yield from _iterate_within(field_value, path, needed and not perhaps)
            elif to == "plan":
                yield from (Reference("image", digest, path, False) for digest in _iterate_hashes(field_value))
            elif field_value:
                yield Reference(to, field_value, path, needed and not perhaps)
    elif isinstance(value, tuple | list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _iterate_within(item, path, needed)


def _iterate_hashes(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if _HASH.fullmatch(value):
            yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _iterate_hashes(item)


@cache
def _list_reference_fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any, bool], ...]:
    """The fields of a type that refer to something, or lead to it: name, to what, and whether only perhaps."""
    reference_fields: list[tuple[str, Any, bool]] = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if name not in kind.__struct_fields__:
            continue
        marks = getattr(hint, "__metadata__", ())
        to = next((mark.to for mark in marks if isinstance(mark, Refers)), "")
        if to not in _NOTHING and (to or _has_references(hint)):
            reference_fields.append((name, to, any(isinstance(mark, Perhaps) for mark in marks)))
    return tuple(reference_fields)


def _has_references(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return bool(_list_reference_fields(hint))
    inner = get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint)
    return any(_has_references(each) for each in inner)


@cache
def list_referring_types() -> frozenset[str]:
    """The types of events that may refer to anything at all; no other need be decoded to find out."""
    return frozenset(name for name, kind in RECORDED.items() if _list_reference_fields(kind))
