"""Virtual environments for the peers, one each, from the pinned versions in `bench/peers`. Nothing is installed into
Treadle's own environment."""

import subprocess
import sys
from pathlib import Path

from bench.contest import Contestant
from bench.processes import Failed, last_line

HERE = Path(__file__).parent


def python_of(contestant: Contestant) -> Path:
    """The interpreter that runs a contestant. Builds a peer's environment when its pins are new."""
    if contestant.kind != "peer":
        return Path(sys.executable)
    pins = (HERE / "peers" / f"{contestant.name}.txt").read_text()
    folder = HERE / ".venvs" / contestant.name
    python = folder / "bin" / "python"
    stamp = folder / "pins.txt"
    if not stamp.exists() or stamp.read_text() != pins:
        print(f"building an environment for {contestant.title}", flush=True)
        _run([sys.executable, "-m", "venv", "--clear", str(folder)], contestant)
        pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "install", "--no-deps", "-r", str(HERE / "peers" / f"{contestant.name}.txt")], contestant)
        stamp.write_text(pins)
    return python


def versions(contestant: Contestant) -> str:
    """The pinned versions of the packages that give a peer its name."""
    lines = (HERE / "peers" / f"{contestant.name}.txt").read_text().split()
    named = contestant.name.replace("_", "-")
    return ", ".join(line.replace("==", " ") for line in lines if line.startswith((named, f"{named}-slim")))


def _run(command: list[str], contestant: Contestant) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise Failed(f"{contestant.title} cannot be installed here: {last_line(errors[-1] if errors else done.stderr)}")
