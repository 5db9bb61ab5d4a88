"""find_files on real files (T-04)."""

from pathlib import Path

import pytest

from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin.base import ToolContext
from treadle.adapters.tools.builtin.search import FindFiles
from treadle.adapters.workspace.root import Root
from treadle.errors import OutsideRoot, ToolError


@pytest.fixture
def find() -> FindFiles:
    return FindFiles(ToolContext(Root, MemoryStore()))


async def test_paths_sorted_and_counted(find, call, project: Path) -> None:
    (project / "src" / "deep").mkdir(parents=True)
    for path in ("b.py", "src/a.py", "src/deep/c.py", "src/d.txt"):
        (project / path).write_text("")
    outcome = await find.run(call(pattern="*.py"))
    assert (outcome.text, outcome.summary) == ("b.py\nsrc/a.py\nsrc/deep/c.py", "3 files")
    assert (await find.run(call(pattern="*.{py,txt}", path="src"))).text == "src/a.py\nsrc/d.txt\nsrc/deep/c.py"
    assert (await find.run(call(pattern="src/*"))).text == "src/a.py\nsrc/d.txt"
    assert (await find.run(call(pattern=f"{project}/src/*.py"))).text == "src/a.py"
    assert (await find.run(call(pattern="B.PY", ignore_case=True))).text == "b.py"
    assert (await find.run(call(pattern="B.PY"))).text.startswith("No file matches B.PY.")
    assert 'use grep_search with "pattern": "LIMIT".' in (await find.run(call(pattern="src/LIMIT"))).text


async def test_a_hundred_and_how_many_more(find, call, project: Path) -> None:
    for number in range(123):
        (project / f"f{number:03}").write_text("")
    lines = (await find.run(call(pattern="f*"))).text.split("\n")
    assert lines[:2] == ["f000", "f001"]
    assert len(lines) == 101
    assert lines[-1] == "[23 more files are not shown; use a narrower pattern or path]"


async def test_names_are_shown_inert(find, call, project: Path) -> None:  # S-12
    (project / "a\nb\x1b[31m").write_text("")
    text = (await find.run(call(pattern="*"))).text
    assert text == "a\\nb\\x1b[31m"


async def test_paths_outside_and_missing_ones(find, call, project: Path) -> None:
    with pytest.raises(OutsideRoot):
        await find.run(call(pattern="*", path=".."))
    (project / "a").write_text("")
    with pytest.raises(ToolError, match='Send the call again with "path": "a"'):
        await find.run(call(pattern="*", path="none"))
    with pytest.raises(ToolError, match="not a directory"):
        await find.run(call(pattern="*", path="a"))
