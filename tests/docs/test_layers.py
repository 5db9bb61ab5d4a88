"""ARCHITECTURE.md lists every package, and the modules that it names exist."""

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src" / "treadle"
ARCHITECTURE = (REPOSITORY / "ARCHITECTURE.md").read_text()
TABLES = "\n".join(line for line in ARCHITECTURE.partition("## The laws")[0].splitlines() if line.startswith("|"))

PYTHON_FILE = r"`((?:[a-z_]+/)+[a-z_]+\.py)`"


def test_every_package_is_listed() -> None:
    layers = {path.parent.name for path in SOURCE.glob("*/__init__.py")} - {"adapters", "frontends"}
    groups = {f"{path.parts[-3]}/{path.parts[-2]}" for path in SOURCE.glob("*/*/__init__.py")}
    listed = set(re.findall(r"`([a-z_/]+)/`", TABLES))
    assert layers | {name for name in groups if name.startswith(("adapters/", "library/", "frontends/"))} <= listed


def test_listed_modules_exist() -> None:
    for row in TABLES.splitlines():
        folders = re.findall(r"^\| `([a-z_/]+)/`", row)
        if not folders:
            continue
        folder = SOURCE / folders[0]
        for name in re.findall(r"`([a-z_]+)/?`", row.partition("|")[2].partition("|")[2]):
            assert (folder / name).is_dir() or (folder / f"{name}.py").is_file(), f"{folders[0]}: {name}"


def test_named_files_exist() -> None:
    """Files of ours that any page names with a folder, from `src/treadle` or from the repository on."""
    pages = [REPOSITORY / "ARCHITECTURE.md", REPOSITORY / "CONTRIBUTING.md", *(REPOSITORY / "docs").rglob("*.md")]
    named_files = {(page.name, name) for page in pages for name in re.findall(PYTHON_FILE, page.read_text())}
    assert len(named_files) > 50
    missing = [(page, name) for page, name in named_files if not (SOURCE / name).is_file()]
    assert [(page, name) for page, name in missing if not (REPOSITORY / name).is_file()] == []
