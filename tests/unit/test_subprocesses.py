import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from treadle.subprocesses import Launch, run_blocking

LEAVES_A_CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(sys.argv[1], "w").write(str(child.pid))
"""


def _gone(pid: int) -> bool:
    """Whether a process has ended, be it that nobody has reaped it yet."""
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return found in ("", "Z")


@pytest.mark.parametrize("ending", ["timed_out", "stopped"])
def test_what_a_program_left_behind_goes_with_it(ending: str, tmp_path: Path) -> None:  # L-07
    note = tmp_path / "child"
    launch = Launch([sys.executable, "-c", LEAVES_A_CHILD, str(note)], dict(os.environ))
    stop = threading.Event()
    if ending == "stopped":
        threading.Timer(1.0, stop.set).start()
    assert run_blocking(launch, lambda _: None, 1.0 if ending == "timed_out" else 60.0, stop).ending == ending
    until = time.monotonic() + 60
    while not _gone(int(note.read_text())) and time.monotonic() < until:
        time.sleep(0.02)
    assert _gone(int(note.read_text()))
