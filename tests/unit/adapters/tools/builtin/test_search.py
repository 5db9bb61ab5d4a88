"""grep_search on real files: the text that the model reads (T-04)."""

import asyncio
import threading
from pathlib import Path

import pytest

from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin import make_builtin_tools
from treadle.adapters.tools.builtin.base import ToolContext
from treadle.adapters.tools.builtin.search import FindFiles, GrepSearch
from treadle.adapters.tools.registry import Tools
from treadle.adapters.workspace.root import Root
from treadle.errors import OutsideRoot, ToolError
from treadle.ports.workspace import Matches, Paths, Query
from treadle.protocol.options import ChatOptions


@pytest.fixture
def grep() -> GrepSearch:
    return GrepSearch(ToolContext(Root, MemoryStore()))


async def test_lines_with_their_numbers_by_file(grep, call, project: Path) -> None:
    (project / "src").mkdir()
    (project / "b.py").write_text("x\n\tfoo\nfoo bar\n")
    (project / "src" / "a.py").write_text("foo\n")
    outcome = await grep.run(call(pattern="fo+"))
    assert outcome.text == "3 matches in 2 files\nb.py\n2:\t\tfoo\n3:\tfoo bar\nsrc/a.py\n1:\tfoo"
    assert outcome.summary == "3 matches in 2 files"
    assert (await grep.run(call(pattern="foo", path="src"))).text == "1 match in 1 file\nsrc/a.py\n1:\tfoo"
    assert (await grep.run(call(pattern="foo", path="b.py", include="*.md"))).summary == "2 matches in 1 file"
    assert (await grep.run(call(pattern="foo", output="files"))).text == "3 matches in 2 files\nb.py\nsrc/a.py"
    assert (await grep.run(call(pattern="foo", output="count"))).text == "3 matches in 2 files\nb.py: 2\nsrc/a.py: 1"
    outcome = await grep.run(call(pattern="none", path="src", include="*.py"))
    assert outcome.text == "No matches for none in src in files that match *.py."
    assert outcome.success
    misread = (await grep.run(call(pattern="src/foo"))).text
    assert misread == "No matches for src/foo; for foo in src:\n1 match in 1 file\nsrc/a.py\n1:\tfoo"
    assert (await grep.run(call(pattern="src/foo", path="src", include="src"))).text == misread
    assert (await grep.run(call(pattern="src/bar"))).text == "No matches for src/bar."
    assert (await grep.run(call(pattern="y", path="b.py"))).text == (
        "No matches for y in b.py. To see that file use read_file."
    )
    assert (await grep.run(call(pattern="/x/../foo"))).text == "No matches for /x/../foo."


async def test_context(grep, call, project: Path) -> None:
    (project / "a").write_text("".join(f"l{n}\n" for n in range(1, 10)))
    text = (await grep.run(call(pattern="l[28]", context=1))).text
    assert text == "2 matches in 1 file\na\n1-\tl1\n2:\tl2\n3-\tl3\n--\n7-\tl7\n8:\tl8\n9-\tl9"


async def test_fifty_matches_and_how_many_more(grep, call, project: Path) -> None:
    for number in range(30):
        (project / f"f{number:02}").write_text("hit\n" * 4)
    lines = (await grep.run(call(pattern="hit"))).text.split("\n")
    assert lines[0] == "120 matches in 30 files"
    assert lines[-1] == "[70 more matches are not shown; narrow the pattern, path or include]"
    assert sum(":\thit" in line for line in lines) == 50
    for number in range(30, 130):
        (project / f"f{number:03}").write_text("hit\n")
    lines = (await grep.run(call(pattern="hit", output="files"))).text.split("\n")
    assert len(lines) == 102
    assert lines[-1].startswith("[30 more files are not shown")


async def test_results_are_bounded_by_bytes(grep, call, project: Path) -> None:  # T-11
    for number in range(50):
        (project / f"f{number:02}").write_text(("ü" * 390 + "\n") * 10 + "hit\n" + ("ü" * 390 + "\n") * 10)
    text = (await grep.run(call(pattern="hit", context=10))).text
    assert len(text.encode()) < 51_000
    assert "more matches are not shown" in text


async def test_long_lines_are_cut_around_the_match(grep, call, project: Path) -> None:
    (project / "min.js").write_text("ü" * 5_000 + "needle" + "y" * 5_000 + "\n")
    line = (await grep.run(call(pattern="needle"))).text.split("\n")[2]
    assert "ü" * 100 + "needle" + "y" * 294 + "… [4,706 characters]" in line
    assert line.startswith("1:\t[4,900 characters] …")
    assert len(line) < 500


async def test_nothing_shown_is_a_control_character(grep, call, project: Path) -> None:  # S-12
    (project / "n\nl\x1b").write_bytes(b"hit \x1b[31m\x07 \xc2\x9b \xff \xe2\x80\xae \xc3\xa4 \ttab\r\n")
    text = (await grep.run(call(pattern="hit"))).text
    assert text == "1 match in 1 file\nn\\nl\\x1b\n1:\thit \\x1b[31m\\x07 \\x9b \\xFF \\u202e ä \ttab"


async def test_a_bad_pattern_says_what_is_wrong_and_how_to_escape(grep, call, project: Path) -> None:
    with pytest.raises(ToolError, match=r"unclosed group.*literal.*backslash"):
        await grep.run(call(pattern="print("))
    (project / "a").write_text("print(1)\n")
    assert (await grep.run(call(pattern="print(", literal=True))).summary == "1 match in 1 file"


async def test_paths_outside_and_missing_ones(grep, call) -> None:
    with pytest.raises(OutsideRoot):
        await grep.run(call(pattern="x", path="../x"))
    with pytest.raises(ToolError, match="does not exist"):
        await grep.run(call(pattern="x", path="none"))


async def test_a_cancelled_search_ends_before_the_call_does(call, project: Path) -> None:  # L-07
    start_event, end_event = threading.Event(), threading.Event()

    class Slow(Root):
        def search(self, query: Query, stop: threading.Event | None = None) -> Matches:
            assert stop is not None
            start_event.set()
            assert stop.wait(30)
            end_event.set()
            return Matches((), 0, 0, False)

    task = asyncio.ensure_future(GrepSearch(ToolContext(Slow, MemoryStore())).run(call(pattern="x")))
    assert await asyncio.to_thread(start_event.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert end_event.is_set()


async def test_files_that_were_left_out_are_told(call, project: Path) -> None:  # T-04
    (project / "src").mkdir()

    class IncompleteRoot(Root):
        def search(self, query: Query, stop: threading.Event | None = None) -> Matches:
            return Matches((), 0, 0, other_encoding=("a", "b"), unreadable=1 if query.path == "." else 1_234)

        def find(self, pattern: str, path: str = ".", **_: object) -> Paths:
            return Paths((), 0, unreadable=2)

    context = ToolContext(IncompleteRoot, MemoryStore())
    lines = (await GrepSearch(context).run(call(pattern="x"))).text.split("\n")
    assert lines[1:] == [
        "[not searched, because this pattern cannot be used for UTF-32: a, b; use a simpler one]",
        "[1 file or folder could not be read and so not searched: no permission]",
    ]
    assert "[1,234 files and folders could not" in (await GrepSearch(context).run(call(pattern="x", path="src"))).text
    text = (await FindFiles(context).run(call(pattern="x"))).text
    assert text.split("\n")[1:] == ["[2 folders could not be read: no permission]"]


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("search_workspace", '{"query": "x"}', {"pattern": "x"}),
        (
            "grep",
            '{"pattern": "x", "glob": "*.py", "-i": true}',
            {"pattern": "x", "include": "*.py", "ignore_case": True},
        ),
        ("search_codebase", '{"query": "x", "target_directory": "src"}', {"pattern": "x", "path": "src"}),
        ("grep_search", '{"query": "x", "includePattern": "src/**"}', {"pattern": "x", "include": "src/**"}),
        ("glob", '{"pattern": "*", "dir": "src"}', {"pattern": "*", "path": "src"}),
        ("find_by_name", '{"Pattern": "*", "SearchDirectory": "src"}', {"pattern": "*", "path": "src"}),
        ("list_files", '{"directory": "src"}', {"path": "src"}),
        ("list_dir", '{"relative_workspace_path": "src"}', {"path": "src"}),
    ],
)
def test_names_used_elsewhere_are_understood(name: str, arguments: str, expected: dict[str, object]) -> None:  # T-09
    tools = Tools(make_builtin_tools(ToolContext(Root, MemoryStore())))
    tool = tools.find(name, ChatOptions())
    assert tool is not None
    assert tools.parse_arguments(tool.spec, arguments) == expected  # type: ignore[union-attr]


def test_what_could_mean_two_things_is_refused() -> None:
    tools = Tools(make_builtin_tools(ToolContext(Root, MemoryStore())))
    tool = tools.find("grep_search", ChatOptions())
    assert tool is not None
    for arguments in ('{"query": "x", "regex": "y"}', '{"pattern": "x", "query": "y"}'):
        assert isinstance(tools.parse_arguments(tool.spec, arguments), str)  # type: ignore[union-attr]


async def test_files_that_were_left_out_are_named(grep, call, project: Path) -> None:  # T-04
    with (project / "large").open("wb") as file:
        file.truncate(32_000_001)
    text = (await grep.run(call(pattern="needle"))).text
    assert text.startswith("No matches for needle.\n[not searched, because larger than 32 MB: large; use ")
