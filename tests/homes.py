"""Homes of Treadle for tests. Every command runs in the real sandbox; how strong it is, is tried once in a run of the
tests and not once in each."""

import shutil
from functools import cache
from pathlib import Path

from tests.leftovers import run_folder
from treadle.adapters.sandbox.choose import FOLDER, REMEMBERED, load_findings


@cache
def shared_home() -> Path:
    """One for all processes of a run."""
    home = run_folder() / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    return home


def seed(home: Path) -> Path:
    """Give a home what is known about sandboxes."""
    load_findings(shared_home())
    (home / FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copyfile(shared_home() / FOLDER / REMEMBERED, home / FOLDER / REMEMBERED)
    return home
