"""Extensions by a program for one session of `treadle copilot`: MCP servers, skills, custom agents (issue 15, item
4). With real servers and files, through JSON-RPC as the SDKs frame it."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.command_line import CommandLine
from tests.scenario.copilot_kit import ErrorAnswer, Program, Start, talk, turns
from tests.scenario.mcp_servers.kit import ODD

pytestmark = pytest.mark.thorough(one_of=8)

APPROVE = {"requestPermission": True}


@pytest.fixture
def odd(tmp_path: Path) -> dict[str, Any]:
    return {"type": "local", "command": sys.executable, "args": ["-S", ODD, str(tmp_path / "notes")], "tools": ["*"]}


def skill(folder: Path, name: str, body: str) -> str:
    """Write a skill; the folder of skills."""
    (folder / name).mkdir(parents=True)
    (folder / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: About {name}.\n---\n{body}\n")
    return str(folder)


async def state_of(program: Program, server: str, expected_state: str) -> None:
    """Wait until a server of s1 is there."""
    while True:
        listed = (await program.call("session.mcp.list", {"sessionId": "s1"}))["servers"]
        if {each["name"]: each["status"] for each in listed}.get(server) == expected_state:
            return


async def approve(program: Program) -> dict[str, Any]:
    """Allow the next call and return its permission request."""
    request: dict[str, Any] = (await program.wait_for_event("permission.requested"))["data"]
    decision = {"sessionId": "s1", "requestId": request["requestId"], "result": {"kind": "approve-once"}}
    assert await program.call("session.permissions.handlePendingPermissionRequest", decision) == {"success": True}
    permission: dict[str, Any] = request["permissionRequest"]
    return permission


async def test_a_server_of_the_session_is_used_after_an_approval(  # E-01
    start: Start, odd: dict[str, Any], tmp_path: Path
) -> None:
    program = await start(turns(("odd__note", {"text": "by the model"})))
    await program.call("session.create", {"sessionId": "s1", **APPROVE, "mcpServers": {"odd": odd}})
    await state_of(program, "odd", "connected")
    tools = (await program.call("session.mcp.listTools", {"sessionId": "s1", "serverName": "odd"}))["tools"]
    assert {"name": "note", "description": "Write a note."} in tools
    await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    permission = await approve(program)
    assert (permission["kind"], permission["serverName"], permission["toolName"]) == ("mcp", "odd", "note")
    assert permission["args"] == {"text": "by the model"}
    await program.wait_for_event("session.idle")
    assert "by the model" in (tmp_path / "notes").read_text()


async def test_a_hook_says_what_a_server_is_told_beside_the_arguments(start: Start, odd: dict[str, Any]) -> None:
    program = await start(turns(("odd__trace", {})))
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    program.answers["hooks.invoke"] = lambda request: {
        "output": {"metaToUse": {"traceparent": trace}} if request["hookType"] == "preMcpToolCall" else None
    }
    await program.call("session.create", {"sessionId": "s1", **APPROVE, "hooks": True, "mcpServers": {"odd": odd}})
    await state_of(program, "odd", "connected")
    await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    await approve(program)
    completion = await program.wait_for_event("tool.execution_complete")
    assert completion["data"]["result"]["content"] == trace
    hook_input = next(params["input"] for _, params in program.asked if params["hookType"] == "preMcpToolCall")
    assert (hook_input["serverName"], hook_input["toolName"], hook_input["arguments"]) == ("odd", "trace", {})


async def test_servers_of_one_session_are_no_other_sessions(start: Start, odd: dict[str, Any]) -> None:
    program = await start(turns(("odd__note", {"text": "x"})))
    await program.call("session.create", {"sessionId": "s1", "mcpServers": {"odd": odd}})
    answer = await talk(program, "s2")
    assert (await program.call("session.mcp.list", {"sessionId": "s2"}))["servers"] == []
    completion = await program.wait_for_event("tool.execution_complete")
    assert completion["data"]["success"] is False
    assert answer["response"]["data"]["content"] == "Done."


async def test_a_server_is_stopped_and_started_again(start: Start, odd: dict[str, Any]) -> None:
    program = await start(turns())
    await program.call("session.create", {"sessionId": "s1", "mcpServers": {"odd": odd}})
    await state_of(program, "odd", "connected")
    server_params = {"sessionId": "s1", "serverName": "odd"}
    await program.call("session.mcp.stopServer", server_params)
    assert await program.call("session.mcp.isServerRunning", server_params) == {"running": False}
    await program.call("session.mcp.startServer", server_params)
    await state_of(program, "odd", "connected")


async def test_a_server_that_does_not_start_is_told(start: Start) -> None:
    program = await start(turns())
    await program.call("session.create", {"sessionId": "s1", "mcpServers": {"no": {"command": "/nowhere/at/all"}}})
    await state_of(program, "no", "failed")


@pytest.mark.parametrize(
    "config",
    [
        {"availableTools": ["view"]},
        {"excludedTools": ["mcp:*"]},
        {"excludedTools": ["odd-note"]},
        {"availableTools": ["mcp:odd-look"]},
    ],
)
async def test_filters_of_tools_hold_for_servers(start: Start, odd: dict[str, Any], config: dict[str, Any]) -> None:
    program = await start(turns(("odd__note", {"text": "x"})))
    await talk(program, **config, mcpServers={"odd": odd})
    assert (await program.wait_for_event("tool.execution_complete"))["data"]["success"] is False
    assert "permission.requested" not in [event["type"] for event in program.events]


async def test_whoever_resumes_brings_the_servers_again(cli: CommandLine, odd: dict[str, Any], tmp_path: Path) -> None:
    """After the runtime was killed (D-01)."""
    model = cli.script(turns(("odd__note", {"text": "after"})))
    first = await Program.start(cli, model)
    await first.call("session.create", {"sessionId": "s1", **APPROVE, "mcpServers": {"odd": odd}})
    await state_of(first, "odd", "connected")
    assert first.process is not None
    first.process.kill()
    await first.close()
    second = await Program.start(cli, model)
    await second.call("session.resume", {"sessionId": "s1", **APPROVE, "mcpServers": {"odd": odd}})
    await second.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    await approve(second)
    await second.wait_for_event("session.idle")
    await second.close()
    assert "after" in (tmp_path / "notes").read_text()


async def test_a_skill_of_the_session(start: Start, tmp_path: Path) -> None:  # E-03
    folder = skill(tmp_path / "skills", "greeting", "Say PINEAPPLE.")
    program = await start(turns(("use_skill", {"name": "greeting"})))
    await talk(program, skillDirectories=[folder])
    start_event = await program.wait_for_event("tool.execution_start")
    assert (start_event["data"]["toolName"], start_event["data"]["arguments"]) == ("skill", {"skill": "greeting"})
    assert "PINEAPPLE" in (await program.wait_for_event("tool.execution_complete"))["data"]["result"]["content"]
    [invoked_skill] = (await program.call("session.skills.getInvoked", {"sessionId": "s1"}))["skills"]
    assert (invoked_skill["name"], invoked_skill["invokedAtTurn"]) == ("greeting", 1)


async def test_skills_are_listed_toggled_and_read_again(start: Start, tmp_path: Path) -> None:
    folder = skill(tmp_path / "skills", "one", "1")
    program = await start(turns())
    await program.call("session.create", {"sessionId": "s1", "skillDirectories": [folder], "disabledSkills": ["one"]})

    async def list_skills() -> dict[str, bool]:
        skills = (await program.call("session.skills.list", {"sessionId": "s1"}))["skills"]
        assert all(each["source"] == "custom" and each["path"].endswith("SKILL.md") for each in skills)
        return {each["name"]: each["enabled"] for each in skills}

    assert await list_skills() == {"one": False}
    await program.call("session.skills.enable", {"sessionId": "s1", "name": "one"})
    assert await list_skills() == {"one": True}
    skill(tmp_path / "skills", "two", "2")
    assert await program.call("session.skills.reload", {"sessionId": "s1"}) == {"warnings": [], "errors": []}
    await program.call("session.skills.disable", {"sessionId": "s1", "name": "one"})
    assert await list_skills() == {"one": False, "two": True}


async def test_an_agent_has_the_skills_that_it_names(start: Start, tmp_path: Path) -> None:
    folder = skill(tmp_path / "skills", "greeting", "Say PINEAPPLE.")
    program = await start(turns(("use_skill", {"name": "greeting"})))
    agents = [{"name": "greeter", "prompt": "Greet.", "skills": ["greeting"]}, {"name": "bare", "prompt": "Work."}]
    await talk(program, skillDirectories=[folder], customAgents=agents, agent="bare")
    assert (await program.wait_for_event("tool.execution_complete"))["data"]["success"] is False
    selection = await program.call("session.agent.select", {"sessionId": "s1", "name": "greeter"})
    assert selection["agent"]["skills"] == ["greeting"]


async def test_a_session_that_is_there_keeps_its_servers(start: Start, odd: dict[str, Any]) -> None:
    program = await start(turns())
    await program.call("session.create", {"sessionId": "s1", "mcpServers": {"odd": odd}})
    with pytest.raises(ErrorAnswer, match="already"):
        await program.call("session.create", {"sessionId": "s1", "mcpServers": {"other": odd}})
    await state_of(program, "odd", "connected")
