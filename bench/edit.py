"""`python -m bench.edit [--quick]`: what edit_file takes on a large file, beside `str.replace` and a plain write of the
same bytes, in one run. The least of several runs counts: other work on the machine can only add to it."""

import argparse
import asyncio
import hashlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.clock import least
from bench.report import Row, align
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin.base import ToolContext
from treadle.adapters.tools.builtin.edit import EditFile
from treadle.adapters.tools.builtin.replacement import replace
from treadle.adapters.workspace.history.snapshots import ProjectSnapshots
from treadle.adapters.workspace.root import Root, make_plain_root
from treadle.base.types import CallKey, ChatId
from treadle.errors import EditError
from treadle.ports.toolset import Invocation
from treadle.protocol.options import ChatOptions

SIZE, REPEATS = 5_000_000, 9
QUICK_SIZE, QUICK_REPEATS = 100_000, 1
LINE = "entry {} = value({})  # of the table\n"


class Text(msgspec.Struct, frozen=True):
    """A file, and the passage of it that is edited."""

    whole: str
    passage: str
    long: str
    """About a fiftieth of the file."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.edit", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run: a small file")
    quick = parser.parse_args(arguments).quick
    text = grow(QUICK_SIZE if quick else SIZE)
    repeats = QUICK_REPEATS if quick else REPEATS
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
        print(f"a file of {len(text.whole):,} bytes\n")
        print(align(tool_table(text, Path(folder), repeats)), end="\n\n")
        print(align(core_table(text, repeats)))
    return 0


def grow(size: int) -> Text:
    lines = [LINE.format(i, i * 7) for i in range(size // 42)]
    middle = len(lines) * 2 // 3
    return Text("".join(lines), lines[middle], "".join(lines[middle : middle + len(lines) // 50]))


def tool_table(text: Text, folder: Path, repeats: int) -> list[Row]:
    """The whole tool (look, intent's hashes, atomic write, diff) beside the least that changes the same bytes."""
    plain = least(lambda: _plain(text, folder / "plain", sync=False), repeats)
    synced = least(lambda: _plain(text, folder / "plain", sync=True), repeats)
    ours = least(lambda: _tool(text, folder), repeats)
    return [
        ("milliseconds", "by the clock", "edit_file ÷ it"),
        ("read, str.replace, write", _ms(plain), f"{ours / plain:.1f}"),
        ("the same with fsync", _ms(synced), f"{ours / synced:.1f}"),
        ("edit_file: prepare and run", _ms(ours), ""),
    ]


def core_table(text: Text, repeats: int) -> list[Row]:
    """The pure core beside `str.replace`: exact, looser, and the error for a passage that is not there."""
    base = least(lambda: text.whole.replace(text.passage, "x\n"), repeats)
    shifted = "  " + text.long.replace("\n", "\n  ")[:-2]
    cases = (
        ("exact", text.passage),
        ("exact, long", text.long),
        ("other line endings, long", text.long.replace("\n", "\r\n")),
        ("trailing space, long", text.long.replace("\n", " \n")),
        ("other indentation, long", shifted),
        ("not there, long", text.long.replace("entry", "entri")),
    )
    rows: list[Row] = [("milliseconds", "replace()", "÷ str.replace")]
    for title, old in cases:
        took = least(lambda old=old: _core(text.whole, old), max(1, repeats // 3))  # type: ignore[misc]
        rows.append((title, _ms(took), f"{took / base:.1f}"))
    return rows


def _plain(text: Text, path: Path, *, sync: bool) -> None:
    path.write_text(text.whole)
    data = path.read_text().replace(text.passage, "x\n").encode()
    with path.open("wb") as file:
        file.write(data)
        if sync:
            os.fsync(file.fileno())


def _tool(text: Text, folder: Path) -> None:
    path = folder / "project" / "file"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.whole)
    history = ProjectSnapshots(Root(str(path.parent)), folder / "home")
    tool = EditFile(ToolContext(make_plain_root, MemoryStore(), snapshots_of=lambda _root, _bound, _world="": history))
    seen = {"file": hashlib.sha256(path.read_bytes()).hexdigest()}
    arguments = {"path": "file", "old_str": text.passage, "new_str": "x\n"}
    options = ChatOptions(root=str(path.parent))
    call = Invocation(ChatId("c"), CallKey("1.0"), "edit_file", arguments, options=options, known_files=seen)

    async def edit() -> None:
        plan = await tool.prepare(call)
        outcome = await tool.run(msgspec.structs.replace(call, plan=plan))
        assert outcome.success

    asyncio.run(edit())


def _core(whole: str, old: str) -> None:
    try:
        replace(whole, old, "x\n")
    except EditError:
        assert "entri" in old


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f}"


if __name__ == "__main__":
    sys.exit(main())
