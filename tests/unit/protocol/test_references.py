"""One list of what events refer to, made from the types: a field with a hash in it cannot be forgotten (D-06, D-08)."""

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import msgspec
import pytest

from scripts.field_tables import field_docs
from scripts.golden import parts
from tests.golden.samples import SAMPLES
from treadle import protocol
from treadle.base.types import CallKey
from treadle.protocol import events as e
from treadle.protocol.content import Image, Refers, Value
from treadle.protocol.events import RECORDED
from treadle.protocol.files import FileChange, FileState
from treadle.protocol.references import Reference, iterate_references, list_needed_blobs, list_referring_types

MODULES = [import_module(f"treadle.protocol.{file.stem}") for file in Path(protocol.__path__[0]).glob("[a-z]*.py")]
HASHED = re.compile(r"\bhash|SHA-256|fingerprint|digest|checksum", re.IGNORECASE)
NAMED = re.compile(r"(^|_)(hash|digest|blob|manifest|sha256|fingerprint|plan)$")


RECORDABLE = {part for kind in RECORDED.values() for part in (*kind.__mro__, *parts(kind))}


def structs(module: ModuleType) -> list[type[msgspec.Struct]]:
    """The types of a module that may stand in a log."""
    own_kinds = [kind for kind in vars(module).values() if getattr(kind, "__module__", "") == module.__name__]
    return [kind for kind in own_kinds if kind in RECORDABLE and issubclass(kind, Value)]


def suspects() -> list[tuple[type[msgspec.Struct], str]]:
    """Fields whose name or description tells of a hash, or whose shape is a tool's own."""
    fields = []
    for module in MODULES:
        docs = field_docs(module)
        for kind in structs(module):
            for name, hint in get_type_hints(kind).items():
                text = re.sub("`.*?`", "", docs.get((kind.__name__, name), ""))  # names of other fields
                if NAMED.search(name) or (hint is str and HASHED.search(text)):
                    fields.append((kind, name))
    return fields


def mark(kind: type[msgspec.Struct], name: str) -> str:
    hint: Any = get_type_hints(kind, include_extras=True)[name]
    return next(
        (annotation.to for annotation in getattr(hint, "__metadata__", ()) if isinstance(annotation, Refers)), ""
    )


@pytest.mark.parametrize(("kind", "name"), suspects(), ids=lambda part: getattr(part, "__name__", part))
def test_every_field_that_holds_a_hash_says_what_it_refers_to(kind: type[msgspec.Struct], name: str) -> None:
    assert mark(kind, name), f"{kind.__name__}.{name} holds a hash: give it a type of protocol.content"


def test_the_suspicion_finds_the_known_ones() -> None:
    fields = {(kind.__name__, name) for kind, name in suspects()}
    assert fields >= {
        ("Image", "blob"),
        ("FileState", "digest"),
        ("KnownFile", "digest"),
        ("ExecutionComplete", "output"),
        ("CheckCompleted", "output"),
        ("FilesChanged", "manifest"),
        ("FilesChanged", "git"),
        ("Restored", "manifest"),
        ("ExecutionStart", "plan"),
        ("PermissionRequested", "hash"),
    }


BEFORE, AFTER, MERGED, LIST = "a" * 64, "b" * 64, "c" * 64, "d" * 64
CHANGED = FileChange(
    "engine.py",
    "modified",
    before=FileState("file", 0o644, BEFORE),
    after=FileState("file", 0o644, AFTER),
    merged=FileState("file", 0o644, MERGED),
)


@pytest.mark.parametrize("kind", [e.FilesChanged, e.Undone, e.Redone, e.ChangesKept])
def test_changes_refer_to_their_manifest_and_to_images(kind: type[e.Event]) -> None:
    arguments = {"restore": "r"} if issubclass(kind, e.Restored) else {}
    event = kind(files=(CHANGED,), manifest=LIST, total=250, **arguments)
    assert set(iterate_references(event)) == {
        Reference("image", BEFORE, "engine.py"),
        Reference("image", AFTER, "engine.py", needed=False),
        Reference("image", MERGED, "engine.py", needed=False),
        Reference("manifest", LIST),
    }
    assert list_needed_blobs(event) == [LIST]


def test_a_change_of_modes_loses_no_bytes() -> None:
    change = FileChange(
        "a", "modified", before=FileState("file", 0o644, BEFORE), after=FileState("file", 0o755, BEFORE)
    )
    assert not any(reference.needed for reference in iterate_references(e.FilesChanged((change,))))


def test_outputs_of_calls_and_checks_and_pictures_are_blobs() -> None:
    assert list_needed_blobs(e.ExecutionComplete(CallKey("1.0"), True, output=LIST)) == [LIST]
    assert list_needed_blobs(e.CheckCompleted(CallKey("check.1"), True, output=LIST)) == [LIST]
    image = Image("image/png", LIST)
    assert list_needed_blobs(e.UserMessage("Look.", images=(image, image))) == [LIST]
    assert list_needed_blobs(e.QueueChanged("added", "q", images=(image,))) == [LIST]


def test_any_hash_in_a_plan_may_be_that_of_an_image() -> None:
    plan = {"steps": [{"path": "a", "pre": BEFORE, "post": None}], "base": AFTER, "mode": 5, "note": f"x{LIST}"}
    image_references = list(iterate_references(e.ExecutionStart(CallKey("1.0"), "edit_file", plan=plan)))
    assert image_references == [Reference("image", BEFORE, needed=False), Reference("image", AFTER, needed=False)]
    assert list_needed_blobs(e.ExecutionStart(CallKey("1.0"), "edit_file", plan=plan)) == []


def test_types_that_refer_to_nothing_need_not_be_read() -> None:
    for name in RECORDED:
        if name not in list_referring_types():
            assert list(iterate_references(SAMPLES[name])) == []
    assert {"workspace.files_changed", "check.completed", "tool.execution_start"} <= list_referring_types()
    assert "assistant.message" not in list_referring_types()
