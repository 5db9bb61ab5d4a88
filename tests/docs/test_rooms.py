"""ARCHITECTURE.md names every module of every room."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src" / "treadle"
ROOMS = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))


@pytest.mark.parametrize("room", ["", *ROOMS])
def test_every_module_stands_in_the_tables(room: str) -> None:
    text = (REPOSITORY / "ARCHITECTURE.md").read_text()
    tables = "\n".join(line for line in text.partition("## The laws")[0].splitlines() if line.startswith("|"))
    rows = [line for line in tables.splitlines() if not room or line.startswith(f"| `{room}/`")]
    named = set(re.findall(r"[a-z_0-9]+", " ".join(rows)))
    modules = {path.stem for path in (SOURCE / room).glob("*.py") if not path.stem.startswith("_")}
    folders = {path.parent.name for path in (SOURCE / room).glob("*/__init__.py")}
    fakes = {name for name in modules if name.startswith("fake_")}  # one a provider
    assert modules | folders <= named | (fakes if room == "testing" else set())
