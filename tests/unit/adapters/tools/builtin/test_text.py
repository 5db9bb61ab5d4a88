"""Bytes as text and back (T-01): every file that is read can be edited without damage to any other byte."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.adapters.tools.contexts import context_with
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin.edit import EditFile
from treadle.adapters.tools.builtin.read import ReadFile
from treadle.adapters.tools.builtin.text import decode
from treadle.diff.encodings import escape_broken_bytes
from treadle.errors import EditError, ToolError

CONTEXT = context_with(MemoryStore())


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_nothing_is_lost_or_it_is_refused(data: bytes) -> None:
    try:
        text = decode(data, "a")
    except ToolError:
        return
    assert text.encode(text.text) == data
    escape_broken_bytes(text.text).encode()  # can be stored and shown


@given(st.text(max_size=50), st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-be"]))
@settings(deadline=None)
def test_every_unicode_encoding_comes_back(text: str, encoding: str) -> None:
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    data = (mark + text).encode(encoding)
    if "\0" in text or (encoding == "utf-8" and text.startswith("\ufeff")):
        return
    text_file = decode(data, "a")
    assert text_file.text == ("" if encoding == "utf-8" else "\ufeff") + text
    assert text_file.encode(text_file.text) == data


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b"caf\xe9 cr\xe8me\n", "windows-1252"),
        (b"\x80 \x81 \x93quoted\x94\n", "windows-1252"),
        ("zwölf größere Bäume".encode() + b" \xff", "utf-8-broken"),
        (b"plain", "utf-8"),
        ("\ufeffx".encode("utf-16-le"), "utf-16-le"),
    ],
)
def test_the_encoding_that_is_taken(data: bytes, encoding: str) -> None:
    assert decode(data, "a").encoding == encoding


EDITS = [
    (b"caf\xe9 one\r\n\x81\xff\n", "café one", "thé two", b"th\xe9 two\r\n\x81\xff\n"),
    ("äöü one\n".encode() + b"\xff\xfe\n", "one", "zwei ß", "äöü zwei ß\n".encode() + b"\xff\xfe\n"),
    ("\ufeffone\r\ntwo\r\n".encode("utf-16-le"), "one\ntwo", "1\n2\n3", "\ufeff1\r\n2\r\n3\r\n".encode("utf-16-le")),
    ("\ufeffone 🌍\n".encode("utf-16-be"), "one", "世界", "\ufeff世界 🌍\n".encode("utf-16-be")),
    ("\ufeffone\n".encode(), "one", "two", "\ufefftwo\n".encode()),
]


@pytest.mark.parametrize(("data", "old", "new", "expected"), EDITS)
async def test_an_edit_leaves_all_other_bytes(
    call: Any, project: Path, data: bytes, old: str, new: str, expected: bytes
) -> None:
    (project / "a").write_bytes(data)
    outcome = await EditFile(CONTEXT).run(call(path="a", old_str=old, new_str=new))
    assert (project / "a").read_bytes() == expected
    outcome.text.encode()


@pytest.mark.parametrize(("data", "new"), [(b"caf\xe9\n", "世界"), (b"caf\xe9\n", "\udc80"), (b"caf\n", "\udc80")])
async def test_what_the_encoding_does_not_have_is_refused(call: Any, project: Path, data: bytes, new: str) -> None:
    (project / "a").write_bytes(data)
    with pytest.raises(ToolError, match=r"Windows-1252|surrogate"):
        await EditFile(CONTEXT).run(call(path="a", old_str="caf", new_str=new))
    assert (project / "a").read_bytes() == data


async def test_errors_about_broken_bytes_can_be_stored(call: Any, project: Path) -> None:
    (project / "a").write_bytes("zwölf größere Bäume".encode() + b" \xff here\n")
    with pytest.raises(EditError) as caught:
        await EditFile(CONTEXT).run(call(path="a", old_str="größere Bäume there", new_str="x"))
    assert "\\xFF" in str(caught.value)
    str(caught.value).encode()


@pytest.mark.parametrize(
    ("data", "header", "line"),
    [
        (b"caf\xe9\n", "not UTF-8: read as Windows-1252", "1\tcafé"),
        ("zwölf größere".encode() + b"\xff\n", "not valid UTF-8", "1\tzwölf größere\\xFF"),
        ("\ufeffäb\r\n".encode("utf-16-le"), "UTF-16, little-endian; CRLF", "1\täb"),
        (b"a\rb\r", "CR line endings", "2\tb"),
    ],
)
async def test_reading_says_which_encoding(call: Any, project: Path, data: bytes, header: str, line: str) -> None:
    (project / "a").write_bytes(data)
    lines = (await ReadFile(CONTEXT).run(call(path="a"))).text.split("\n")
    assert header in lines[0]
    assert line in lines
