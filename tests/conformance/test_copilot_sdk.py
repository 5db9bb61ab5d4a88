"""`treadle copilot` under the published Copilot SDKs, unchanged (issue 15, item 4). `make conformance` fetches them to
a folder of their own; without them these tests are skipped, and `tests/scenario/test_copilot_rpc.py` remains."""

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.homes import seed
from tests.scenario.command_line import SOURCES, CommandLine

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "treadle-tests"
PYTHON_SDK = CACHE / f"copilot-python-1.0.27-{sys.implementation.cache_tag}"
NODE_SDK = CACHE / "copilot-node-1.0.14"
HERE = Path(__file__).parent

with_python = pytest.mark.skipif(not PYTHON_SDK.is_dir(), reason=f"no {PYTHON_SDK}; make conformance fetches it")
with_node = pytest.mark.skipif(
    not NODE_SDK.is_dir() or shutil.which("node") is None,
    reason=f"no {NODE_SDK}, or no node; make conformance fetches it",
)


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program saw, by scene. Played once, because the SDK alone takes seconds to load."""
    return _played(tmp_path_factory.mktemp("copilot"))


@cache
def _played(folder: Path) -> dict[str, Any]:
    for scene in ("methods", "conversation", "refusals", "stopping", "two_clients", "killed"):
        seed(folder / "scenes" / scene / "home")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": f"{PYTHON_SDK}{os.pathsep}{SOURCES}",
        "LANG": "C.UTF-8",
    }
    command = [sys.executable, str(HERE / "copilot_program.py"), str(folder / "scenes")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def of(facts: dict[str, Any], scene: str) -> dict[str, Any]:
    found: dict[str, Any] = facts[scene]
    assert "failed" not in found, found["failed"]
    return found


@with_python
def test_a_conversation_with_tools_approvals_questions_and_hooks(facts: dict[str, Any]) -> None:
    seen = of(facts, "conversation")
    assert (seen["ping"], seen["protocol"], seen["authenticated"]) == ("pong: hi", 3, True)
    assert seen["models"] >= 1
    assert (seen["reply"], seen["second"]) == ("Done: 54321, Blue.", "And again.")
    assert seen["tool"] == [{"key": "ALPHA"}]
    assert seen["asked"] == [["Red or blue?", ["Red", "Blue"]]]
    assert seen["permitted"] == ["custom-tool", "write"]
    assert seen["file"] == "hello\n"
    assert ["start", "new"] in seen["hooks"]
    assert ["prompt", "Look it up."] in seen["hooks"]
    assert sorted(name for kind, name in seen["hooks"] if kind == "pre") == ["create", "lookup"]
    assert sorted(name for kind, name in seen["hooks"] if kind == "post") == ["create", "lookup"]
    assert seen["hooks"][-1] == ["end", "user_exit"]


@with_python
def test_what_is_told_live_is_what_is_read_again(facts: dict[str, Any]) -> None:  # D-04
    seen = of(facts, "conversation")
    assert seen["deltas"] == "Let me look.Done: 54321, Blue.And again."
    assert seen["live"] == seen["recorded"]
    assert seen["same_ids"]
    assert seen["recorded"][0] == "session.start"


@with_python
def test_sessions_are_listed_and_deleted(facts: dict[str, Any]) -> None:
    seen = of(facts, "conversation")
    assert seen["listed"] == ["talk-1"]
    assert seen["last"] == "talk-1"
    assert seen["after_delete"] == []


@with_python
def test_a_person_and_a_hook_refuse_and_a_hook_rewrites(facts: dict[str, Any]) -> None:
    seen = of(facts, "refusals")
    refused, hooked, rewritten = seen["results"]
    assert "not today" in refused
    assert hooked == "a.txt is mine"
    assert rewritten.endswith("the hook was here")
    assert seen["files"] == ["b.txt"]
    assert seen["b"] == "hook"


@with_python
def test_a_run_is_aborted_and_the_session_goes_on(facts: dict[str, Any]) -> None:  # L-07
    seen = of(facts, "stopping")
    assert seen == {"aborted": True, "again": "Fresh.", "queued": "Queued.", "abort_recorded": True, "idles": 1}


@with_python
def test_two_clients_share_a_session_on_a_port(facts: dict[str, Any]) -> None:
    seen = of(facts, "two_clients")
    assert seen["refused"]
    assert seen["reply"] == "Both came."
    assert (seen["one"], seen["two"]) == ([{"key": "1"}], [{"key": "2"}])
    assert seen["results"] == ["eins", "zwei"]
    assert seen["both_heard"]


@with_python
def test_a_session_survives_the_kill_of_its_runtime(facts: dict[str, Any]) -> None:  # D-01
    seen = of(facts, "killed")
    assert seen == {"accepted": True, "reply": "It said: ready.", "asked_once": True, "resumed": True}


@with_python
def test_answers_have_the_shapes_that_the_sdk_reads(facts: dict[str, Any]) -> None:
    seen = of(facts, "methods")
    refused = seen.pop("refused")
    assert "session.fleet.start" in refused
    assert seen == {
        "name": "A name",
        "mode": "plan",
        "agents": ["reader"],
        "agent": "Reader",
        "tools": True,
        "all_tools": True,
        "queue": [],
        "pending": [],
        "processing": False,
        "compacted": True,
        "read": True,
        "model": True,
        "logged": True,
        "metadata": "A name",
    }


@with_node
def test_a_program_on_the_sdk_for_node(tmp_path: Path) -> None:
    cli = CommandLine(tmp_path)
    model = cli.script(
        """
        [model]
        chunk = 4
        [[turn]]
        [[turn.call]]
        name = "lookup"
        args = {key = "ALPHA"}
        [[turn]]
        text = "It is 54321."
        """
    )
    program = NODE_SDK / "treadle-trial.mjs"  # a program finds its packages beside itself
    program.write_text((HERE / "copilot_program.mjs").read_text())
    environment = cli.environment | {"RUNTIME": sys.executable, "MODEL": model, "PROJECT": str(cli.project)}
    done = subprocess.run(
        ["node", str(program)], env=environment, capture_output=True, text=True, timeout=120, cwd=cli.project
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["reply"] == "It is 54321."
    assert seen["tool"] == [{"key": "ALPHA"}]
    assert seen["deltas"] == "It is 54321."
    assert seen["ping"] == "pong: hi"
    assert seen["types"][0] == "session.start"
