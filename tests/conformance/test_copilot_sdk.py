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

pytestmark = pytest.mark.thorough(one_of=12)

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
    """The facts that the program reports, by scene. Played once, because the SDK alone takes seconds to load."""
    return _play_scenes(tmp_path_factory.mktemp("copilot"))


@cache
def _play_scenes(folder: Path) -> dict[str, Any]:
    for scene in ("methods", "conversation", "refusals", "stopping", "two_clients", "kill_runtime"):
        seed(folder / "scenes" / scene / "home")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": f"{PYTHON_SDK}{os.pathsep}{SOURCES}",
        "LANG": "C.UTF-8",
    }
    command = [sys.executable, str(HERE / "copilot_program.py"), str(folder / "scenes")]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert process.returncode == 0, process.stderr
    facts_by_scene: dict[str, Any] = json.loads(process.stdout)
    return facts_by_scene


def of(facts: dict[str, Any], scene: str) -> dict[str, Any]:
    scene_facts: dict[str, Any] = facts[scene]
    assert "failed" not in scene_facts, scene_facts["failed"]
    return scene_facts


@with_python
def test_a_conversation_with_tools_approvals_questions_and_hooks(facts: dict[str, Any]) -> None:
    scene_facts = of(facts, "conversation")
    assert (scene_facts["ping"], scene_facts["protocol"], scene_facts["authenticated"]) == ("pong: hi", 3, True)
    assert scene_facts["models"] >= 1
    assert (scene_facts["reply"], scene_facts["second"]) == ("Done: 54321, Blue.", "And again.")
    assert scene_facts["tool"] == [{"key": "ALPHA"}]
    assert scene_facts["asked"] == [["Red or blue?", ["Red", "Blue"]]]
    assert scene_facts["permitted"] == ["custom-tool", "write"]
    assert scene_facts["file"] == "hello\n"
    assert ["start", "new"] in scene_facts["hooks"]
    assert ["prompt", "Look it up."] in scene_facts["hooks"]
    assert sorted(name for kind, name in scene_facts["hooks"] if kind == "pre") == ["create", "lookup"]
    assert sorted(name for kind, name in scene_facts["hooks"] if kind == "post") == ["create", "lookup"]
    assert scene_facts["hooks"][-1] == ["end", "user_exit"]


@with_python
def test_what_is_told_live_is_what_is_read_again(facts: dict[str, Any]) -> None:  # D-04
    scene_facts = of(facts, "conversation")
    assert scene_facts["deltas"] == "Let me look.Done: 54321, Blue.And again."
    assert scene_facts["live"] == scene_facts["recorded"]
    assert scene_facts["same_ids"]
    assert scene_facts["recorded"][0] == "session.start"


@with_python
def test_sessions_are_listed_and_deleted(facts: dict[str, Any]) -> None:
    scene_facts = of(facts, "conversation")
    assert scene_facts["listed"] == ["talk-1"]
    assert scene_facts["last"] == "talk-1"
    assert scene_facts["after_delete"] == []


@with_python
def test_a_person_and_a_hook_refuse_and_a_hook_rewrites(facts: dict[str, Any]) -> None:
    scene_facts = of(facts, "refusals")
    refused, hooked, rewritten = scene_facts["results"]
    assert "not today" in refused
    assert hooked == "a.txt is mine"
    assert rewritten.endswith("the hook was here")
    assert scene_facts["files"] == ["b.txt"]
    assert scene_facts["b"] == "hook"


@with_python
def test_a_run_is_aborted_and_the_session_goes_on(facts: dict[str, Any]) -> None:  # L-07
    scene_facts = of(facts, "stopping")
    assert scene_facts == {"aborted": True, "again": "Fresh.", "queued": "Queued.", "abort_recorded": True, "idles": 1}


@with_python
def test_two_clients_share_a_session_on_a_port(facts: dict[str, Any]) -> None:
    scene_facts = of(facts, "two_clients")
    assert scene_facts["refused"]
    assert scene_facts["reply"] == "Both came."
    assert (scene_facts["one"], scene_facts["two"]) == ([{"key": "1"}], [{"key": "2"}])
    assert scene_facts["results"] == ["eins", "zwei"]
    assert scene_facts["both_heard"]


@with_python
def test_a_session_survives_the_kill_of_its_runtime(facts: dict[str, Any]) -> None:  # D-01
    scene_facts = of(facts, "kill_runtime")
    assert scene_facts == {"accepted": True, "reply": "It said: ready.", "asked_once": True, "resumed": True}


@with_python
def test_answers_have_the_shapes_that_the_sdk_reads(facts: dict[str, Any]) -> None:
    scene_facts = of(facts, "methods")
    refused = scene_facts.pop("refused")
    assert "session.fleet.start" in refused
    assert scene_facts == {
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
    process = subprocess.run(
        ["node", str(program)], env=environment, capture_output=True, text=True, timeout=120, cwd=cli.project
    )
    assert process.returncode == 0, process.stderr
    program_facts = json.loads(process.stdout.splitlines()[-1])
    assert program_facts["reply"] == "It is 54321."
    assert program_facts["tool"] == [{"key": "ALPHA"}]
    assert program_facts["deltas"] == "It is 54321."
    assert program_facts["ping"] == "pong: hi"
    assert program_facts["types"][0] == "session.start"
