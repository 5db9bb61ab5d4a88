"""MCP servers that others wrote, used through a run (E-01): every tool that can be called, prompts and resources, over
standard streams and over streamable HTTP. `make conformance` installs them; missing ones are skipped."""

import asyncio
import base64
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.mcp_servers import place
from tests.scenario.kit import of
from tests.scenario.mcp_servers.kit import Kit, action, collect_events, results
from treadle import Chat, Envelope
from treadle.adapters.models.scripted import Call, Say, ScriptedModel
from treadle.protocol import events as e
from treadle.protocol.options import ChatOptions

pytestmark = pytest.mark.thorough(one_of=12)

NODE = shutil.which("node") or ""
EVERYTHING = place() / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
FILES = place() / "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
BIN = place() / "venv" / "bin"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def need(path: Path) -> str:
    if not path.exists() or (path.suffix == ".js" and not NODE):
        pytest.skip(f"{path.name} is not here; make conformance installs it")
    return str(path)


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[Kit]:
    new_kit = Kit(tmp_path)
    yield new_kit
    await new_kit.close()


async def run_calls(kit: Kit, server: dict[str, Any], calls: list[Any], **options: Any) -> tuple[list[Envelope], Chat]:
    chat = kit.chat(kit.agent([*calls, Say("Done.")], {"it": server}), **{"max_turns": 60} | options)
    return await collect_events(chat.send("Go.")), chat


def find_unused_tools(kit: Kit, events: list[Envelope]) -> set[str]:
    """The tools of the server that were not called."""
    tool_names = kit.agents[0].mcp.hub.find_available_tools(ChatOptions(root=str(kit.root)))
    return {name.removeprefix("it__") for name in tool_names} - {
        start.name.removeprefix("it__") for start in of(events, e.ExecutionStart)
    }


def texts(events: list[Envelope]) -> list[str]:
    return [result.result or f"ERROR {result.error}" for result in results(events)]


def own_children(name: str) -> list[int]:
    pids: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and name.encode() in (folder / "cmdline").read_bytes():
                pids.append(int(folder.name))
        except OSError:
            continue
    return pids


EACH: list[tuple[str, dict[str, Any], str]] = [
    ("echo", {"message": "hi"}, "Echo: hi"),
    ("get-annotated-message", {"messageType": "success", "includeImage": True}, "Operation completed"),
    ("get-env", {}, "PATH"),
    ("get-resource-links", {"count": 2}, "[the resource"),
    ("get-resource-reference", {"resourceType": "Text", "resourceId": 1}, "demo://resource"),
    ("get-structured-content", {"location": "New York"}, "temperature"),
    ("get-sum", {"a": 2, "b": 3}, "5"),
    ("get-tiny-image", {}, "[picture 1: image/png"),
    ("toggle-simulated-logging", {}, "logging"),
    ("toggle-subscriber-updates", {}, "updates"),
    ("trigger-long-running-operation", {"duration": 0.2, "steps": 2}, "completed"),
    ("get-roots-list", {}, "project"),
    ("gzip-file-as-resource", {"name": "a.gz", "data": "data:text/plain,hi", "outputType": "resource"}, "gzip"),
    ("trigger-elicitation-request", {}, "declined"),  # no person is there
    ("trigger-url-elicitation", {"url": "https://example.com/", "message": "Look."}, "declined"),
    ("simulate-research-query", {"topic": "looms"}, "requires task augmentation"),  # which is not spoken here
]


async def test_everything_over_standard_streams(kit: Kit) -> None:
    server = {"command": NODE, "args": [need(EVERYTHING), "stdio"]}
    events, _ = await run_calls(kit, server, [Call(f"it__{name}", **arguments) for name, arguments, _ in EACH])
    for (name, _, expected_text), text in zip(EACH, texts(events), strict=True):
        assert expected_text in text, f"{name}: {text}"
    assert find_unused_tools(kit, events) == set()
    assert len([image for result in results(events) for image in result.images]) == 2
    assert any("of 2" in output.text for output in of(events, e.ExecutionOutput))
    servers, root = kit.agents[0].mcp, str(kit.root)
    for prompt in await servers.prompts(root):
        prompt_arguments = dict(
            zip(prompt.arguments, ("Text", "1") if "resourceType" in prompt.arguments else ("a", "b"), strict=False)
        )
        assert (await servers.prompt("it", prompt.name, prompt_arguments, root)).text
    plain_resources = [each for each in await servers.resources(root) if not each.template]
    assert len(plain_resources) >= 5
    for resource in plain_resources:
        assert (await servers.resource(resource.mention, root)).text


async def test_everything_asks_a_person_and_the_model(kit: Kit) -> None:
    server = {"command": NODE, "args": [need(EVERYTHING), "stdio"], "sampling": "ask"}
    wishes = [Call("it__trigger-elicitation-request"), Call("it__trigger-sampling-request", prompt="Why?")]
    model = ScriptedModel([*wishes, Say("Done.")], side_answers={"sampling": "Because."})
    chat = kit.chat(kit.agent(model, {"it": server}), interactive=True)
    question = action(await collect_events(chat.send("Go.")))
    assert "\n  name: " in question.text
    events = await collect_events(chat.answer(question, json.dumps({"name": "Ada", "check": True})))
    assert "Ada" in texts(events)[0]
    wished = action(events)
    assert "Why?" in wished.text
    events = await collect_events(chat.answer(wished, "allow"))
    assert "Because." in texts(events)[0]
    assert [call.purpose for call in of(events, e.ModelCall)] == ["sampling"]


async def test_everything_over_http(kit: Kit, everything_url: str) -> None:
    calls = [Call("it__echo", message="far"), Call("it__trigger-long-running-operation", duration=0.2, steps=2)]
    events, _ = await run_calls(kit, {"url": everything_url}, calls)
    assert texts(events)[0] == "Echo: far"
    assert "completed" in texts(events)[1]


@pytest.fixture
def everything_url() -> Iterator[str]:
    script = need(EVERYTHING)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PORT": str(port)}
    server = subprocess.Popen([NODE, script, "streamableHttp"], env=environment, stderr=subprocess.PIPE)
    assert server.stderr is not None
    try:
        for line in server.stderr:
            if b"listening" in line:
                break
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.kill()
        server.wait()
        server.stderr.close()


async def test_the_files_of_a_project(kit: Kit) -> None:
    (kit.root / "a.txt").write_text("one\ntwo\n")
    (kit.root / "dot.png").write_bytes(PNG)
    root = str(kit.root)
    calls = [
        Call("it__list_allowed_directories"),
        Call("it__read_text_file", path=f"{root}/a.txt"),
        Call("it__write_file", path=f"{root}/b.txt", content="three\n"),
        Call("it__edit_file", path=f"{root}/b.txt", edits=[{"oldText": "three", "newText": "four"}]),
        Call("it__list_directory", path=root),
        Call("it__directory_tree", path=root),
        Call("it__search_files", path=root, pattern="*.txt"),
        Call("it__get_file_info", path=f"{root}/b.txt"),
        Call("it__move_file", source=f"{root}/b.txt", destination=f"{root}/c.txt"),
        Call("it__create_directory", path=f"{root}/d"),
        Call("it__read_multiple_files", paths=[f"{root}/a.txt", f"{root}/c.txt"]),
        Call("it__read_file", path=f"{root}/a.txt"),
        Call("it__read_media_file", path=f"{root}/dot.png"),
        Call("it__list_directory_with_sizes", path=root),
        Call("it__read_text_file", path="/etc/passwd"),
    ]
    events, _ = await run_calls(kit, {"command": NODE, "args": [need(FILES), root]}, calls)
    replies = texts(events)
    assert root in replies[0]
    assert replies[1] == "one\ntwo\n"
    assert [text.startswith("ERROR") for text in replies] == [False] * 14 + [True]
    assert find_unused_tools(kit, events) == set()
    assert (kit.root / "c.txt").read_text() == "four\n"


def repository(root: str) -> None:
    for command in (["init", "-q", "-b", "main"], ["config", "user.email", "a@b.c"], ["config", "user.name", "a"]):
        subprocess.run(["git", "-C", root, *command], check=True)
    Path(root, "a.txt").write_text("one\n")


async def test_a_repository(kit: Kit) -> None:
    root = str(kit.root)
    repository(root)
    calls = [
        Call("it__git_status", repo_path=root),
        Call("it__git_add", repo_path=root, files=["a.txt"]),
        Call("it__git_diff_staged", repo_path=root),
        Call("it__git_commit", repo_path=root, message="first"),
        Call("it__git_log", repo_path=root),
        Call("it__git_create_branch", repo_path=root, branch_name="next"),
        Call("it__git_checkout", repo_path=root, branch_name="next"),
        Call("it__git_branch", repo_path=root, branch_type="local"),
        Call("it__git_show", repo_path=root, revision="HEAD"),
        Call("it__git_diff_unstaged", repo_path=root),
        Call("it__git_diff", repo_path=root, target="main"),
        Call("it__git_reset", repo_path=root),
    ]
    server = {"command": need(BIN / "mcp-server-git"), "accept_hints": True}
    events, _ = await run_calls(kit, server, calls)
    assert [text.startswith("ERROR") for text in texts(events)] == [False] * len(calls), texts(events)
    assert "first" in texts(events)[4]
    assert find_unused_tools(kit, events) == set()
    reads = [start.read_only for start in of(events, e.ExecutionStart)]
    assert reads[:4] == [True, False, True, False]  # by the hints that were accepted


async def test_the_time_and_a_kill_in_the_middle(kit: Kit) -> None:
    calls = [
        Call("it__get_current_time", timezone="Europe/Berlin"),
        Call("it__convert_time", source_timezone="Europe/Berlin", time="12:00", target_timezone="Asia/Tokyo"),
        Call("it__get_current_time", timezone="No/Where"),
    ]
    events, chat = await run_calls(kit, {"command": need(BIN / "mcp-server-time")}, calls)
    assert find_unused_tools(kit, events) == set()
    now, converted, wrong = texts(events)
    assert "Europe/Berlin" in now
    assert "Asia/Tokyo" in converted
    assert wrong.startswith("ERROR")
    connection, _ = await kit.agents[0].mcp.hub.connect_server("it", str(kit.root))
    old_restarts = connection.restarts
    for pid in own_children("mcp-server-time"):
        os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        while connection.restarts == old_restarts:  # noqa: ASYNC110 - another process dies
            await asyncio.sleep(0.05)
    await connection.ensure_client()  # it is there again
    assert (await chat.status()) == "idle"
