"""The files in deploy/ are true: their commands, flags and variables exist, they give processes the time that they need
to end, they hold no secret, and nothing in them keeps the sandbox from working."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from treadle.base.types import HOME_VARIABLE
from treadle.engine.worker import ENDING_S
from treadle.frontends.cli import COMMANDS
from treadle.frontends.cli.group import cli
from treadle.library.config import Settings, make_variable_name

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
COMPOSE = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
EXAMPLE = (DEPLOY / "treadle.env.example").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "guide" / "scale.md").read_text(encoding="utf-8")
README = (DEPLOY / "README.md").read_text(encoding="utf-8")
SETTINGS = {make_variable_name(name) for name in Settings.__struct_fields__} | {HOME_VARIABLE}


def command_lines() -> list[list[str]]:
    """The words after `treadle` of every command in the files and the guide."""
    lines = [
        [word.strip().strip('"') for word in match.split(",")]
        for match in re.findall(r"command: \[(.*)\]$", COMPOSE, flags=re.M)
    ]
    texts = [line for unit in UNITS for line in re.findall(r"^ExecStart=(.*)$", unit.read_text(), flags=re.M)]
    texts += [
        line
        for page in (GUIDE, README)
        for block in re.findall(r"```sh\n(.*?)```", page, re.S)
        for line in block.split("\n")
    ]
    for text in texts:
        if match := re.search(r"(?:^|[ /])treadle ((?:[a-z]|--).*)$", text):
            lines.append(shlex.split(match[1], comments=True))
    return lines


def test_commands_were_found() -> None:
    assert sum(words[0] == "worker" for words in command_lines()) >= 2
    assert sum(words[0] == "serve" for words in command_lines()) >= 2


@pytest.mark.parametrize("words", [words for words in command_lines() if words[0] in COMMANDS], ids=" ".join)
def test_every_flag_exists(words: list[str]) -> None:
    known_flags: set[str] = set()
    group: click.Command = cli
    for word in words:
        if word.startswith("--"):
            assert word in known_flags, f"treadle {words[0]} has no {word}"
        elif isinstance(group, click.Group) and (subcommand := group.get_command(click.Context(group), word)):
            group = subcommand
            known_flags |= {flag for parameter in subcommand.params for flag in parameter.opts}


@pytest.mark.parametrize(
    "file", [*UNITS, DEPLOY / "compose.yaml", DEPLOY / "treadle.env.example", DEPLOY / "Dockerfile"]
)
def test_every_variable_is_a_setting(file: Path) -> None:
    variables = set(re.findall(r"\bTREADLE_[A-Z_]*[A-Z]\b", file.read_text(encoding="utf-8")))
    assert variables <= SETTINGS


def test_what_compose_asks_for_is_in_the_example_or_has_a_default() -> None:
    for name, default in re.findall(r"\$\{(\w+)(:-)?", COMPOSE):
        assert default or re.search(rf"^{name}=", EXAMPLE, flags=re.M), name


def test_the_example_holds_no_secret() -> None:
    values = dict(re.findall(r"^(\w+)=(.*)$", EXAMPLE, flags=re.M))
    assert {"PGPASSWORD", "OPENAI_API_KEY"} <= set(values)
    assert not [name for name, value in values.items() if re.search("KEY|PASSWORD|TOKEN$", name) and value]


def test_processes_are_given_the_time_to_end() -> None:
    needed = Settings().drain_s + ENDING_S
    worker = (DEPLOY / "systemd" / "treadle-worker@.service").read_text()
    assert int(re.findall(r"^TimeoutStopSec=(\d+)$", worker, flags=re.M)[0]) > needed
    _, _, below = COMPOSE.partition("\n  worker:\n")
    assert int(re.findall(r"stop_grace_period: (\d+)s", below)[0]) > needed


def test_nothing_keeps_the_workers_sandbox_from_working() -> None:  # S-03
    worker = dict(re.findall(r"^(\w+)=(.*)$", (DEPLOY / "systemd" / "treadle-worker@.service").read_text(), flags=re.M))
    spoilers = {"RestrictNamespaces", "ProtectKernelTunables", "ProtectKernelLogs", "ProcSubset", "PrivateUsers"}
    assert not spoilers & set(worker)
    assert "AF_NETLINK" in worker["RestrictAddressFamilies"]
    assert worker["SystemCallFilter"].startswith("~")
    assert worker["KillMode"] == "process"  # a command's supervisor outlives its worker (D-02)


def test_the_image_is_built_from_what_its_context_has() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    allowed = set(re.findall(r"^!(.*)$", (DEPLOY / "Dockerfile.dockerignore").read_text(), flags=re.M))
    copied = {word for line in re.findall(r"^COPY (.*) \S+$", dockerfile, flags=re.M) for word in line.split()}
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_the_units(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name.replace("@.", "@1.")
    copy.write_text(unit.read_text().replace("/opt/treadle/bin/treadle", "/bin/true"))
    process = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False, timeout=60
    )
    assert unit.stem not in process.stderr, process.stderr
