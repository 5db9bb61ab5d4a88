"""The error for a path that does not exist names the paths that exist nearby (T-01)."""

from pathlib import Path

import pytest

from treadle.adapters.tools.builtin.base import describe_missing_path
from treadle.adapters.workspace.root import Root

TREE = (
    "README",
    "menü.txt",
    "src/strings.py",
    "many/summary.txt",
    *(f"many/{9 * letter}" for letter in "abcdefghijkl"),
)
ALL = "In the project there is: README, many/, menü.txt, src/."


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("menu/a.txt", ALL),
        ("x\x1b[1m", ALL),  # S-12
        ("src/util/a.py", 'Send the call again with "path": "src/strings.py", if you mean that.'),
        ("src/strings.py/a", 'Send the call again with "path": "src/strings.py", if you mean that.'),
        ("many/sumary.txt", 'Send the call again with "path": "many/summary.txt", if you mean that.'),
        ("many/quite-another", ""),
    ],
)
def test_the_names_that_are_there(tmp_path: Path, path: str, advice: str) -> None:
    for name in TREE:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n")
    shown_path = path.replace("\x1b", "\\x1b")
    assert describe_missing_path(Root(str(tmp_path)), path) == f"{shown_path} does not exist. {advice}".rstrip()
