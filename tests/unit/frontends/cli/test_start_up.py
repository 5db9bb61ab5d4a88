"""`--version` and `--help` are there at once: they load next to nothing (U-06). A run loads what it uses, and no more:
these tests count the causes of slowness, on any machine."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from treadle.frontends.cli import COMMANDS, format_help, lazy
from treadle.frontends.cli.group import cli
from treadle.frontends.cli.options import EXIT_USAGE
from treadle.testing.fake_openai import FakeOpenAI, Reply

HEAVY = {"asyncio", "aiohttp", "msgspec", "rich", "sqlite3", "treadle.library.agent"}
WORK_OF_TOOLS = {
    "concurrent.futures.thread",
    "email",
    "fractions",
    "html",
    "jsonschema_rs",
    "tree_sitter",
    "treadle.adapters.policy.command_severity",
    "treadle.adapters.sandbox.bubblewrap",
    "treadle.adapters.sandbox.choose",
    "treadle.adapters.sandbox.probe",
    "treadle.adapters.tools.builtin.command.run",
    "treadle.adapters.tools.builtin.diagnostics.running",
    "treadle.adapters.tools.builtin.diagnostics.linters",
    "treadle.adapters.tools.builtin.patching",
    "treadle.adapters.tools.builtin.replacement",
    "treadle.adapters.tools.hooks",
    "treadle.adapters.workspace.search.search",
}
"""Modules that only calls of tools need."""
OTHER_WORK = {
    "acp",
    "aiohttp",
    "attr",
    "mcp",
    "opentelemetry",
    "pydantic",
    "pygments",
    "rich",
    "textual",
    "tomllib",
    "treadle.frontends.acp",
    "treadle.frontends.cli.prose",
    "treadle.frontends.copilot",
    "treadle.base.jsonrpc",
    "treadle.adapters.mcp",
    "treadle.library.mcp_hub",
    "treadle.frontends.mcp_server",
    "treadle.adapters.models.text_calls",
    "treadle.library.replay",
    "treadle.library.skills.reading",
    "treadle.adapters.telemetry",
    "treadle.library.transfer",
}
"""Modules that a run without servers, skills and telemetry does not need."""


def list_loaded_modules(*arguments: str) -> set[str]:
    program = (
        "import sys\n"
        f"sys.argv = ['treadle', *{arguments!r}]\n"
        "from treadle.frontends.cli import main\n"
        "code = main()\n"
        "sys.stderr.write('\\n'.join(sys.modules))\n"
        "sys.exit(code)"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout
    return set(process.stderr.split("\n"))


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_the_first_words_load_not_even_click(option: str) -> None:
    modules = list_loaded_modules(option)
    assert "treadle.frontends.cli" in modules
    assert not modules & (HEAVY | OTHER_WORK | {"click"})


HELPS = """
import json, os, sys
from treadle.frontends.cli import main
commands = sys.argv[1:]
for command in commands:
    if (child := os.fork()) == 0:
        sys.argv = ["treadle", command, "--help"]
        code = main()
        sys.stdout.flush()
        sys.stderr.write(json.dumps([command, list(sys.modules)]) + "\\n")
        sys.stderr.flush()
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0, command
"""
"""Each command in a process of its own that had loaded no more than what finds commands."""


@pytest.fixture(scope="module")
def loaded_for_help() -> dict[str, set[str]]:
    process = subprocess.run([sys.executable, "-c", HELPS, *COMMANDS], capture_output=True, text=True, check=True)
    assert all(f"treadle {command} " in process.stdout for command in COMMANDS)
    return {command: set(modules) for command, modules in map(json.loads, process.stderr.splitlines())}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_loads_no_work(command: str, loaded_for_help: dict[str, set[str]]) -> None:
    assert not loaded_for_help[command] & HEAVY


@pytest.mark.thorough(one_of=8)
def test_the_first_frame_of_the_app_loads_nothing_of_a_chat() -> None:  # U-06
    program = (
        "import sys, treadle.frontends.cli.open_app, treadle.base.types, treadle.frontends.tui.launch\n"
        "print(*sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = set(process.stdout.split())
    assert "textual.app" in modules
    later = {
        "msgspec",
        "rich.markdown",
        "treadle.library.config",
        "treadle.protocol.options",
        "treadle.frontends.tui.showing",
    }
    assert not modules & (later | {"aiohttp", "sqlite3", "treadle.library.agent"})


def test_every_command_has_the_line_of_help_that_the_list_shows() -> None:
    context = click.Context(cli)
    for name, line in COMMANDS.items():
        command = cli.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert (command.help or "").split("\n")[0] == line
        assert name in format_help()


class StartTrace(msgspec.Struct, frozen=True):
    """The causes of slowness in a run: names of modules, of audited calls, and of threads."""

    modules: set[str]
    processes: list[str]
    commits: int
    threads: list[str]
    collections: int
    """How often everything was looked through for garbage."""


WATCHED_RUN = """
import gc, json, sys, threading
from treadle.base import file_system

seen = {"processes": [], "commits": 0, "threads": [], "collections": 0}
start = threading.Thread.start

def audit(event, arguments):
    if event in ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec"):
        seen["processes"].append(event)

def point(name):
    seen["commits"] += name == "store.after_commit"

def watched_start(thread):
    seen["threads"].append(thread.name)
    start(thread)

def collect(phase, info):
    seen["collections"] += phase == "start" and gc.get_threshold()[0] > 700

gc.callbacks.append(collect)
threading.Thread.start = watched_start
sys.addaudithook(audit)
file_system.install_fault_hook(point)
from treadle.frontends.cli import main
code = main()
with open("../seen.json", "w") as file:
    json.dump({"modules": [name for name in sys.modules if name != "json"], **seen}, file)
sys.exit(code)
"""


def watch(folder: Path, *arguments: str, **environment: str) -> StartTrace:
    process, trace = start_and_watch(folder, *arguments, **environment)
    assert process.returncode == 0, process.stderr
    assert "Hello." in process.stdout
    return trace


def start_and_watch(
    folder: Path, *arguments: str, **environment: str
) -> tuple[subprocess.CompletedProcess[str], StartTrace]:
    project, temporary = folder / "project", folder / "temporary"
    for path in (project, temporary):
        path.mkdir(exist_ok=True)
    # A folder for temporary files of its own: the run sweeps it, in a thread if killed processes left something there.
    # A proxy of this machine would make the run load what reads the hosts that need none.
    env = {
        **{name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
        "TREADLE_HOME": str(folder / "home"),
        "TMPDIR": str(temporary),
        "TREADLE_MODEL": "",
        **environment,
    }
    command = [sys.executable, "-c", WATCHED_RUN, "run", *arguments, "Say hello."]
    process = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False)
    return process, msgspec.json.decode((folder / "seen.json").read_bytes(), type=StartTrace)


@pytest.mark.thorough(one_of=8)
def test_a_run_without_a_tool_loads_no_work_of_tools_and_starts_no_process(tmp_path: Path) -> None:
    with FakeOpenAI([Reply(text="Hello.")]) as fake:
        server = {"OPENAI_BASE_URL": fake.base_url, "OPENAI_API_KEY": "none"}
        first = watch(tmp_path, "--model", "openai:gpt-4.1", **server)
        second = watch(tmp_path, "--model", "openai:gpt-4.1", **server)
    for trace in (first, second):
        assert not trace.modules & (WORK_OF_TOOLS | OTHER_WORK)
        assert trace.collections == 0
        assert trace.processes == []  # the sandbox is tried with the first command, not before (S-03)
        # A chat, its message with the beginning of the turn, the answer with the end of the lease; a process
        # that leaves at once gives the lease back once more, which waits for no disk.
        assert trace.commits in (3, 4)


@pytest.mark.thorough(one_of=8)
def test_a_run_reads_certificates_beside_the_rest_if_it_needs_them(tmp_path: Path) -> None:
    with FakeOpenAI([Reply(text="Hello.")]) as fake:
        plain = {"OPENAI_BASE_URL": fake.base_url, "OPENAI_API_KEY": "none"}
        assert "treadle-preload" not in watch(tmp_path, "--model", "openai:gpt-4.1", **plain).threads
    no_key = {"OPENAI_BASE_URL": "", "OPENAI_API_KEY": ""}  # so that the run ends before it asks anybody
    for arguments, model in ((("--model", "openai:gpt-4.1"), ""), ((), "openai:gpt-4.1")):
        process, trace = start_and_watch(tmp_path, *arguments, TREADLE_MODEL=model, **no_key)
        assert process.returncode == EXIT_USAGE
        assert trace.threads[0] == "treadle-preload"


@pytest.mark.thorough(one_of=8)
def test_a_run_without_a_server_has_nothing_to_do_with_http(tmp_path: Path) -> None:
    script = tmp_path / "script.toml"
    script.write_text('[[turn]]\ntext = "Hello."\n')
    for trace in (
        watch(tmp_path, "--model", f"scripted:{script}"),
        watch(tmp_path, TREADLE_MODEL=f"scripted:{script}"),
    ):
        assert not trace.modules & {
            "treadle.adapters.models.wire.http",
            "treadle.base.http.client",
            "treadle.base.http.connection",
            "httptools",
        }
        assert "treadle-preload" not in trace.threads


def test_every_lazy_module_can_be_loaded() -> None:
    modules = {name: value for name, value in vars(lazy).items() if name in lazy.__all__}
    assert set(modules) == {*lazy.__all__}
    for name, value in modules.items():
        assert value is Any or getattr(value, "__name__", ""), name
