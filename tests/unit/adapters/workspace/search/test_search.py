"""Finding files and lines: one corpus, both programs, the same answers (T-04); and what neither may do (S-01)."""

import contextlib
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from treadle.adapters.workspace.paths.ignore import Ignoring, Rules
from treadle.adapters.workspace.root import Root
from treadle.adapters.workspace.search import search as searching
from treadle.adapters.workspace.search.scan import MAX_FILE, find_special_files
from treadle.adapters.workspace.search.search import TIMEOUT_S, Engine, find_ripgrep
from treadle.errors import OutsideRoot, ToolError
from treadle.ports.workspace import Line, Matches, Query

pytestmark = pytest.mark.thorough(one_of=8)

Make = Callable[[Path], Engine]


def program(name: str) -> str | None:
    path = find_ripgrep("/nowhere") if name == "ripgrep" else None
    assert name == "own" or path, "ripgrep comes with the requirements"
    return path


@pytest.fixture(params=["ripgrep", "own"])
def engine(request: pytest.FixtureRequest) -> Make:
    return lambda root: Engine(Root(str(root)), program(request.param))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    return root


def write(root: Path, **files: str | bytes) -> None:
    """`a__b_txt` would be clumsy: keys are paths, given with ** from a dict."""
    for path, content in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)


def find(engine: Engine, pattern: str = "**", path: str = ".", most: int = 100, ignore_case: bool = False) -> list[str]:
    return list(engine.find(pattern, path, ignore_case=ignore_case, most=most, stop=None).paths)


def locate_matches(matches: Matches) -> dict[str, list[int]]:
    return {file.path: [line.number for line in file.lines if line.column >= 0] for file in matches.files}


def search(engine: Engine, pattern: str, path: str = ".", **more: object) -> dict[str, list[int]]:
    return locate_matches(engine.search(Query(pattern, path, **more), None))  # type: ignore[arg-type]


IGNORING = {
    ".gitignore": "*.log\n!keep.log\n/build/\nnode_modules/\ndoc/*.txt\n**/gen/out\n\\#odd\ntrail \n# no.py\n",
    "a.log": "hit",
    "keep.log": "hit",
    "no.py": "hit",
    "#odd": "hit",
    "trail": "hit",
    "build/a.py": "hit",
    "src/build/a.py": "hit",
    "src/node_modules/x/a.js": "hit",
    "src/.gitignore": "!special.log\nlocal\n/only-here\n",
    "src/special.log": "hit",
    "src/other.log": "hit",
    "src/local/a": "hit",
    "src/deep/local": "hit",
    "src/deep/only-here": "hit",
    "src/only-here": "hit",
    "src/deep/.gitignore": "!local\n*.tmp",
    "src/deep/a.tmp": "hit",
    "doc/a.txt": "hit",
    "doc/deep/a.txt": "hit",
    "x/gen/out": "hit",
    "x/gen/outer": "hit",
    ".hidden/a": "hit",
    ".env": "hit",
    ".git/config": "hit",
    "src/.hg/a": "hit",
    "nested/.git/HEAD": "hit",
    "nested/a.log": "hit",
    "nested/a.py": "hit",
}
KEPT = [
    ".env",
    ".hidden/a",
    "doc/deep/a.txt",
    "keep.log",
    "nested/a.py",
    "no.py",
    "src/build/a.py",
    "src/deep/local",
    "src/deep/only-here",
    "src/special.log",
    "x/gen/outer",
]


def test_gitignore_is_honoured_nested_and_negated(engine: Make, project: Path) -> None:
    write(project, **IGNORING)
    searcher = engine(project)
    assert [path for path in find(searcher) if not path.endswith(".gitignore")] == KEPT
    assert list(search(searcher, "hit")) == KEPT


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("src", ["src/build/a.py", "src/deep/local", "src/deep/only-here", "src/special.log"]),
        ("src/deep", ["src/deep/local", "src/deep/only-here"]),
        ("doc", ["doc/deep/a.txt"]),
        ("x/gen", ["x/gen/outer"]),
        ("build", ["build/a.py"]),
        ("src/node_modules", ["src/node_modules/x/a.js"]),
        (".git", [".git/config"]),
        ("nested", ["nested/a.py"]),
    ],
)
def test_rules_from_above_hold_for_a_part_and_what_is_named_is_searched(
    engine: Make, project: Path, path: str, expected: list[str]
) -> None:
    write(project, **IGNORING)
    searcher = engine(project)
    assert list(search(searcher, "hit", path)) == expected
    assert [each for each in find(searcher, "**", path) if not each.endswith(".gitignore")] == expected


def test_an_ignored_file_is_searched_when_it_is_named(engine: Make, project: Path) -> None:
    write(project, **IGNORING)
    assert search(engine(project), "hit", "a.log") == {"a.log": [1]}


def random_tree(root: Path, seed: int) -> None:
    chance = random.Random(seed)
    folders = [""]
    for _ in range(25):
        folders.append(f"{chance.choice(folders)}{chance.choice('abcd')}/")
    names = ["a", "b", "a.o", "b.o", ".c", "ab.txt", "a b"]
    for folder in folders:
        (root / folder).mkdir(parents=True, exist_ok=True)
    for folder in folders:
        for name in chance.sample(names, 4):
            if not (root / folder / name).exists():
                (root / folder / name).write_text("x\n")
    segments = ["a", "b", "c", "*", "?", "**", "*.o", "a*", "[ab]", "[!a]", "a b", ".c"]
    for folder in chance.sample(folders, 12):
        lines = []
        for _ in range(chance.randint(1, 3)):
            body = "/".join(chance.choice(segments) for _ in range(chance.choice([1, 1, 2, 3])))
            lead, mark, tail = chance.choice(["", "/"]), chance.choice(["", "", "!"]), chance.choice(["", "", "/"])
            lines.append(f"{mark}{lead}{body}{tail}")
        (root / folder / ".gitignore").write_text("\n".join(lines))


@pytest.mark.parametrize("seed", range(4))
def test_both_programs_agree_on_any_tree(project: Path, seed: int) -> None:
    random_tree(project, seed)
    root = Root(str(project))
    listings = []
    for name in ("ripgrep", "own"):
        searcher = Engine(root, program(name))
        paths = [".", *sorted(child.name for child in root.listdir(".") if child.kind == "directory")]
        listings.append({path: find(searcher, "**", path, most=1_000) for path in paths})
    assert listings[0] == listings[1]


@pytest.mark.thorough(one_of=8)
def test_texts_of_every_kind(engine: Make, project: Path) -> None:
    write(
        project,
        crlf=b"one\r\ntwo foo\r\nfoo\r\n",
        bom=b"\xef\xbb\xbffoo\nbar\n",
        utf16="nothing\nein foo\n".encode("utf-16"),
        latin1=b"caf\xe9 foo\n",
        binary=b"foo\0foo\n",
        late=b"foo\n" + b"x" * 300_000 + b"\n\0foo\n",
        empty=b"",
        open=b"bar\nfoo",
        lone_cr=b"a\rfoo\rb\n",
        tabs=b"\tfoo\n",
    )
    searcher = engine(project)
    matches = searcher.search(Query("foo"), None)
    assert locate_matches(matches) == {
        "bom": [1],
        "crlf": [2, 3],
        "latin1": [1],
        "lone_cr": [1],
        "open": [2],
        "tabs": [1],
        "utf16": [2],
    }
    lines = {file.path: file.lines for file in matches.files}
    assert lines["crlf"] == (Line(2, "two foo", 4), Line(3, "foo", 0))
    assert lines["bom"] == (Line(1, "foo", 0),)
    assert lines["utf16"] == (Line(2, "ein foo", 4),)
    assert lines["latin1"][0].text == "café foo"  # as read_file shows it
    assert search(searcher, "café") == search(searcher, "caf. f") == {"latin1": [1]}
    with_ripgrep = Engine(Root(str(project)), program("ripgrep"))  # our own program does not know \p
    assert search(with_ripgrep, r"\p{Z}foo.?") == {"crlf": [2], "latin1": [1], "utf16": [2]}
    assert search(searcher, "é", "latin1") == search(searcher, "É", ignore_case=True) == {"latin1": [1]}
    (project / "lone_cr").unlink()  # the programs may differ on a line that begins there
    assert search(searcher, "^foo$") == {"bom": [1], "crlf": [3], "open": [2]}
    assert search(searcher, "^$") == {}


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8", "utf-16", "utf-32"])
def test_the_column_counts_characters_in_every_encoding(engine: Make, project: Path, encoding: str) -> None:  # T-04
    write(project, a=f"{'é' * 500} needle\n".encode(encoding))
    for query in (Query("needle"), Query("needl."), Query("needle", path="a")):
        (file,) = engine(project).search(query, None).files
        assert [line.column for line in file.lines] == [501]


@pytest.mark.parametrize("order", ["le", "be"])
def test_utf_32_is_searched_as_read_file_shows_it(engine: Make, project: Path, order: str) -> None:  # T-01, T-04
    text = "\ufeffhit\nein h\u0131t\nhit\n"
    write(project, a="hit\n", b=text.encode(f"utf-32-{order}"), short=text[:1].encode(f"utf-32-{order}"))
    (project / "broken").write_bytes(text.encode(f"utf-32-{order}")[:-3] + b"\xff\xff\xff")
    searcher = engine(project)
    matches = searcher.search(Query("hit"), None)
    assert (locate_matches(matches), matches.total) == ({"a": [1], "b": [1, 3]}, 3)
    assert search(searcher, "h") == {"a": [1], "b": [1, 2, 3]}
    assert search(searcher, "h\u0131t") == search(searcher, "ein .*", "b") == {"b": [2]}
    assert search(searcher, "hit", "b") == {"b": [1, 3]}
    with pytest.raises(ToolError, match="binary"):
        search(searcher, "hit", "broken")
    with_ripgrep = Engine(Root(str(project)), program("ripgrep"))  # our own program does not know \p
    for path in (".", "b"):
        matches = with_ripgrep.search(Query(r"\p{L}it", path), None)
        assert (matches.total, matches.other_encoding[:1]) == (1 if path == "." else 0, ("b",))


@pytest.mark.thorough(one_of=8)
def test_posix_classes_and_word_ends(engine: Make, project: Path) -> None:  # T-04
    write(project, a="Alpha\n12\n--\nfoobar\n")
    searcher = engine(project)
    assert search(searcher, "^[[:alpha:]]+$") == {"a": [1, 4]}
    assert search(searcher, "^[^[:alpha:]-]+$") == {"a": [2]}
    assert search(searcher, "^[[:^digit:]]+$") == {"a": [1, 3, 4]}
    assert search(searcher, r"\<foo") == {"a": [4]}
    assert search(searcher, r"foo\>") == {}
    assert search(searcher, "^[a||-]+$") == {"a": [3]}


@pytest.mark.thorough(one_of=8)
def test_a_negated_posix_class_has_no_letter_of_the_class_in_either_case(engine: Make, project: Path) -> None:  # T-04
    write(project, a="S\nk\ni\n-\n1\n")
    searcher = engine(project)
    assert search(searcher, "^[^[:^alnum:]]$", ignore_case=True) == {"a": [1, 2, 3, 5]}
    assert search(searcher, "^[[:^lower:]]$", ignore_case=True) == {"a": [4, 5]}
    assert search(searcher, "^[[:^upper:]]$", ignore_case=True) == {"a": [4, 5]}
    assert search(searcher, "^[[:^upper:]]$") == {"a": [2, 3, 4, 5]}


@pytest.mark.parametrize("pattern", ["[[:nothing:]]", "[a[bc]]", "[a-z&&b]"])
def test_our_own_program_refuses_what_it_would_read_otherwise(project: Path, pattern: str) -> None:
    write(project, a="b\n")
    with pytest.raises(ToolError, match="not a valid regular expression"):
        search(Engine(Root(str(project)), None), pattern)


def test_files_too_large_to_search_are_named(engine: Make, project: Path) -> None:  # T-04
    write(project, **{"small.txt": "hit\n", ".gitignore": "ignored\n", "d/x.py": "hit\n"})
    for name in ("d/large.txt", "ignored"):
        with (project / name).open("wb") as file:
            file.write(b"hit\n")
            file.truncate(MAX_FILE + 1)
    matches = engine(project).search(Query("hit"), None)
    assert (locate_matches(matches), matches.too_large) == ({"d/x.py": [1], "small.txt": [1]}, ("d/large.txt",))
    assert engine(project).search(Query("hit", include="*.py"), None).too_large == ()


@pytest.mark.thorough(one_of=8)
def test_regular_expressions(engine: Make, project: Path) -> None:
    write(project, a="Alpha beta\nfoo(bar)\n  indented\n\nx = y.z\nüber\nfoo.bar\naa bb aa\n")
    searcher = engine(project)
    for pattern, lines in {
        r"^\w+ \w+": [1, 8],
        r"foo\(bar\)": [2],
        r"^\s+\S": [3],
        r"^$": [4],
        r"foo.bar": [2, 7],
        r"\bb\w+\b": [1, 2, 7, 8],
        r"[A-Z]|ü": [1, 6],
        r"^.{4}$": [6],
        r"(aa) bb \1": [8],
        r"foo(?=\()": [2],
        r"(?i)ALPHA": [1],
        r"-e|--pre": [],
    }.items():
        assert search(searcher, pattern) == ({"a": lines} if lines else {}), pattern
    assert search(searcher, "foo(bar)", literal=True) == {"a": [2]}
    assert search(searcher, "foo.bar", literal=True) == {"a": [7]}
    assert search(searcher, "ALPHA", ignore_case=True) == {"a": [1]}
    assert search(searcher, "ALPHA") == {}


@pytest.mark.parametrize("pattern", ["foo(", "[z-a]", "*", "a{2,1}", "foo)", "(?=(", "\\"])
def test_what_is_no_regular_expression_is_explained(engine: Make, project: Path, pattern: str) -> None:
    write(project, a="foo(\n")
    with pytest.raises(ToolError, match=r"not a valid regular expression: .+ set literal to true"):
        search(engine(project), pattern)


@pytest.mark.parametrize(
    ("pattern", "words"), [("a\nb", "line break"), (r"a\nb", "line break"), ("a\0", "NUL"), ("", "empty")]
)
def test_patterns_that_cannot_be_meant(engine: Make, project: Path, pattern: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        search(engine(project), pattern)
    assert search(engine(project), r"a\\nb") == {}


def test_context_lines_do_not_repeat(engine: Make, project: Path) -> None:
    write(project, a="".join(f"{n}{' hit' if n in (2, 4, 9) else ''}\n" for n in range(1, 11)))
    (file,) = engine(project).search(Query("hit", context=1), None).files
    assert [(line.number, line.column >= 0) for line in file.lines] == [
        (1, False),
        (2, True),
        (3, False),
        (4, True),
        (5, False),
        (8, False),
        (9, True),
        (10, False),
    ]


def test_the_first_by_path_and_how_much_there_is_in_all(engine: Make, project: Path) -> None:
    write(project, **{f"d{n % 7}/f{n:03}.txt": "hit\nhit\nmiss\nhit\n" for n in range(70)})
    searcher = engine(project)
    matches = searcher.search(Query("hit", most=5), None)
    assert locate_matches(matches) == {"d0/f000.txt": [1, 2, 4], "d0/f007.txt": [1, 2]}
    assert (matches.total, matches.total_files, matches.complete) == (210, 70, True)
    counts = searcher.search(Query("hit", most=5, texts=False), None)
    assert [(file.path, file.count, file.lines) for file in counts.files][:2] == [
        ("d0/f000.txt", 3, ()),
        ("d0/f007.txt", 3, ()),
    ]
    assert len(counts.files) == 5
    paths = searcher.find("*.txt", ".", ignore_case=False, most=3, stop=None)
    assert (paths.paths, paths.total) == (("d0/f000.txt", "d0/f007.txt", "d0/f014.txt"), 70)


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        ("*.py", ["a.py", "src/b.py"]),
        ("src/**", ["src/b.py", "src/c.ts"]),
        ("src/*.{py,ts}", ["src/b.py", "src/c.ts"]),
        ("*.{py,md}", ["a.py", "d.md", "src/b.py"]),
        ("[ad].*", ["a.py", "d.md"]),
        ("*.log", []),
        ("none", []),
    ],
)
def test_only_files_that_are_included(engine: Make, project: Path, include: str, expected: list[str]) -> None:
    """A glob narrows; it does not bring back what is ignored."""
    write(project, **{".gitignore": "*.log\n"}, **{p: "hit" for p in ("a.py", "d.md", "e.log", "src/b.py", "src/c.ts")})
    assert list(search(engine(project), "hit", include=include)) == expected


def test_names_of_every_kind(engine: Make, project: Path) -> None:
    names = ["new\nline", "two\n\nlines", "esc\x1b[31m", "x" * 255, "-rf", " ", "a:1:b", "ü", "u\u0308", "bad\udcff"]
    for name in names:
        Path(os.fsdecode(os.fsencode(project / name))).write_text("hit\n")
    assert find(engine(project)) == sorted(names)
    assert search(engine(project), "hit") == {name: [1] for name in sorted(names)}


@pytest.mark.timeout(120)
def test_links_fifos_and_what_lies_outside_are_not_searched(engine: Make, project: Path, tmp_path: Path) -> None:  # 19
    write(tmp_path, **{"canary/secret": "hit"})
    write(project, **{"a": "hit", "sub/b": "hit"})
    (project / "file-out").symlink_to("../canary/secret")
    (project / "dir-out").symlink_to("../canary")
    (project / "dir-in").symlink_to("sub")
    os.mkfifo(project / "fifo")
    searcher = engine(project)
    assert find(searcher) == ["a", "sub/b"]
    assert list(search(searcher, "hit")) == ["a", "sub/b"]
    assert list(search(searcher, "hit", "dir-in")) == ["sub/b"]
    for path in ("file-out", "dir-out", "..", "/etc", "../canary/secret"):
        with pytest.raises(OutsideRoot):
            search(searcher, "hit", path)
    with pytest.raises(OutsideRoot):
        find(searcher, "*", "dir-out")
    with pytest.raises(ToolError, match="not a regular file"):
        search(searcher, "hit", "fifo")
    with pytest.raises(ToolError, match="leads up"):
        find(searcher, "../canary/*")
    with pytest.raises(ToolError, match="does not exist"):
        search(searcher, "hit", "none")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["fifo", "link to a fifo", "socket", "deep"])
def test_an_ignore_file_that_is_no_file_delays_no_search(engine: Make, project: Path, kind: str) -> None:
    """Fault 19: ripgrep would wait for the FIFO until its time is up. No FIFO is opened, not even for a moment."""
    write(project, **{"a": "hit", "sub/b": "hit", "sub/.gitignore": "c\n", "sub/c": "hit"})
    place = project / ("one/two" if kind == "deep" else "sub/inner")
    place.mkdir(parents=True)
    write(place, d="hit")
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as unix_socket, contextlib.chdir(place):
            unix_socket.bind(".gitignore")
    elif kind == "link to a fifo":
        os.mkfifo(place / "pipe")
        (place / ".gitignore").symlink_to("pipe")
    else:
        os.mkfifo(place / ".gitignore")
    searcher = engine(project)
    began = time.monotonic()
    with waiting_writer(place / ".gitignore") as writer:
        matches = searcher.search(Query("hit", "."), None)
        assert sorted(locate_matches(matches)) == sorted(["a", "sub/b", str(place.relative_to(project) / "d")])
        assert matches.complete
        assert sorted(find(searcher, "d")) == [str(place.relative_to(project) / "d")]
        assert "d" in find(searcher, "*", str(place.relative_to(project)))[-1]
        assert writer.poll() is None or kind == "socket"
    assert time.monotonic() - began < TIMEOUT_S


@contextlib.contextmanager
def waiting_writer(fifo: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits until the FIFO is opened for reading, and ends then."""
    script = "import sys; print(flush=True); open(sys.argv[1], 'wb')"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", script, fifo], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def test_the_search_for_special_ignore_files_spares_ignored_folders(project: Path) -> None:
    write(project, **{".gitignore": "built/\n", "a/b/c": "x", "built/.gitignore/d": "x", "built/e/f": "x"})
    (project / "built" / "e" / ".gitignore").symlink_to("nowhere")
    (project / "a" / ".gitignore").symlink_to("nowhere")
    os.mkfifo(project / "built" / "e" / "fifo")
    top = os.open(project, os.O_RDONLY)
    try:
        assert len(list(find_special_files(top, ".gitignore", Ignoring()))) == 3  # the root, a, a/b
        assert not any(find_special_files(top, ".gitignore", Ignoring(((Rules(["/a"]), 0),))))
        assert len(list(find_special_files(top, ".gitignore", Ignoring(((Rules(["/a"]), 0),))))) == 1
        (project / "a" / "b" / ".gitignore").symlink_to("../../built/e/fifo")
        assert any(find_special_files(top, ".gitignore", Ignoring()))
    finally:
        os.close(top)


def test_a_binary_or_huge_file_that_is_named_is_refused(engine: Make, project: Path) -> None:
    write(project, binary=b"hit\0")
    with open(project / "huge", "wb") as file:
        file.write(b"hit\n")
        file.truncate(40_000_000)
    with pytest.raises(ToolError, match="binary"):
        search(engine(project), "hit", "binary")
    with pytest.raises(ToolError, match="at most 32,000,000"):
        search(engine(project), "hit", "huge")
    assert search(engine(project), "hit") == {}


def test_settings_of_the_user_and_the_project_change_nothing(
    engine: Make, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # S-09
    (tmp_path / "rc").write_text("--files-with-matches\n--pre=/bin/false\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "rc"))
    monkeypatch.setenv("PYTHONPATH", str(project))
    trap = "import os; os.kill(os.getppid(), 9)\n"
    write(project, **{"a": "hit", ".ignore": "a\n", ".rgignore": "a\n", "treadle/__init__.py": trap, "re.py": trap})
    write(tmp_path, **{".gitignore": "a\n"})
    assert search(engine(project), "hit") == {"a": [1]}


def test_a_program_that_the_project_brings_along_is_not_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project, **{"bin/rg": "#!/bin/sh\n"})
    (project / "bin" / "rg").chmod(0o755)
    monkeypatch.setattr(searching.sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", f"{project}/bin:bin:.")
    assert find_ripgrep.__wrapped__(str(project)) is None
    assert find_ripgrep.__wrapped__("/elsewhere") == f"{project}/bin/rg"


def test_a_ripgrep_that_does_not_work_is_replaced_by_our_own(project: Path, tmp_path: Path) -> None:
    write(project, a="hit")
    write(tmp_path, rg="#!/bin/sh\necho 'error: Found argument --engine' | sed s/error/unknown/ >&2; exit 2\n")
    (tmp_path / "rg").chmod(0o755)
    assert search(Engine(Root(str(project)), str(tmp_path / "rg")), "hit") == {"a": [1]}
    assert find(Engine(Root(str(project)), str(tmp_path / "rg"))) == ["a"]


@pytest.mark.thorough(one_of=8)
@pytest.mark.timeout(120)
def test_an_expression_that_never_ends_is_stopped(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project, a="a" * 60 + "\n", b="hit\n")
    monkeypatch.setattr(searching, "TIMEOUT_S", 1.0)
    matches = Engine(Root(str(project)), None).search(Query("(a+)+$b|hit"), None)
    assert not matches.complete


@pytest.mark.timeout(120)
def test_a_stop_ends_the_program(project: Path, tmp_path: Path) -> None:
    write(
        tmp_path, rg=f"#!/bin/sh\necho $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; exec sleep 1000\n"
    )
    (tmp_path / "rg").chmod(0o755)
    stop = threading.Event()
    searcher = Engine(Root(str(project)), str(tmp_path / "rg"))
    results: list[Matches] = []
    thread = threading.Thread(target=lambda: results.append(searcher.search(Query("x"), stop)))
    thread.start()
    while not (tmp_path / "pid").exists():
        thread.join(0.01)
    stop.set()
    thread.join(30)
    assert not results[0].complete
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_as_an_ordinary_user_what_cannot_be_read_is_left_out(engine: Make) -> None:
    if os.geteuid():
        pytest.skip("needs a second user")
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), open="hit", closed="hit", **{"shut/a": "hit"})
        for path, mode in ((".", 0o755), ("open", 0o644), ("closed", 0o600), ("shut", 0o700)):
            (Path(folder) / path).chmod(mode)
        child = os.fork()
        if not child:
            code = 1
            try:
                program_of = engine(Path(folder))._program
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                if program_of is None and not os.access(os.path.realpath(sys.executable), os.X_OK):
                    code = 0  # our own engine is this interpreter, and a user to whom it is closed has no Treadle
                else:
                    searcher = engine(Path(folder))
                    everything, pythons = (searcher.search(Query("hit", include=glob), None) for glob in ("", "*.py"))
                    paths = searcher.find("**", ".", ignore_case=False, most=9, stop=None)
                    assert list(locate_matches(everything)) == ["open"]
                    assert (everything.unreadable, pythons.unreadable, paths.unreadable) == (2, 1, 1)
                    assert paths.paths == ("closed", "open")
                    code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
