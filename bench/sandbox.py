"""`python -m bench.sandbox [--quick]`: what a sandbox adds to a command, beside `bash -c true` without any. The ways
are taken by turns, so that a moment's load weighs on all of them alike."""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from treadle.adapters.sandbox import landlock, places
from treadle.adapters.sandbox.bubblewrap import Bubblewrap
from treadle.adapters.sandbox.choose import find_bubblewrap
from treadle.adapters.sandbox.landlock import Landlock
from treadle.adapters.sandbox.launcher import NoSandbox
from treadle.adapters.sandbox.places import find_private_home, find_system_keys
from treadle.ports.sandbox import Confinement, Sandbox, View

Line = Callable[[], list[str]]
PLAIN = ("/bin/bash", "-c", "true")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sandbox", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run: few repetitions")
    repeats = 5 if parser.parse_args(arguments).quick else 100
    with tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as name:
        figures = measure(ways(Path(name)), repeats)
    floor = figures["plain bash"]
    print(f"{'way':32}{'ms':>8}{'added ms':>10}{'ratio':>8}")
    for way, seconds in figures.items():
        print(f"{way:32}{seconds * 1e3:8.1f}{(seconds - floor) * 1e3:10.1f}{seconds / floor:8.1f}")
    return 0


def ways(folder: Path) -> Mapping[str, Line]:
    """By name, what makes the command line anew for each run, as a worker does."""
    root, scratch = folder / "root", folder / "scratch"
    for path in (root, root / ".git", root / ".git" / "hooks", scratch):
        path.mkdir()
    (root / ".git" / "config").touch()
    bare = Confinement(root=str(root))
    guarded = Confinement(
        root=str(root),
        protected=places.find_protected_paths(str(root)),
        hidden_paths=(*places.find_hidden_paths(str(scratch), user_home=str(folder)), *find_system_keys()),
        home=find_private_home(str(root), os.environ),
    )
    found: dict[str, Line] = {"plain bash": lambda: list(PLAIN), "none": _wrapped(NoSandbox(), bare)}
    if binary := find_bubblewrap():
        sandbox = Bubblewrap(binary, str(scratch), views=True)
        found["bubblewrap"] = _wrapped(sandbox, bare)
        found["bubblewrap, guarded"] = _wrapped(sandbox, guarded)
        found["bubblewrap, view"] = _on_a_view(sandbox, bare, folder)
        found["bubblewrap, view, guarded"] = _on_a_view(sandbox, guarded, folder)
    if landlock.read_version() >= landlock.OLDEST:
        found["landlock"] = _wrapped(Landlock(str(scratch)), bare)
        found["landlock, guarded"] = _wrapped(Landlock(str(scratch)), guarded)
    return found


def _wrapped(sandbox: Sandbox, confinement: Confinement) -> Line:
    return lambda: sandbox.wrap(PLAIN, confinement, confinement.root)


def _on_a_view(sandbox: Sandbox, confinement: Confinement, folder: Path) -> Line:
    """Each time with folders of its own, as it must be."""

    def line() -> list[str]:
        upper, work = (tempfile.mkdtemp(dir=folder) for _ in range(2))
        on_it = msgspec.structs.replace(confinement, mount=View(upper, work))
        return sandbox.wrap(PLAIN, on_it, confinement.root)

    return line


def measure(lines: Mapping[str, Line], repeats: int) -> dict[str, float]:
    """Seconds of each way, the median; the first round fills the caches."""
    spent: dict[str, list[float]] = {name: [] for name in lines}
    for _ in range(repeats + 1):
        for name, line in lines.items():
            began = time.perf_counter()
            ended = subprocess.run(line(), capture_output=True, check=False)
            spent[name].append(time.perf_counter() - began)
            if ended.returncode:
                sys.exit(f"{name} failed: {ended.stderr.decode(errors='replace')}")
    return {name: statistics.median(times[1:]) for name, times in spent.items()}


if __name__ == "__main__":
    sys.exit(main())
