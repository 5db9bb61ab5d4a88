"""MCP servers that others wrote, in trouble (E-01): they hang, are killed in the middle of a call, say too much; and a
second of each over streamable HTTP. Real processes, stopped and killed by signals. `make conformance` installs them;
missing ones are skipped."""

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scripts.mcp_servers import place
from tests.conformance.test_mcp_servers import BIN, EVERYTHING, FILES, NODE, need, own_children, repository, texts
from tests.leftovers import descendants
from tests.scenario.mcp_servers.kit import PATIENCE_S, Kit, collect_events, results
from treadle import Agent
from treadle.adapters.models.scripted import Call, Say
from treadle.protocol import events as e

pytestmark = pytest.mark.thorough(one_of=12)

GATEWAY = place() / "node_modules/supergateway/dist/index.js"
MUCH = 90_000
"""More than a model gets of a result, and less than the gateway takes in one piece."""


class Real(msgspec.Struct):
    """A server, one call of it that works, and one whose result is very long."""

    command: Callable[[str], list[str]]
    works: tuple[str, dict[str, Any], str]
    floods: tuple[str, dict[str, Any]]
    """ROOT in arguments stands for the project."""


SERVERS = {
    "everything": Real(
        lambda _root: [NODE, need(EVERYTHING), "stdio"],
        ("echo", {"message": "hi"}, "Echo: hi"),
        ("echo", {"message": "x" * MUCH}),
    ),
    "filesystem": Real(
        lambda root: [NODE, need(FILES), root],
        ("read_text_file", {"path": "ROOT/a.txt"}, "one"),
        ("read_text_file", {"path": "ROOT/much.txt"}),
    ),
    "git": Real(
        lambda _root: [need(BIN / "mcp-server-git")],
        ("git_status", {"repo_path": "ROOT"}, "a.txt"),
        ("git_diff_staged", {"repo_path": "ROOT"}),
    ),
    "time": Real(
        lambda _root: [need(BIN / "mcp-server-time")],
        ("get_current_time", {"timezone": "Europe/Berlin"}, "Europe/Berlin"),
        ("get_current_time", {"timezone": "x" * MUCH}),
    ),
}


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[Kit]:
    new_kit = Kit(tmp_path)
    fill(new_kit.root)
    yield new_kit
    await new_kit.close()


def fill(root: Path) -> None:
    """A repository with a small file, and a large one that is staged."""
    repository(str(root))
    (root / "much.txt").write_text("much\n" * (MUCH // 5))
    subprocess.run(["git", "-C", str(root), "add", "much.txt"], check=True)


def call(kit: Kit, server: str, tool: str, arguments: dict[str, Any]) -> Call:
    filled = {name: str(value).replace("ROOT", str(kit.root)) for name, value in arguments.items()}
    return Call(f"{server}__{tool}", **filled)


def get_transcript_path(folder: Path, name: str) -> Path:
    """Where everything stands that a server was sent, by its name here."""
    return folder / f"{name}.heard"


def overheard(kit: Kit, name: str, command: list[str]) -> dict[str, Any]:
    """A server whose input is kept on its way: so it is known what was sent to it, also while it cannot read."""
    script = 'exec 3<&0; file=$1; shift; exec "$@" < <(tee "$file" <&3)'
    arguments = ["-c", script, "bash", str(get_transcript_path(kit.folder, name)), *command]
    return {"command": need(Path(shutil.which("bash") or "bash")), "args": arguments, "start_s": 60}


async def ready(agent: Agent, kit: Kit, *names: str) -> None:
    """Until they have started, however busy the machine is: a run waits ten seconds for them, and goes on without."""
    for name in names:
        connection, _ = await agent.mcp.hub.connect_server(name, str(kit.root))
        await connection.ensure_client()


async def wait_for_calls(kit: Kit, server: str, times: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while get_transcript_path(kit.folder, server).read_bytes().count(b'"tools/call"') < times:  # noqa: ASYNC110 - tee writes it
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("name", SERVERS)
async def test_it_says_too_much_hangs_and_is_killed_in_the_middle_of_a_call(kit: Kit, name: str) -> None:
    real = SERVERS[name]
    command = real.command(str(kit.root))
    tool, arguments, expected_text = real.works
    works, slow = call(kit, "it", tool, arguments), call(kit, "slow", tool, arguments)
    flood = call(kit, "it", *real.floods)
    steps = [works, flood, Say("Works."), slow, Say("Hung."), works, Say("Killed."), works, Say("Again.")]
    servers = {"it": overheard(kit, "it", command), "slow": {**overheard(kit, "slow", command), "timeout_s": 0.5}}
    agent = kit.agent(steps, servers)
    await ready(agent, kit, "it", "slow")
    chat = kit.chat(agent)
    worked, much = results(await collect_events(chat.send("Go.")))
    assert expected_text in worked.result
    assert "bytes truncated" in much.result + much.error  # T-11
    assert len(much.result + much.error) < 60_000
    children = own_children(Path(command[1] if command[0] == NODE else command[0]).name)
    assert len(children) == 2
    for pid in children:
        os.kill(pid, signal.SIGSTOP)
    [hung] = texts(await collect_events(chat.send("Go.")))
    assert hung.startswith("ERROR"), hung
    events = []
    async for envelope in chat.send("Go."):
        events.append(envelope)
        if isinstance(envelope.data, e.ExecutionStart):
            await wait_for_calls(kit, "it", 3)  # stopped as it is, it cannot answer
            for pid in children:
                os.kill(pid, signal.SIGKILL)
    [killed] = results(events)
    assert not killed.success
    assert "not known whether it took effect" in killed.error, killed  # D-02: and it is not repeated
    await ready(agent, kit, "it")  # it is there again
    assert expected_text in texts(await collect_events(chat.send("Go.")))[0]


@contextmanager
def over_http(command: list[str], folder: Path) -> Iterator[str]:
    """The address of a program that speaks on its streams, behind a gateway of others."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = [NODE, need(GATEWAY), "--stdio", " ".join(command), "--outputTransport", "streamableHttp", "--stateful"]
    gateway = subprocess.Popen([*argv, "--port", str(port)], stdout=subprocess.PIPE, cwd=folder, start_new_session=True)
    assert gateway.stdout is not None
    try:
        assert any(re.search(rb"[Ll]istening", line) for line in gateway.stdout)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        gateway.send_signal(signal.SIGSTOP)  # it starts no more servers, which are in groups of their own
        for pid in [*descendants(gateway.pid), gateway.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        gateway.wait()
        gateway.stdout.close()


@pytest.mark.parametrize("name", [each for each in SERVERS if each != "everything"])  # which speaks it by itself
async def test_a_second_one_over_http(kit: Kit, name: str) -> None:
    real = SERVERS[name]
    tool, arguments, expected_text = real.works
    command = real.command(str(kit.root))
    with over_http(command, kit.root) as url:
        servers = {"near": {"command": command[0], "args": command[1:]}, "far": {"url": url}}
        calls = [call(kit, server_name, tool, arguments) for server_name in ("near", "far")]
        flood = call(kit, "far", *real.floods)
        agent = kit.agent([*calls, flood, Say("Both.")], servers)
        await ready(agent, kit, "near", "far")
        events = await collect_events(kit.chat(agent).send("Go."))
    near_result, far_result, much = results(events)
    assert expected_text in near_result.result
    assert expected_text in far_result.result
    assert "bytes truncated" in much.result + much.error
