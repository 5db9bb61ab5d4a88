"""read_file and list_directory on real files (T-01, T-04)."""

import os
from pathlib import Path

import pytest

from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin.base import ToolContext
from treadle.adapters.tools.builtin.read import ReadFile
from treadle.adapters.tools.builtin.search import ListDirectory
from treadle.adapters.workspace.root import Root
from treadle.errors import OutsideRoot, ToolError


@pytest.fixture
def read() -> ReadFile:
    return ReadFile(ToolContext(Root, MemoryStore()))


@pytest.fixture
def listing() -> ListDirectory:
    return ListDirectory(ToolContext(Root, MemoryStore()))


async def test_numbered_lines_and_the_total(read, call, project: Path) -> None:
    (project / "a").write_bytes(b"one\n\ttwo\n\nfour\n")
    outcome = await read.run(call(path="a"))
    assert outcome.text == "a (4 lines)\n1\tone\n2\t\ttwo\n3\t\n4\tfour"
    assert outcome.summary == "4 of 4 lines"


@pytest.mark.parametrize(
    ("data", "header"),
    [
        (b"x", "a (1 line; no newline at the end)"),
        (b"x\r\ny\r\n", "a (2 lines; CRLF line endings)"),
        (b"x\r\ny\n", "a (2 lines; mixed CRLF and LF line endings)"),
        (b"\xef\xbb\xbfx\n", "a (1 line; UTF-8 with byte-order mark)"),
        (b"x\x0cy\xe2\x80\xa8z\n", "a (1 line)"),
        (b"\n", "a (1 line)"),
        (b"", "a is empty (0 lines)."),
    ],
)
async def test_what_the_header_says(read, call, project: Path, data: bytes, header: str) -> None:
    (project / "a").write_bytes(data)
    assert (await read.run(call(path="a"))).text.split("\n")[0] == header


async def test_ranges(read, call, project: Path) -> None:
    (project / "a").write_text("".join(f"l{i}\n" for i in range(1, 11)))
    assert (await read.run(call(path="a", start_line=3, end_line=4))).text == "a (10 lines), lines 3 to 4\n3\tl3\n4\tl4"
    assert (await read.run(call(path="a", start_line=9, end_line=99))).text.endswith("9\tl9\n10\tl10")
    with pytest.raises(ToolError, match="only 10 lines"):
        await read.run(call(path="a", start_line=11))
    with pytest.raises(ToolError, match="before"):
        await read.run(call(path="a", start_line=5, end_line=4))


async def test_long_files_are_bounded_and_can_be_read_on(read, call, project: Path) -> None:
    (project / "a").write_text("".join(f"{i}\n" for i in range(1, 5_001)))
    read_lines: list[str] = []
    start = 1
    while True:
        text = (await read.run(call(path="a", start_line=start))).text
        lines = text.split("\n")
        assert len(lines) <= 2_002
        read_lines += [line.split("\t")[1] for line in lines[1:] if "\t" in line]
        if "start_line=" not in lines[-1]:
            break
        start = int(lines[-1].split("start_line=")[1].rstrip("]"))
    assert read_lines == [str(i) for i in range(1, 5_001)]


async def test_wide_files_are_bounded_by_bytes(read, call, project: Path) -> None:
    (project / "a").write_text(("ü" * 10_000 + "\n") * 10)
    text = (await read.run(call(path="a"))).text
    assert len(text.encode()) < 51_000
    assert "start_line=3" in text
    (project / "b").write_text("ü" * 1_000_000)
    text = (await read.run(call(path="b"))).text
    assert len(text.encode()) < 51_000
    assert "line 1 is cut" in text


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", r"a PNG image \(10 bytes\), not text"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0\0\0\0\x10", "a PNG image of 256 x 16 pixels"),
        (b"GIF89a\x0a\0\x14\0\xff\0", "a GIF image of 10 x 20 pixels"),
        (b"\xff\xd8\xff\xe0\0\4ab\xff\xc0\0\x11\x08\0\x20\0\x40\3", "a JPEG image of 64 x 32 pixels"),
        (b"\xff\xd8\xff\xe0", "a JPEG image"),
        (b"RIFF\0\0\0\0WEBP\xff", "a WebP image"),
        (b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\xff\1\0\x0f\0\0", "a WebP image of 512 x 16 pixels"),
        (b"RIFF\0\0\0\0WEBPVP8L\x05\0\0\0\x2f\x07\xc0\1\0\0", "a WebP image of 8 x 8 pixels"),
        (b"\x7fELF\0\0\xff", "an ELF program"),
        (b"%PDF-1.7\n\xe2\xe3", "a PDF document"),
        (b"\1\2\3\xff\xfe\xfd\xfc\xfb", "binary file.*byte 3 is not valid UTF-8"),
        (b"a\0b", "NUL"),
        ("eine Zeile".encode("utf-16-le"), "UTF-16 or UTF-32 text without"),
    ],
)
async def test_what_is_no_text_is_refused_with_a_sentence(read, call, project: Path, data: bytes, words: str) -> None:
    (project / "a").write_bytes(data)
    with pytest.raises(ToolError, match=words):
        await read.run(call(path="a"))


async def test_missing_files_directories_and_paths_outside(read, listing, call, project: Path) -> None:
    with pytest.raises(ToolError, match="none does not exist"):
        await read.run(call(path="none"))
    with pytest.raises(ToolError, match="is a directory"):
        await read.run(call(path="."))
    for tool in (read, listing):
        with pytest.raises(OutsideRoot):
            await tool.run(call(path="../x"))


async def test_reading_runs_again_after_a_crash(read, call) -> None:  # D-02
    assert await read.prepare(call(path="a")) is None
    assert await read.settle(call(path="a")) == "run_again"


async def test_children_are_sorted_and_marked(listing, call, project: Path) -> None:
    (project / "src").mkdir()
    (project / "src" / "deep").write_text("")
    (project / "b.txt").write_text("")
    (project / ".hidden").write_text("")
    (project / "a\nb\x1b").write_text("")
    (project / "link").symlink_to("/etc")
    os.mkfifo(project / "pipe")
    text = (await listing.run(call())).text
    assert text.split("\n") == [
        "./ (6 entries)",
        ".hidden",
        "a\\nb\\x1b",
        "b.txt",
        "link -> /etc",
        "pipe (not a regular file)",
        "src/",
    ]
    assert (await listing.run(call(path="src"))).text == "src/ (1 entry)\ndeep"


async def test_listings_are_bounded(listing, call, project: Path) -> None:
    for i in range(510):
        (project / f"f{i:03}").write_text("")
    lines = (await listing.run(call(path="."))).text.split("\n")
    assert len(lines) == 502
    assert lines[-1] == "[10 more entries are not shown]"
