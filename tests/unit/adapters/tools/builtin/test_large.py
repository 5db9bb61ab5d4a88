"""Files of any size are read by range, in bounded memory (T-01)."""

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin import read
from treadle.adapters.tools.builtin.base import ToolContext
from treadle.adapters.tools.builtin.read import ReadFile, read_large
from treadle.adapters.workspace.root import Root
from treadle.errors import ToolError
from treadle.protocol.content import KnownFile

READ = ReadFile(ToolContext(Root, MemoryStore()))


async def test_a_range_of_a_large_file(call: Any, project: Path) -> None:
    data = b"".join(b"line %d %s\r\n" % (i, b"x" * 1_000) for i in range(1, 33_001)) + b"no end"
    assert len(data) > 32_000_000
    (project / "a").write_bytes(data)
    outcome = await READ.run(call(path="a", start_line=32_999))
    assert outcome.text == (
        f"a (33,001 lines, {len(data):,} bytes), lines 32999 to 33001\n"
        f"32999\tline 32999 {'x' * 1_000}\n33000\tline 33000 {'x' * 1_000}\n33001\tno end"
    )
    assert outcome.known_files == (KnownFile("a", hashlib.sha256(data).hexdigest()),)
    first = (await READ.run(call(path="a", end_line=5))).text.split("\n")
    assert first[1:] == [f"{i}\tline {i} {'x' * 1_000}" for i in range(1, 6)]
    lines = (await READ.run(call(path="a"))).text.split("\n")
    assert lines[1].startswith("1\tline 1 x")
    assert len(lines) <= 2_002
    assert "call read_file with start_line=" in lines[-1]
    with pytest.raises(ToolError, match="only 33,001 lines"):
        await READ.run(call(path="a", start_line=9_999_999))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 100])
def test_lines_come_out_whole_however_the_bytes_are_cut(project: Path, size: int) -> None:
    text = "alpha\n\nbeta ä\ngamma\n\n" + "x" * 20 + "\nlast"
    (project / "a").write_text(text)
    want = text.split("\n")

    class Pieces(Root):
        def read_chunks(self, path: str) -> Any:
            data = self.read_bytes(path)
            return (data[at : at + size] for at in range(0, len(data), size))

    root = Pieces(str(project))
    for start in range(1, len(want) + 1):
        for end in (0, *range(start, len(want) + 1)):
            outcome = read_large(root, "a", start, end)
            expected_lines = [f"{n}\t{want[n - 1]}" for n in range(start, (end or len(want)) + 1)]
            assert outcome.text.split("\n")[1:] == expected_lines
            assert outcome.text.startswith(f"a ({len(want)} lines,")


def test_long_lines_are_cut(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "MAX_BYTES", 100)
    (project / "a").write_bytes(b"y" * 500 + b"\nz\n")
    text = read_large(Root(str(project)), "a", 1, 0).text
    assert f"1\t{'y' * 100} [line cut: 500 bytes]" in text
    assert "start_line=2" in text
    assert read_large(Root(str(project)), "a", 2, 0).text.endswith("2\tz")


def test_binary_is_refused_by_its_beginning(project: Path) -> None:
    (project / "a").write_bytes(b"\x7fELF\0" + b"\0" * 100)
    with pytest.raises(ToolError, match=r"an ELF program or library \(105 bytes\), not text"):
        read_large(Root(str(project)), "a", 1, 0)


_READ = """
import asyncio, resource, sys
from treadle.ports.toolset import Invocation
from treadle.protocol.options import ChatOptions
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin.base import ToolContext
from treadle.adapters.tools.builtin.read import ReadFile
from treadle.adapters.workspace.root import Root
async def main():
    tool = ReadFile(ToolContext(Root, MemoryStore()))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for arguments in ({"path": "a", "start_line": 2}, {"path": "a"}):
        call = Invocation("c", "1.0", "read_file", arguments, options=ChatOptions(root=sys.argv[1]))
        print(len((await tool.run(call)).text))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
asyncio.run(main())
"""


@pytest.mark.thorough(one_of=8)
def test_memory_stays_flat(project: Path) -> None:
    with (project / "a").open("wb") as file:  # one line of 120 MB, and a short one
        for _ in range(120):
            file.write(b"x" * 1_000_000)
        file.write(b"\nend\n")
    process = subprocess.run([sys.executable, "-c", _READ, str(project)], capture_output=True, text=True, check=True)
    short, long, grown = (int(line) for line in process.stdout.split())
    assert short < 200
    assert long < 60_000
    assert grown * (1 if sys.platform == "darwin" else 1024) < 40_000_000
