"""How strong a sandbox is, found out by trying to get out of it (S-03). Does not know which level is used at last."""

import os
import secrets
import shutil
import subprocess
from pathlib import Path

from treadle.errors import SandboxError
from treadle.ports.sandbox import Confinement, Sandbox, View
from treadle.sandbox.launcher import Launcher
from treadle.sandbox.probe_fixture import ProbeFixture, Stuck
from treadle.sandbox.report import ATTEMPTS, Report, Tried

VIEW_S = 15.0
_IN_VAIN = {"survive": "it was ended with the command"}


def probe(sandbox: Sandbox, scratch: Path, launcher: Launcher | None = None, user: int | None = None) -> Report:
    """Try everything. `scratch` must not lie below /tmp, of which a command has its own."""
    folder = scratch / f"probe-{secrets.token_hex(6)}"
    with ProbeFixture(folder, launcher or Launcher(), user) as stage:
        try:
            said = stage.attempt(sandbox)
        except (SandboxError, OSError) as error:
            return Report(sandbox.level, failure=str(error), stuck=isinstance(error, Stuck))
        missing = [each.name for each in ATTEMPTS if each.name not in said]
        if missing:
            words = said.get("", "").strip() or f"it ended at {missing[0]}"
            return Report(sandbox.level, failure=f"nothing runs in it: {words[-500:]}")
        evidence = stage.evidence()
    tried = tuple(_judged(each.name, said[each.name], evidence.get(each.name)) for each in ATTEMPTS)
    return Report(sandbox.level, tried, views=sandbox.views)


def _judged(name: str, said: str, evidence: bool | None) -> Tried:
    """What was seen from outside counts; the attempt's own word only where nothing can be seen."""
    reached = said == "reached"
    if evidence or (evidence is None and reached):
        return Tried(name, "allowed")
    if reached and name.endswith("_protected"):
        return Tried(name, "undone", "put back at the end")
    return Tried(name, "refused", _IN_VAIN.get(name, "it reached nobody") if reached else said)


def has_views(sandbox: Sandbox, scratch: Path, user: int | None = None) -> bool:
    """Whether a command on a copy-on-write view changes the upper folder and not the project, and cannot write what is
    protected there."""
    folder = scratch / f"view-{secrets.token_hex(6)}"
    root, upper, work = (folder / name for name in ("root", "upper", "work"))
    for path in (folder, root, root / ".git" / "hooks", upper, work):
        path.mkdir(parents=True, exist_ok=True)
    (root / "kept").write_bytes(b"kept")
    if user is not None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user, user)
    confinement = Confinement(
        root=str(root), mount=View(str(upper), str(work)), protected=(str(root / ".git" / "hooks"),)
    )
    script = "echo new > new && echo changed > kept && ! mkdir .git/hooks/x 2>&- && ! mv .git/hooks x 2>&-"
    try:
        line = sandbox.wrap(["/bin/sh", "-c", script], confinement, str(root))
        ended = subprocess.run(line, cwd=root, capture_output=True, timeout=VIEW_S, check=False, user=user, group=user)
        untouched = sorted(path.name for path in root.rglob("*")) == [".git", "hooks", "kept"]
        written = sorted(path.name for path in upper.rglob("*")) == ["kept", "new"]
        return ended.returncode == 0 and untouched and written and (root / "kept").read_bytes() == b"kept"
    except (SandboxError, OSError, subprocess.TimeoutExpired):
        return False
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """The kernel leaves a folder behind that nobody may enter."""
    for path in folder.glob("work/*"):
        path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
