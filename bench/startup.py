"""Measures what users wait for: imports, `treadle --version`, `--help`, and whole headless runs."""

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.contest import Contestant
from bench.processes import contestant_command, run_command

Figures = dict[str, float]
TREADLE = (sys.executable, "-c", "import sys; from treadle.frontends.cli import main; sys.exit(main())")


def start(contestant: Contestant, python: Path, folder: Path, url: str, repeats: int) -> Figures:
    """Seconds from exec to exit, the median of many; a first run fills the caches. What is imported late is in the
    second figure."""
    setting = {"url": url, "folder": str(folder), "durable": contestant.stores}
    first = contestant_command(python, contestant.file, "first", setting)
    return {
        "import_s": _wall([str(python), "-c", contestant.imports], folder, repeats),
        "first_s": _wall(first, folder, repeats),
    }


def commands(folder: Path, repeats: int) -> Figures:
    return {
        "version_s": _wall([*TREADLE, "--version"], folder, repeats),
        "help_s": _wall([*TREADLE, "--help"], folder, repeats),
    }


def headless(folder: Path, url: str, repeats: int) -> Figures:
    """`treadle run` in a small project, with a home of its own."""
    project = folder / "project"
    project.mkdir()
    for number in range(10):
        (project / f"file-{number}.txt").write_text(f"file {number}\n")
    home = folder / "home"
    extra = {
        "HOME": str(home),
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "OPENAI_BASE_URL": url,
        "OPENAI_API_KEY": "none",
    }
    home.mkdir()
    spent = {}
    for key, model in (("run_s", "bench-chunks-40"), ("run10_s", "bench-rounds-10")):
        command = [*TREADLE, "run", "--model", f"openai:{model}", "Go on."]
        spent[key] = [run_command(command, project, extra) for _ in range(repeats + 1)][1:]
    return {
        **{key: statistics.median(each.wall_s for each in runs) for key, runs in spent.items()},
        "run_mb": statistics.median(each.memory_mb for each in spent["run10_s"]),
    }


def _wall(command: Sequence[str], folder: Path, repeats: int) -> float:
    return statistics.median([run_command(command, folder).wall_s for _ in range(repeats + 1)][1:])
