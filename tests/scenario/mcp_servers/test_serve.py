"""Treadle as an MCP server (E-01, E-09): the SDK's own client hands over a task, follows it, answers and undoes; and
a task outlives the server that began it."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lazily import lazily
from tests.scenario.mcp_servers.kit import Kit
from treadle.adapters.models.scripted import Call, Say

pytestmark = pytest.mark.thorough(one_of=8)

mcp, types, serving = lazily("mcp"), lazily("mcp_types"), lazily("treadle.frontends.mcp_server.server")
ROUNDS = 40


async def call_tool(client: Any, name: str, **arguments: Any) -> Any:
    result = await client.call_tool(name, arguments)
    assert isinstance(result, types.CallToolResult)
    assert not result.is_error, result.content
    content = result.structured_content or {}
    return content.get("result", content)


async def quiet(client: Any, task: str) -> Any:
    """Follow a task until it is idle or waits."""
    news_lines: list[str] = []
    position = 0
    for _ in range(ROUNDS):
        news = await call_tool(client, "follow_task", task=task, after=position, wait_s=30)
        news_lines += news["news"]
        position = news["after"]
        if news["status"] not in ("pending", "running", "interrupting"):
            return {**news, "news": news_lines}
    raise AssertionError(f"it never ends: {news_lines}")


async def test_a_task_is_handed_over_followed_answered_and_undone(kit: Kit) -> None:
    steps = [
        Call("write_file", path="hello.txt", content="hello\n"),
        Call("ask_user", question="Which one?", options=["a", "b"]),
        Call("run_command", command="sudo true"),
        Say("All done."),
    ]
    agent = kit.agent(steps, {})
    async with mcp.Client(serving.TaskTools(agent, [str(kit.root)]).make_server()) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names[:3] == ["start_task", "follow_task", "list_tasks"]
        task = (await call_tool(client, "start_task", prompt="Say hello.", mode="confirm"))["task"]
        news = await quiet(client, task)
        permission = news["actions"][0]
        assert (news["status"], permission["kind"], permission["tool"]) == (
            "requires_action",
            "permission",
            "write_file",
        )
        wrong = await client.call_tool(
            "decide", {"task": task, "action": permission["action"], "decision": "allow", "hash": "x"}
        )
        assert wrong.is_error  # only what was shown
        await call_tool(
            client, "decide", task=task, action=permission["action"], decision="allow", hash=permission["hash"]
        )
        question = (await quiet(client, task))["actions"][0]
        assert question["options"] == ["a", "b"]
        await call_tool(client, "answer", task=task, action=question["action"], text="b")
        command = (await quiet(client, task))["actions"][0]
        await call_tool(
            client, "decide", task=task, action=command["action"], decision="deny", hash=command["hash"], feedback="No."
        )
        news = await quiet(client, task)
        assert (news["status"], news["answer"]) == ("idle", "All done.")
        assert any(line.startswith("changed hello.txt (+1 -0)") for line in news["news"])
        changes = await call_tool(client, "task_changes", task=task)
        assert [(change["path"], change["action"]) for change in changes] == [("hello.txt", "created")]
        assert "+hello" in changes[0]["diff"]
        assert (await call_tool(client, "undo_task", task=task))["undone"] == ["hello.txt"]
        assert not (kit.root / "hello.txt").exists()
        assert [each["task"] for each in await call_tool(client, "list_tasks")] == [task]


async def test_it_works_only_in_its_own_project(kit: Kit) -> None:
    kit.replayed = False
    agent = kit.agent([Say("x")], {})
    elsewhere = await agent.chat(root=kit.folder).open()
    async with mcp.Client(serving.TaskTools(agent, [str(kit.root)]).make_server()) as client:
        for arguments in ({"root": ".."}, {"root": "/"}, {"mode": "yolo"}):
            assert (await client.call_tool("start_task", {"prompt": "x", **arguments})).is_error
        assert await call_tool(client, "list_tasks") == []
        for task in ("c_nope", elsewhere.id):
            result = await client.call_tool("follow_task", {"task": task})
            assert result.is_error


@pytest.mark.thorough(one_of=8)
@pytest.mark.slow
async def test_a_task_outlives_the_server_that_began_it(kit: Kit, tmp_path: Path) -> None:  # D-01
    kit.replayed = False
    script = tmp_path / "model.sh"
    script.write_text('#!/bin/sh\ncat > /dev/null\nif [ -e "$0.go" ]; then echo done; else sleep 600; fi\n')
    script.chmod(0o755)
    environment = {"TREADLE_HOME": str(kit.home), "TREADLE_COMMAND_SLOW": str(script), "TREADLE_CONSENT": "command"}
    arguments = ["-m", "treadle", "mcp", "serve", "--root", str(kit.root), "--model", "command:slow"]
    server = mcp.StdioServerParameters(command=sys.executable, args=arguments, env=environment)
    async with mcp.Client(server) as client:
        task = (await call_tool(client, "start_task", prompt="Say it."))["task"]
        news = await call_tool(client, "follow_task", task=task, wait_s=0)
        assert news["status"] in ("pending", "running")
    (tmp_path / "model.sh.go").touch()
    async with mcp.Client(server) as client:
        news = await quiet(client, task)
        assert (news["status"], news["answer"].strip()) == ("idle", "done")
