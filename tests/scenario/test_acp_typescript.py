"""`treadle acp` with the TypeScript SDK of the protocol: as its own client sees it (E-02). The SDK is looked for in
$ACP_NODE_MODULES, where `make conformance` puts it, and among the global packages of npm."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.mcp_servers import place
from tests.scenario.command_line import TIMEOUT_S, CommandLine

pytestmark = pytest.mark.thorough(one_of=8)

CLIENT = Path(__file__).with_name("acp_client.mjs")


def _sdk() -> str:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("needs node and npm")
    roots = [os.environ.get("ACP_NODE_MODULES", ""), str(place() / "node_modules")]
    roots.append(subprocess.run([npm, "root", "-g"], capture_output=True, text=True, check=False).stdout.strip())
    for root in filter(None, roots):
        package = Path(root, "@agentclientprotocol", "sdk")
        if (package / "package.json").exists():
            return str(package / json.loads((package / "package.json").read_text())["main"])
    pytest.skip("needs the npm package @agentclientprotocol/sdk; make conformance installs it")


@pytest.mark.thorough(one_of=8)
def test_a_session_with_the_typescript_sdk(cli: CommandLine) -> None:
    script = cli.script(
        '[[turn]]\ntext = "Working."\ncall = [{ name = "run_command", args = { command = "echo x > made" } }]\n'
        '[[turn]]\ntext = "All done."\n'
    )
    agent = [sys.executable, "-m", "treadle", "acp", "--model", script, "--mode", "confirm"]
    process = subprocess.run(
        ["node", str(CLIENT), _sdk(), str(cli.project), *agent],
        env=cli.environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S * 2,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout)
    assert (report["version"], report["stopReason"], report["sessions"]) == (1, "end_turn", 1)
    assert report["asked"] == [["allow_once", "reject_once"]]
    assert (cli.project / "made").read_text() == "x\n"
    for updates in (report["live"], report["loaded"]):
        texts = [each["content"]["text"] for each in updates if each["sessionUpdate"] == "agent_message_chunk"]
        assert "".join(texts) == "Working.All done."
        calls = [each for each in updates if each["sessionUpdate"] in ("tool_call", "tool_call_update")]
        assert (calls[0]["kind"], calls[-1].get("content", [{}])[-1].get("type")) == ("execute", "diff")
        assert "completed" in [each.get("status") for each in calls]
    assert next(each["sessionUpdate"] for each in report["loaded"]) == "user_message_chunk"
