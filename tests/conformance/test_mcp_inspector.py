"""`treadle mcp serve` under the command line of the MCP inspector, which others wrote (E-09): each call starts the
server anew, so that a task is followed in another process than the one that began it. `make conformance` installs the
inspector; without it these tests are skipped."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.mcp_servers import place
from tests.scenario.command_line import TIMEOUT_S, CommandLine

pytestmark = pytest.mark.thorough(one_of=12)

INSPECTOR = place() / "node_modules/.bin/mcp-inspector"
needed = pytest.mark.skipif(
    not INSPECTOR.exists() or shutil.which("node") is None, reason=f"no {INSPECTOR}; make conformance installs it"
)


def inspect(cli: CommandLine, model: str, method: str, tool: str = "", **arguments: Any) -> Any:
    tool_options = (
        ["--tool-name", tool, *(f"--tool-arg={name}={value}" for name, value in arguments.items())] if tool else []
    )
    server = [sys.executable, "-m", "treadle", "mcp", "serve", "--root", str(cli.project), "--model", model]
    process = subprocess.run(
        [
            "node",
            str(INSPECTOR),
            "--cli",
            "--connect-timeout",
            str(1_000 * TIMEOUT_S),
            *server,
            "--method",
            method,
            *tool_options,
        ],
        env=cli.environment,
        cwd=cli.project,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S * 2,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@needed
def test_the_inspector_lists_starts_and_follows(tmp_path: Path) -> None:
    cli = CommandLine(tmp_path)
    model = cli.script('[[turn]]\ntext = "All done."\n')
    tools = inspect(cli, model, "tools/list")["tools"]
    assert [tool["name"] for tool in tools][:3] == ["start_task", "follow_task", "list_tasks"]
    assert all(tool["description"] and tool["inputSchema"]["type"] == "object" for tool in tools)
    task = inspect(cli, model, "tools/call", "start_task", prompt="Go.")["structuredContent"]["task"]
    news = inspect(cli, model, "tools/call", "follow_task", task=task, after=0, wait_s=30)["structuredContent"]
    assert news["status"] == "idle"
    assert "All done." in " ".join(news["news"])
