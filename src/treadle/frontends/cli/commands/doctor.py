"""`treadle doctor`: the capabilities of this installation, missing ones, and the strength of its sandbox (S-03)."""

import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from treadle.base.inert import inert_line
from treadle.errors import SandboxError
from treadle.frontends.cli.options import EXIT_ERROR, EXIT_OK, json_option
from treadle.frontends.cli.terminal import Terminal, write_json
from treadle.frontends.presentation.styled import Colour, Span, spans

if TYPE_CHECKING:
    from treadle.adapters.sandbox.choose import ChosenSandbox
    from treadle.adapters.sandbox.report import EscapeResult, Verdict
    from treadle.library.config import Config
    from treadle.ports.sandbox import Level

_COLOURS: "dict[Verdict, Colour]" = {"refused": "green", "undone": "yellow", "allowed": "red"}


class Finding(NamedTuple):
    """One line of the overview. `well` is None where it is a matter of taste."""

    subject: str
    text: str
    well: bool | None = True


@click.group("doctor", invoke_without_command=True)
@click.pass_context
def doctor(context: click.Context) -> int:
    """Check this installation, and try to escape from the sandbox.

    The exit code is 1 when something that Treadle needs is missing or does not work.
    """
    if context.invoked_subcommand is not None:
        return 0
    from treadle.frontends.cli.session import configured

    findings = list(_look_around(configured()))
    terminal = Terminal()
    width = max(len(each.subject) for each in findings)
    for each in findings:
        sign = Span("✓", ("green",)) if each.well else "·" if each.well is None else Span("✗", ("red",))
        terminal.line(spans(sign, f" {each.subject:{width}}  {inert_line(each.text)}"))
    return EXIT_ERROR if any(each.well is False for each in findings) else EXIT_OK


@doctor.command("sandbox")
@json_option("Print one JSON object.")
def sandbox(as_json: bool) -> int:
    """Try every way out of every sandbox, and show which ones are closed.

    All attempts are made for real, against files, listeners and a process that are set up for them. The exit code is 1
    when commands run without a sandbox, or cannot run because the one that is set does not hold here. The second table
    is of commands that go through Treadle as in an unattended chat.
    """
    import asyncio

    import msgspec

    from treadle.adapters.sandbox.choose import FOLDER, choose, examine
    from treadle.adapters.sandbox.probe import examine_level
    from treadle.adapters.sandbox.report import ESCAPES
    from treadle.frontends.cli.session import configured
    from treadle.library.housekeeping.command_trials import TRIALS, try_commands

    config = configured()
    findings = examine(config.home)
    without = examine_level("none", "", config.home / FOLDER)
    demand = config.settings.sandbox
    levels = [each.level for each in findings.reports if each.holds and demand in ("auto", each.level)]
    commands = {level: asyncio.run(try_commands(config.home, level)) for level in levels}
    failure = ""
    try:
        choice = choose(config.home, config.settings.sandbox)
        level: str = choice.level
        status_line = f"in force: {_in_force(choice)}"
    except SandboxError as error:
        level, failure = "", str(error)
        status_line = f"in force: nothing, commands do not run: {error}"
    if as_json:
        reports = [msgspec.to_builtins(each) | {"holds": each.holds} for each in findings.reports]
        command_results = msgspec.to_builtins(commands)
        write_json({"level": level, "failure": failure, "reports": reports, "commands": command_results})
    else:
        terminal = Terminal()
        tables = {each.level: each.tried for each in (*findings.reports, without) if each.tried}
        _print_table(terminal, [each.text for each in ESCAPES], tables)
        if commands:
            _print_table(terminal, [each.text for each in TRIALS], commands)
        for report in findings.reports:
            if report.failure:
                terminal.line(inert_line(f"{report.level} does not work here: {report.failure}"))
        terminal.line(inert_line(status_line))
    return EXIT_OK if level not in ("", "none") else EXIT_ERROR


def _look_around(config: "Config") -> Iterator[Finding]:
    import sqlite3

    yield Finding("python", f"{platform.python_version()} ({sys.executable})")
    yield Finding("sqlite", sqlite3.sqlite_version, sqlite3.sqlite_version_info >= (3, 35))
    yield _home(config)
    yield from _sandbox(config)
    search = shutil.which("rg", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")]))
    yield Finding("search", search or "no rg; searching is slower without it", True if search else None)
    git = shutil.which("git")
    yield Finding("git", git or "no git; projects without it work, too", True if git else None)
    yield _models(config)


def _models(config: "Config") -> Finding:
    """No server is asked, so that only a model on this machine is known to be well."""
    from treadle.adapters.models.offering import all_offers, provider_state
    from treadle.adapters.models.registry import ModelRegistry

    registry = ModelRegistry(os.environ, home=config.home)
    offers = [(each.provider, provider_state(registry, each)) for each in all_offers(registry) if each.models]
    ready = [provider for provider, state in offers if state == "ready"]
    unasked = [provider for provider, state in offers if state == "not asked"]
    parts = [*ready, *([f"{', '.join(unasked)} (not asked; treadle models --remote asks)"] if unasked else [])]
    nothing = "no key and no server is known yet; treadle models --all shows what is missing"
    return Finding("models", "; ".join(parts) or nothing, True if ready else None)


def _home(config: "Config") -> Finding:
    nearest = next(path for path in (config.home, *config.home.parents) if path.exists())
    well = os.access(nearest, os.W_OK | os.X_OK) and nearest.is_dir()
    return Finding("home", f"{config.home}" if well else f"{config.home} cannot be written to", well)


def _sandbox(config: "Config") -> Iterator[Finding]:
    from treadle.adapters.policy.secret_files import SEARCH_LIMITS
    from treadle.adapters.sandbox.choose import choose
    from treadle.ports.sandbox import HIDING

    try:
        choice = choose(config.home, config.settings.sandbox)
    except SandboxError as error:
        yield Finding("sandbox", str(error), well=False)
        return
    well_without_sandbox = None if config.settings.sandbox == "none" else False
    yield Finding("sandbox", _in_force(choice), well=True if choice.level != "none" else well_without_sandbox)
    if choice.level in HIDING:
        yield Finding("secrets", f"files with secrets look empty to commands, except {SEARCH_LIMITS}")
    else:
        yield Finding(
            "secrets", "commands can read files with secrets: only bubblewrap and sandbox-exec hide them", well=None
        )


def _in_force(choice: "ChosenSandbox") -> str:
    views = ", with copy-on-write views" if choice.sandbox.views else ""
    reasons = f" ({'; '.join(choice.reasons)})" if choice.reasons else ""
    return f"{choice.level}{views}{reasons}"


def _print_table(terminal: Terminal, texts: Sequence[str], columns: "Mapping[Level, Sequence[EscapeResult]]") -> None:
    width = max(len(text) for text in texts)
    terminal.line(" " * width + "".join(f"  {level:12}" for level in columns).rstrip())
    for number, text in enumerate(texts):
        verdicts = [results[number].verdict for results in columns.values()]
        cells = [Span(f"  {each:12}", (_COLOURS[each],)) for each in verdicts[:-1]]
        last = verdicts[-1]
        terminal.line(spans(f"{text:{width}}", *cells, Span(f"  {last}", (_COLOURS[last],))))
    terminal.line()
