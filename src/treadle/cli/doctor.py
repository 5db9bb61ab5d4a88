"""`treadle doctor`: what this installation has, what it lacks, and how strong its sandbox is (S-03)."""

import os
import platform
import shutil
import sqlite3
import sys
import sysconfig
from collections.abc import Iterator, Sequence

import msgspec

from treadle.cli.drive import EXIT_ERROR, EXIT_OK
from treadle.cli.inert import inert_line
from treadle.cli.session import configured
from treadle.cli.terminal import Colour, Terminal
from treadle.config import Config
from treadle.errors import SandboxError
from treadle.models.offering import all_offers, provider_state
from treadle.models.registry import ModelRegistry
from treadle.sandbox.choose import FOLDER, Choice, Findings, choose, examine
from treadle.sandbox.report import ATTEMPTS, Report, Verdict
from treadle.sandbox.trial import examine_level

_COLOURS: dict[Verdict, Colour] = {"refused": "green", "undone": "yellow", "allowed": "red"}


class Finding(msgspec.Struct, frozen=True):
    """One line of the overview. `well` is None where it is a matter of taste."""

    what: str
    text: str
    well: bool | None = True


def overview() -> int:
    config = configured()
    findings = list(_look_around(config))
    terminal = Terminal()
    width = max(len(each.what) for each in findings)
    for each in findings:
        sign = terminal.paint("✓", "green") if each.well else "·" if each.well is None else terminal.paint("✗", "red")
        terminal.line(f"{sign} {each.what:{width}}  {inert_line(each.text)}")
    return EXIT_ERROR if any(each.well is False for each in findings) else EXIT_OK


def _look_around(config: Config) -> Iterator[Finding]:
    yield Finding("python", f"{platform.python_version()} ({sys.executable})")
    yield Finding("sqlite", sqlite3.sqlite_version, sqlite3.sqlite_version_info >= (3, 35))
    yield _home(config)
    yield _sandbox(config)
    search = shutil.which("rg", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")]))
    yield Finding("search", search or "no rg; searching is slower without it", True if search else None)
    git = shutil.which("git")
    yield Finding("git", git or "no git; projects without it work, too", True if git else None)
    yield _models(config)


def _models(config: Config) -> Finding:
    """No server is asked, so that only a model on this machine is known to be well."""
    registry = ModelRegistry(os.environ, home=config.home)
    offers = [(each.provider, provider_state(registry, each)) for each in all_offers(registry) if each.models]
    ready = [provider for provider, state in offers if state == "ready"]
    unasked = [provider for provider, state in offers if state == "not asked"]
    found = [*ready, *([f"{', '.join(unasked)} (not asked; treadle models --remote asks)"] if unasked else [])]
    nothing = "no key and no server is known yet; treadle models --all shows what is missing"
    return Finding("models", "; ".join(found) or nothing, True if ready else None)


def _home(config: Config) -> Finding:
    nearest = next(path for path in (config.home, *config.home.parents) if path.exists())
    well = os.access(nearest, os.W_OK | os.X_OK) and nearest.is_dir()
    return Finding("home", f"{config.home}" if well else f"{config.home} cannot be written to", well)


def _sandbox(config: Config) -> Finding:
    try:
        choice = choose(config.home, config.settings.sandbox)
    except SandboxError as error:
        return Finding("sandbox", str(error), well=False)
    wanted = None if config.settings.sandbox == "none" else False
    return Finding("sandbox", _in_force(choice), well=True if choice.level != "none" else wanted)


def _in_force(choice: Choice) -> str:
    views = ", with copy-on-write views" if choice.sandbox.views else ""
    why = f" ({'; '.join(choice.reasons)})" if choice.reasons else ""
    return f"{choice.level}{views}{why}"


def try_sandbox(as_json: bool) -> int:
    config = configured()
    findings = examine(config.home)
    without = examine_level("none", "", config.home / FOLDER)
    failure = ""
    try:
        choice = choose(config.home, config.settings.sandbox)
        level: str = choice.level
        told = f"in force: {_in_force(choice)}"
    except SandboxError as error:
        level, failure = "", str(error)
        told = f"in force: nothing, commands do not run: {error}"
    if as_json:
        _print_json(findings, level, failure)
    else:
        _print_table(Terminal(), [*findings.reports, without], told)
    return EXIT_OK if level not in ("", "none") else EXIT_ERROR


def _print_json(findings: Findings, level: str, failure: str) -> None:
    reports = [msgspec.to_builtins(each) | {"holds": each.holds} for each in findings.reports]
    told = {"level": level, "failure": failure, "reports": reports}
    sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")


def _print_table(terminal: Terminal, reports: Sequence[Report], told: str) -> None:
    columns = [each for each in reports if each.tried]
    width = max(len(each.text) for each in ATTEMPTS)
    terminal.line(" " * width + "".join(f"  {each.level:12}" for each in columns).rstrip())
    for number, attempt in enumerate(ATTEMPTS):
        verdicts = [each.tried[number].verdict for each in columns]
        cells = "".join("  " + terminal.paint(f"{each:12}", _COLOURS[each]) for each in verdicts)
        terminal.line(f"{attempt.text:{width}}{cells}".rstrip())
    terminal.line()
    for report in reports:
        if report.failure:
            terminal.line(inert_line(f"{report.level} does not work here: {report.failure}"))
    terminal.line(inert_line(told))
