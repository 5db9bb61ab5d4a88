"""Text reaches a person only through the few functions that make it inert (S-22). Types prove that these take nothing
else (`scripts/inert_types.py`); here the source proves that no module goes around them."""

import ast
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import treadle
from tests.hostile_text import HOSTILE, TEXTS, check_inert
from treadle.base.inert import make_inert_json, print_line, print_note
from treadle.base.logs import LONGEST_FACT, log_error, log_traceback, make_last_resort_inert

SOURCE = Path(treadle.__file__).parent

PROGRAMS = (
    "adapters/sandbox/launch/",
    "adapters/sandbox/supervisor/",
    "testing/",
    "adapters/models/local/engine.py",
    "adapters/workspace/search/scan.py",
)
"""Programs of their own: Treadle reads what they write, and shows it as it shows any text."""
ALLOWED = {
    "base/inert.py": {"InertText"},
    "base/logs.py": {"logging.getLogger"},
    "frontends/cli/__init__.py": {"print"},  # the version and the help, which load nothing else
    "frontends/cli/terminal.py": {"sys.stdout.buffer.write"},  # JSON, which has its own escapes
    "frontends/cli/commands/chats.py": {"sys.stdout.buffer.write"},  # byte for byte what is stored
    "frontends/cli/commands/diff.py": {"click.echo_via_pager"},  # text that a terminal has made
    "frontends/cli/commands/models.py": {"rich.console.Console"},  # a bar of progress
    "frontends/presentation/rich_text.py": {"rich.console.Group", "rich.text.Text"},  # the base of the inert ones
    "frontends/tui/code.py": {"rich.console.Console", "rich.console.RenderableType"},  # only as types
    "frontends/tui/painting.py": {"rich.console.Console"},  # only as a type
    "frontends/tui/launch.py": {
        "sys.stdout.write"
    },  # lines of the transcript as the screen had them, with their colours
    "library/command_stream.py": {"warnings.warn"},  # for the author of a program, about its own line
}
"""The raw sinks that each module may use, and why."""

SUSPICIOUS = re.compile(r"\bprint\(|InertText|click\.|warnings|logging|stdout|stderr|_out\b|_err\b|rich|textual")
SETTINGS = ("setLevel", "addFilter", "removeFilter")
"""The permitted methods of a logger: they write nothing."""
RAW_CALLS = re.compile(
    r"print|InertText|click\.(echo|secho|echo_via_pager|prompt|confirm)|warnings\.warn"
    r"|logging\.(getLogger|debug|info|warning|error|exception|critical)"
    r"|(.+\.)?(__)?(stdout|stderr|_out|_err)(__)?(\.buffer)?\.(write|writelines)"
)
RAW_IMPORTS = re.compile(
    r"rich\.text\..*|rich\.(markup|print)\..*|rich\.(print|get_console)|rich\.console\.(Group|Console|RenderableType)"
    r"|textual\.widgets\.(Static|Label|Log|RichLog|Markdown|Link)"
)


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            return f"{_name(value)}.{attr}"
        case _:
            return "?"


def raw_sinks(source: str) -> Iterator[str]:
    """The ways in which a module shows text without making it inert."""
    if not SUSPICIOUS.search(source):
        return
    nodes = list(ast.walk(ast.parse(source)))
    settings = [node.value for node in nodes if isinstance(node, ast.Attribute) and node.attr in SETTINGS]
    for node in nodes:
        if isinstance(node, ast.Call) and node not in settings and RAW_CALLS.fullmatch(name := _name(node.func)):
            yield name
        elif isinstance(node, ast.ImportFrom):
            yield from filter(RAW_IMPORTS.fullmatch, (f"{node.module}.{alias.name}" for alias in node.names))


@pytest.mark.thorough(one_of=8)
def test_no_module_goes_around_the_functions_that_make_text_inert() -> None:  # S-22
    sinks_by_module = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith(PROGRAMS) and (sinks := set(raw_sinks(path.read_text(encoding="utf-8")))):
            sinks_by_module[name] = sinks
    assert sinks_by_module == ALLOWED


@pytest.mark.parametrize(
    "source",
    [
        "print(x)",
        "import sys\nsys.stderr.write(x)",
        "import sys\nsys.stdout.buffer.write(x)",
        "self._out.write(x)",
        "import click\nclick.echo(x)",
        "import logging\nlogging.getLogger('treadle').warning(x)",
        "from rich.text import Text",
        "from textual.widgets import Input, Static",
        "InertText(x)",
    ],
)
def test_the_look_at_the_source_sees_every_way(source: str) -> None:
    assert list(raw_sinks(source))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_lines_on_the_standard_streams_are_inert(text: str, capsys: pytest.CaptureFixture[str]) -> None:  # S-12
    print_line(f"a name: {text}\ud800")
    print_note(f"a name: {text}\ud800")
    outputs = capsys.readouterr()
    for output in outputs:
        check_inert(output)
        assert "a name: " in output


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_log_is_inert_and_a_fact_is_one_line(text: str, caplog: pytest.LogCaptureFixture) -> None:  # S-22
    log_error("chat %s cannot go on: %s", text, ValueError(text))
    log_traceback("a request failed", ValueError(text))
    first, second = (logging.Formatter("%(message)s").format(record) for record in caplog.records)
    check_inert(first)
    check_inert(second)
    assert "\n" not in first
    assert len(first) < 2 * LONGEST_FACT + 100
    assert "ValueError" in second
    assert len(second) < 10 * LONGEST_FACT


def test_records_of_other_libraries_are_inert_where_no_handler_takes_them(
    capsys: pytest.CaptureFixture[str],
) -> None:  # S-22
    make_last_resort_inert()
    assert logging.lastResort is not None
    error = ValueError(HOSTILE)
    record = {"name": "asyncio", "levelno": 40, "msg": HOSTILE, "exc_info": (ValueError, error, None)}
    try:
        logging.lastResort.handle(logging.makeLogRecord(record))
    finally:
        logging.lastResort.setFormatter(None)
    output = capsys.readouterr().err
    check_inert(output)
    assert "ValueError: \\x1b[31mred" in output


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_json_for_programs_is_inert_and_means_the_same(text: str) -> None:  # S-12
    value = {text: [text, "👩\u200d🔧 中文"]}
    encoded = make_inert_json(msgspec.json.encode(value))
    check_inert(encoded.decode())
    assert msgspec.json.decode(encoded) == value
    assert make_inert_json(encoded) == encoded


def test_the_hostile_text_is_hostile() -> None:
    with pytest.raises(AssertionError):
        check_inert(HOSTILE)
