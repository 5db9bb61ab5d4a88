"""Folders in which sandboxes are tried are removed, also those of processes that were killed (S-14, fault 40)."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from treadle.adapters.sandbox.trial_folders import MARK, open_trial_folder, sweep_trial_folders

HOLD = """
import sys, time
from treadle.adapters.sandbox.trial_folders import open_trial_folder
with open_trial_folder("trial-", sys.argv[1]) as folder:
    print(folder, flush=True)
    time.sleep(600)
"""


def make_old(folder: Path) -> None:
    os.utime(folder / MARK, (time.time() - 3600,) * 2)


def test_the_folder_of_a_killed_process_is_removed_and_no_other(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    (folder / "closed").mkdir(mode=0o000)
    make_old(folder)
    for name in ("trial-of-somebody", "other"):
        (tmp_path / name).mkdir()
    assert sweep_trial_folders("trial-", str(tmp_path)) == 0  # its process lives
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with open_trial_folder("trial-", str(tmp_path)) as own_folder:
        assert not folder.exists()
        assert Path(own_folder).is_dir()
        make_old(Path(own_folder))
        assert sweep_trial_folders("trial-", str(tmp_path)) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "trial-of-somebody"]


def test_a_folder_that_was_made_just_now_stays(tmp_path: Path) -> None:
    """Its process may not have locked it yet."""
    (tmp_path / "trial-x").mkdir()
    (tmp_path / "trial-x" / MARK).touch()
    assert sweep_trial_folders("trial-", str(tmp_path)) == 0
    make_old(tmp_path / "trial-x")
    assert sweep_trial_folders("trial-", str(tmp_path)) == 1
    assert sweep_trial_folders("trial-", str(tmp_path / "none")) == 0
