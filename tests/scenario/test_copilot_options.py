"""Options of the Copilot SDKs act, or are refused with a reason; results and events arrive as what they are (E-08)."""

import json
from typing import Any

import pytest

from tests.scenario.command_line import CommandLine
from tests.scenario.copilot_kit import ErrorAnswer, Program, Start, talk, turns

pytestmark = pytest.mark.thorough(one_of=8)

TOOL = {"name": "lookup", "description": "Looks up.", "parameters": {"type": "object"}, "skipPermission": True}


async def test_a_session_with_limits_in_credits_is_refused(start: Start) -> None:
    program = await start(turns())
    with pytest.raises(ErrorAnswer, match=r"AI credits.*chat_budget.*sessionLimits"):
        await program.call("session.create", {"sessionId": "s1", "sessionLimits": {"maxAiCredits": 5}})


async def test_headers_of_one_message_are_refused(start: Start) -> None:
    program = await start(turns())
    await program.call("session.create", {"sessionId": "s1"})
    with pytest.raises(ErrorAnswer, match=r"requestHeaders.*provider"):
        await program.call("session.send", {"sessionId": "s1", "prompt": "Go.", "requestHeaders": {"x": "y"}})
    assert "user.message" not in program.types


async def test_a_message_has_the_mode_that_it_names(start: Start) -> None:
    program = await start(turns())
    await program.call("session.create", {"sessionId": "s1"})
    with pytest.raises(ErrorAnswer, match="no mode 'shell'"):
        await program.call("session.send", {"sessionId": "s1", "prompt": "Go.", "agentMode": "shell"})
    await program.call("session.sendAndWait", {"sessionId": "s1", "prompt": "Go.", "agentMode": "plan"})
    assert (await program.wait_for_event("session.mode_changed"))["data"]["newMode"] == "plan"
    assert await program.call("session.mode.get", {"sessionId": "s1"}) == "plan"


async def test_folders_of_instructions_are_read_and_the_program_is_named(start: Start, cli: CommandLine) -> None:
    folder = cli.folder / "ways"
    folder.mkdir()
    (folder / "AGENTS.md").write_text("Use tabs.")
    (folder / "tests.instructions.md").write_text("Test it.")
    (folder / "secret.txt").write_text("not for models")
    (cli.project / "AGENTS.md").write_text("Use spaces.")
    program = await start(turns())
    config = {"instructionDirectories": [str(folder), "/no/such/folder"], "clientName": "my\x1b app"}
    await talk(program, **config)
    (created,) = cli("export", "s1").of("session.created")
    text = json.dumps(created)
    places = [text.index(words) for words in ("Use tabs.", "Test it.", "Use spaces.")]
    assert places == sorted(places)
    assert "not for models" not in text
    assert "client:my" in text


@pytest.mark.parametrize("kind", ["rejected", "denied", "timeout", "failure"])
async def test_the_type_of_a_result_arrives(start: Start, kind: str) -> None:
    program = await start(turns(("lookup", {})))
    await program.call("session.create", {"sessionId": "s1", "tools": [TOOL]})
    await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    request = (await program.wait_for_event("external_tool.requested"))["data"]["requestId"]
    result = {"textResultForLlm": "no", "resultType": kind}
    answer = {"sessionId": "s1", "requestId": request, "result": result}
    assert await program.call("session.tools.handlePendingToolCall", answer) == {"success": True}
    completion = await program.wait_for_event("tool.execution_complete")
    assert completion["data"]["error"] == {"message": "no", "code": kind}


async def asked_by_hook(program: Program, **config: Any) -> dict[str, Any]:
    """The approval that a hook wants for a call that would pass without one."""
    program.answers["hooks.invoke"] = lambda request: {
        "output": {"permissionDecision": "ask"} if request["hookType"] == "preToolUse" else None
    }
    await program.call("session.create", {"sessionId": "s1", "hooks": True, **config})
    await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    return dict((await program.wait_for_event("permission.requested"))["data"])


@pytest.mark.parametrize(("decision", "success"), [("approve-once", True), ("reject", False)])
async def test_a_hook_that_asks_adds_a_question_for_built_in_tools(
    start: Start, cli: CommandLine, decision: str, success: bool
) -> None:  # E-03
    (cli.project / "a.txt").write_text("content")
    program = await start(turns(("read_file", {"path": "a.txt"})))
    request = await asked_by_hook(program)
    answer = {"sessionId": "s1", "requestId": request["requestId"], "result": {"kind": decision}}
    await program.call("session.permissions.handlePendingPermissionRequest", answer)
    completion = await program.wait_for_event("tool.execution_complete")
    assert completion["data"]["success"] == success
    await program.wait_for_event("session.idle")
    assert len([event for event in program.events if event["type"] == "permission.requested"]) == 1


async def test_hooks_are_wanted_after_a_restart_too(start: Start, cli: CommandLine) -> None:  # E-03
    (cli.project / "a.txt").write_text("private")
    program = await start(turns(("read_file", {"path": "a.txt"})))
    program.answers["hooks.invoke"] = {"output": None}
    await program.call("session.create", {"sessionId": "s1", "hooks": True})
    await program.close()
    second_program = await start(turns(("read_file", {"path": "a.txt"})))
    await second_program.call("session.resume", {"sessionId": "s1"})
    with pytest.raises(ErrorAnswer, match="not connected"):
        await second_program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    assert "tool.execution_start" not in second_program.types
