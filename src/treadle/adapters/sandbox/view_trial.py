"""Tests if a copy-on-write view of this very project works here. The probe tried views only in a folder of its own; the
file system of the project may lack the necessary features."""

import os
import subprocess

from msgspec.structs import replace

from treadle.adapters.sandbox.trial_folders import trial_folder
from treadle.errors import SandboxError
from treadle.ports.sandbox import Confinement, Sandbox, View

_LONGEST_S = 15.0
_TRIES = 2
"""A view that does not work is looked at twice, because the answer holds for the whole process."""


def view_works(sandbox: Sandbox, root: str, folder: str) -> bool:
    """Tried with a command that does nothing. `folder` is where the views of commands will lie."""
    if not sandbox.views:
        return False
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return any(_try_view(sandbox, os.path.realpath(root), folder) for _ in range(_TRIES))


def _try_view(sandbox: Sandbox, root: str, folder: str) -> bool:
    try:
        with trial_folder(".view-", folder) as trial:
            upper, work = os.path.join(trial, "upper"), os.path.join(trial, "work")
            for each in (upper, work):
                os.mkdir(each, 0o700)
            confinement = Confinement(root, View(upper, work))
            # A command that does nothing needs no program that keeps it from sockets.
            confinement = replace(confinement, covered_sockets=sandbox.sockets_to_cover(confinement))
            line = sandbox.wrap(["/bin/sh", "-c", ":"], confinement, root)
            return not subprocess.run(
                line,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=root,
                timeout=_LONGEST_S,
                check=False,
            ).returncode
    except (OSError, SandboxError, subprocess.TimeoutExpired):
        return False
