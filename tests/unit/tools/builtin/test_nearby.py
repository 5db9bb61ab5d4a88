"""What is said of a path where nothing lies: what there is instead (T-01)."""

from pathlib import Path

import pytest

from treadle.tools.builtin.nearby import not_there
from treadle.workspace.root import Root


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("menu.txt", "menu.txt does not exist. In the project there is: many/, src/, メニュー.txt."),
        ("src/util/a.py", "src/util/a.py does not exist. In src/ there is: strings.py."),
        ("src/strings.py/a", "src/strings.py/a does not exist. In src/ there is: strings.py."),
        ("many/sumary.txt", "many/sumary.txt does not exist. In many/ there is: summary.txt."),
        ("many/quite-another", "many/quite-another does not exist."),
        ("src\x1b[1m", "src\\x1b[1m does not exist. In the project there is: many/, src/, メニュー.txt."),
    ],
)
def test_the_names_that_are_there(tmp_path: Path, path: str, said: str) -> None:
    for name in (
        "メニュー.txt",
        "src/strings.py",
        "many/summary.txt",
        *(f"many/{9 * letter}" for letter in "abcdefghijkl"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n")
    assert not_there(Root(str(tmp_path)), path) == said
