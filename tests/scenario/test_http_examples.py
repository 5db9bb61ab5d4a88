"""The programs in examples/ are run as they stand, in processes of their own, against a real server (A-09)."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

import treadle
from tests.scenario.http_kit import Server, serving
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.sqlite import SqliteStore

pytestmark = pytest.mark.thorough(one_of=8)

EXAMPLES = Path(__file__).parents[2] / "examples"
WAIT_S = 60.0


async def run(server: Server, *arguments: str, input: str = "") -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(treadle.__file__).parents[1]),
        "TREADLE_URL": server.address,
        "TREADLE_TOKEN": server.local.token,
    }
    process = await asyncio.create_subprocess_exec(
        *arguments,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(input.encode()), WAIT_S)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_the_chat_bot(tmp_path: Path) -> None:
    steps = [
        [Call("stock", item="apple"), Call("stock", item="plum")],
        Say("There are 12 apples."),
        [Call("order", item="apple", count=2)],
        Say("Ordered."),
    ]
    async with serving(SqliteStore(tmp_path / "treadle.db"), tmp_path, steps) as server:
        output = await run(server, sys.executable, str(EXAMPLES / "chat_bot.py"), input="Apples?\nTwo, please.\n")
        assert output == "There are 12 apples.\nOrdered.\n"
        (listed,) = (await server.local("GET", "/api/chats")).json["chats"]
        log = await server.local.log(listed["id"])
        completions = [event["data"] for event in log if event["type"] == "tool.execution_complete"]
        assert [one["success"] for one in completions] == [True, False, True]
        assert "There is no plum in this shop" in completions[1]["error"] + completions[1]["result"]
        assert "order 1: 2 apple" in completions[2]["result"]


def test_the_chat_bot_is_short() -> None:
    assert len((EXAMPLES / "chat_bot.py").read_text().splitlines()) < 60


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_a_tool_by_plain_http(tmp_path: Path) -> None:
    steps = [[Call("clock"), Call("clock")], Say("Time for tea.")]
    async with serving(SqliteStore(tmp_path / "treadle.db"), tmp_path, steps) as server:
        assert await run(server, "bash", str(EXAMPLES / "client_tool.sh")) == "Time for tea.\n"
        (listed,) = (await server.local("GET", "/api/chats")).json["chats"]
        log = await server.local.log(listed["id"])
        completions = [event["data"] for event in log if event["type"] == "tool.execution_complete"]
        assert [one["success"] for one in completions] == [True, True]
