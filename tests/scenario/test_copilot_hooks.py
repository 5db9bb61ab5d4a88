"""Hooks of programs that leave, fail or answer nonsense: nothing passes unchecked (E-03, E-08, fault 38)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.scenario.command_line import CommandLine, end
from tests.scenario.copilot_kit import ErrorAnswer, Program, Start, turns

pytestmark = pytest.mark.thorough(one_of=8)

WRITE = ("write_file", {"path": "a.txt", "content": "1"})


def answering(kind: str, answer: Any) -> Callable[[dict[str, Any]], Any]:
    """Answers one kind of hook; the others have no opinion."""
    return lambda request: answer if request["hookType"] == kind else {"output": None}


async def tool_error(program: Program) -> str:
    await program.wait_for_event("session.idle")
    completion = await program.wait_for_event("tool.execution_complete")
    return str(completion["data"]["error"]["message"])


async def test_a_program_that_disconnects_in_its_hook_has_allowed_nothing(cli: CommandLine) -> None:
    (cli.project / "a.txt").write_text("private")
    server = cli.start(
        "copilot",
        "--model",
        cli.script(turns(("read_file", {"path": "a.txt"}))),
        env={"COPILOT_CONNECTION_TOKEN": "sesame"},
    )
    assert server.stdout is not None
    port = int((await asyncio.to_thread(server.stdout.readline)).split()[-1])
    watcher, checker = await Program.reach(port), await Program.reach(port)
    for program in (watcher, checker):
        await program.call("connect", {"token": "sesame"})
    await watcher.call("session.create", {"sessionId": "s1"})
    await watcher.call("session.create", {"sessionId": "s2"})
    await checker.call("session.resume", {"sessionId": "s1", "hooks": True})
    await checker.call("session.resume", {"sessionId": "s2"})

    def leave(request: dict[str, Any]) -> Any:
        if request["hookType"] == "preToolUse":
            checker.hang_up()
        return {"output": None}

    checker.answers["hooks.invoke"] = leave
    await watcher.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    assert "gave no valid answer" in await tool_error(watcher)
    await watcher.call("runtime.shutdown", {})
    assert (await asyncio.to_thread(end, server)).code == 0
    await watcher.close()


@pytest.mark.parametrize(
    "answer",
    [
        "nonsense",
        {"output": ["deny"]},
        {"output": {"permissionDecision": "Deny"}},
        {"output": {"modifiedArgs": "a.txt"}},
    ],
)
async def test_an_answer_that_cannot_be_understood_allows_nothing(start: Start, cli: CommandLine, answer: Any) -> None:
    program = await start(turns(WRITE))
    program.answers["hooks.invoke"] = answering("preToolUse", answer)
    await program.call("session.create", {"sessionId": "s1", "hooks": True})
    await program.call("session.permissions.setApproveAll", {"sessionId": "s1", "enabled": True})
    await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    assert "no valid answer" in await tool_error(program)
    assert not (cli.project / "a.txt").exists()


async def test_a_hook_that_answers_with_an_error_allows_nothing(start: Start, cli: CommandLine) -> None:
    program = await start(turns(WRITE))
    program.answers["hooks.invoke"] = answering("preToolUse", ErrorAnswer({"code": -32603, "message": "broken"}))
    await program.call("session.create", {"sessionId": "s1", "hooks": True})
    await program.call("session.permissions.setApproveAll", {"sessionId": "s1", "enabled": True})
    await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    assert "no valid answer" in await tool_error(program)
    assert not (cli.project / "a.txt").exists()


async def test_a_message_that_was_not_checked_is_not_sent(start: Start) -> None:
    program = await start(turns())
    program.answers["hooks.invoke"] = answering(
        "userPromptSubmitted", ErrorAnswer({"code": -32603, "message": "broken"})
    )
    await program.call("session.create", {"sessionId": "s1", "hooks": True})
    with pytest.raises(ErrorAnswer, match="no valid answer"):
        await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    assert "user.message" not in program.types


async def test_a_failed_hook_after_a_call_is_reported(start: Start, cli: CommandLine) -> None:
    program = await start(turns(WRITE))
    program.answers["hooks.invoke"] = answering("postToolUse", "nonsense")
    await program.call("session.create", {"sessionId": "s1", "hooks": True})
    await program.call("session.permissions.setApproveAll", {"sessionId": "s1", "enabled": True})
    await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    await program.wait_for_event("session.idle")
    completion = await program.wait_for_event("tool.execution_complete")
    assert "hook postToolUse gave no valid answer" in completion["data"]["result"]["content"]
    assert (cli.project / "a.txt").read_text() == "1"


async def test_a_hook_that_wants_a_person_to_be_asked_is_heard_for_tools_of_programs(start: Start) -> None:
    program = await start(turns(("lookup", {})))
    program.answers["hooks.invoke"] = answering("preToolUse", {"output": {"permissionDecision": "ask"}})
    tool = {"name": "lookup", "description": "Looks up.", "parameters": {"type": "object"}, "skipPermission": True}
    await program.call("session.create", {"sessionId": "s1", "hooks": True, "tools": [tool]})
    await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    await program.wait_for_event("permission.requested")
    assert "external_tool.requested" not in program.types


async def test_each_program_is_asked_about_what_the_one_before_it_left(cli: CommandLine) -> None:
    for name in ("a.txt", "b.txt"):
        (cli.project / name).write_text(name)
    model = cli.script(turns(("read_file", {"path": "a.txt"})))
    server = cli.start("copilot", "--model", model, env={"COPILOT_CONNECTION_TOKEN": "sesame"})
    assert server.stdout is not None
    port = int((await asyncio.to_thread(server.stdout.readline)).split()[-1])
    first, second = await Program.reach(port), await Program.reach(port)
    for program in (first, second):
        await program.call("connect", {"token": "sesame"})
    first.answers["hooks.invoke"] = answering("preToolUse", {"output": {"modifiedArgs": {"path": "b.txt"}}})
    await first.call("session.create", {"sessionId": "s1", "hooks": True})
    await second.call("session.resume", {"sessionId": "s1", "hooks": True})
    await first.call("session.sendAndWait", {"sessionId": "s1", "prompt": "Go."})
    hook_inputs = [params["input"] for _, params in second.asked if params.get("hookType") == "preToolUse"]
    assert [each["toolArgs"] for each in hook_inputs] == [{"path": "b.txt"}]
    await first.call("runtime.shutdown", {})
    assert (await asyncio.to_thread(end, server)).code == 0
    await first.close()
    await second.close()
