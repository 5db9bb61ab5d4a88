"""The JSON-RPC surface of `treadle copilot` (issue 15, item 4), without any SDK: requests and replies, byte by
byte as the SDKs frame them. The published SDKs themselves are in `tests/conformance/test_copilot_sdk.py`."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.command_line import CommandLine, end
from tests.scenario.copilot_kit import ErrorAnswer, Program, Start, talk, turns
from treadle.frontends.copilot.methods import Method
from treadle.frontends.copilot.server import Runtime
from treadle.frontends.copilot.session import MOST_HELD
from treadle.frontends.copilot_words.names import RUNTIME, SESSION

pytestmark = pytest.mark.thorough(one_of=8)

TOOL = {"name": "lookup", "description": "Looks up.", "parameters": {"type": "object"}}


def test_every_method_is_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/copilot-sdk.md").read_text()
    assert not [method for method in (*RUNTIME, *SESSION) if f"`{method}`" not in page]


def test_every_method_is_answered() -> None:
    assert not [name for name in RUNTIME.values() if not callable(getattr(Runtime, name, None))]
    assert not [name for name in SESSION.values() if not callable(getattr(Method, name, None))]


async def test_the_runtime_says_what_it_is(start: Start) -> None:
    program = await start(turns())
    assert (await program.call("connect", {"token": "any"}))["protocolVersion"] == 3
    pong = await program.call("ping", {"message": "hi"})
    assert (pong["message"], pong["protocolVersion"]) == ("pong: hi", 3)
    assert (await program.call("status.get", {}))["protocolVersion"] == 3
    assert (await program.call("auth.getStatus", {}))["isAuthenticated"] is True
    models = (await program.call("models.list", {}))["models"]
    assert models[0]["capabilities"]["limits"]["max_context_window_tokens"] == 200_000
    assert "bash" in [tool["name"] for tool in (await program.call("tools.list", {}))["tools"]]


async def test_what_is_not_there_is_refused_and_changes_nothing(start: Start) -> None:
    program = await start(turns())
    with pytest.raises(ErrorAnswer, match=r"session\.fleet\.start") as refused:
        await program.call("session.fleet.start", {"sessionId": "s"})
    assert refused.value.code == -32601
    for config, words in [
        ({"mcpServers": {"x": {"command": "y", "url": "http://z"}}}, "either a command or a URL"),
        ({"cloud": {}, "canvases": [{}]}, "canvases"),
        ({"sessionId": "../up"}, "sessionId"),
        ({"tools": [{"no": "name"}]}, "does not fit"),
        ({"agent": "nobody"}, "no custom agent"),
        ({"workingDirectory": "/nowhere/at/all"}, "no folder"),
    ]:
        with pytest.raises(ErrorAnswer, match=words) as refused:
            await program.call("session.create", {"sessionId": "s", **config})
        assert refused.value.code == -32602
    with pytest.raises(ErrorAnswer, match="Session not found"):
        await program.call("session.resume", {"sessionId": "s"})
    assert (await program.call("session.list", {}))["sessions"] == []


async def test_a_pipe_is_no_attachment(start: Start, cli: CommandLine) -> None:
    """It would be read for ever (fault 19)."""
    os.mkfifo(cli.project / "x.png")
    program = await start(turns())
    await program.call("session.create", {"sessionId": "s", "workingDirectory": str(cli.project)})
    for path, words in (
        ("x.png", "no ordinary file"),
        ("a\0.png", "cannot be read"),
        ("missing.png", "cannot be read"),
    ):
        attachments = [{"type": "file", "path": path}]
        with pytest.raises(ErrorAnswer, match=words):
            await program.call("session.send", {"sessionId": "s", "prompt": "Look.", "attachments": attachments})


async def test_a_session_id_is_used_once(start: Start) -> None:
    program = await start(turns())
    await program.call("session.create", {"sessionId": "mine"})
    with pytest.raises(ErrorAnswer, match="already"):
        await program.call("session.create", {"sessionId": "mine"})


async def test_an_answer_and_its_events(start: Start) -> None:
    program = await start(turns(last="Hello."))
    answer = await talk(program, streaming=True)
    assert answer["response"]["data"]["content"] == "Hello."
    assert answer["aborted"] is False
    assert program.types == [
        "session.start",
        "user.message",
        "assistant.turn_start",
        "assistant.message",
        "assistant.turn_end",
    ]
    read = (await program.call("session.getMessages", {"sessionId": "s1"}))["events"]
    assert read == [event for event in program.events if not event.get("ephemeral")]
    user_message = next(event for event in read if event["type"] == "user.message")
    assert user_message["data"]["messageId"] == answer["messageId"]
    delta = await program.wait_for_event("assistant.message_delta")
    assert delta["data"]["messageId"] == answer["response"]["data"]["messageId"]
    assert "session.created" in program.lifecycle


async def test_a_client_that_wants_no_pieces_gets_none(start: Start) -> None:
    program = await start(turns())
    await talk(program)
    assert not [event for event in program.events if event["type"].endswith("_delta")]


async def test_a_tool_of_the_program_is_asked_for_after_its_approval(start: Start) -> None:
    program = await start(turns(("lookup", {"key": "A"})))
    await program.call("session.create", {"sessionId": "s1", "tools": [TOOL]})
    await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    request = (await program.wait_for_event("permission.requested"))["data"]
    assert request["permissionRequest"]["kind"] == "custom-tool"
    assert request["permissionRequest"]["args"] == {"key": "A"}
    decision = {"sessionId": "s1", "requestId": request["requestId"], "result": {"kind": "approve-once"}}
    decide = "session.permissions.handlePendingPermissionRequest"
    assert await program.call(decide, decision) == {"success": True}
    assert await program.call(decide, decision) == {"success": False}  # once
    tool_request = (await program.wait_for_event("external_tool.requested"))["data"]
    assert (tool_request["toolName"], tool_request["arguments"]) == ("lookup", {"key": "A"})
    result = {"sessionId": "s1", "requestId": tool_request["requestId"], "result": {"textResultForLlm": "42"}}
    submit = "session.tools.handlePendingToolCall"
    assert await program.call(submit, result) == {"success": True}
    completion = await program.wait_for_event("tool.execution_complete")
    assert completion["data"]["result"]["content"] == "42"
    await program.wait_for_event("session.idle")
    assert await program.call(submit, result) == {"success": False}


async def test_what_an_exception_said_does_not_reach_the_model(start: Start) -> None:
    program = await start(turns(("lookup", {})))
    await program.call("session.create", {"sessionId": "s1", "tools": [TOOL | {"skipPermission": True}]})
    await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    tool_request = (await program.wait_for_event("external_tool.requested"))["data"]
    failure = {"sessionId": "s1", "requestId": tool_request["requestId"], "error": "the password is swordfish"}
    await program.call("session.tools.handlePendingToolCall", failure)
    completion = await program.wait_for_event("tool.execution_complete")
    assert completion["data"]["success"] is False
    assert "swordfish" not in json.dumps(completion)


async def test_an_approval_for_the_session_is_not_asked_for_again(start: Start, cli: CommandLine) -> None:  # S-07
    write = ("write_file", {"path": "a.txt", "content": "1"})
    program = await start(turns(write, ("write_file", {"path": "a.txt", "content": "2"})))
    await program.call("session.create", {"sessionId": "s1", "requestPermission": True})
    await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    request = (await program.wait_for_event("permission.requested"))["data"]
    assert request["permissionRequest"]["kind"] == "write"
    assert request["permissionRequest"]["diff"].startswith("--- ")
    decision = {"sessionId": "s1", "requestId": request["requestId"], "result": {"kind": "approve-for-session"}}
    await program.call("session.permissions.handlePendingPermissionRequest", decision)
    await program.wait_for_event("session.idle")
    assert (cli.project / "a.txt").read_text() == "2"
    assert len([event for event in program.events if event["type"] == "permission.requested"]) == 1


async def test_a_program_that_is_asked_is_asked_for_every_command(start: Start) -> None:  # S-07
    look = ("run_command", {"command": "ls"})
    program = await start(turns(look, look))
    await program.call("session.create", {"sessionId": "s1", "requestPermission": True})
    await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    request = (await program.wait_for_event("permission.requested"))["data"]
    shell = request["permissionRequest"]
    assert (shell["kind"], shell["fullCommandText"], shell["commands"][0]["readOnly"]) == ("shell", "ls", True)
    decision = {"sessionId": "s1", "requestId": request["requestId"], "result": {"kind": "approve-for-session"}}
    await program.call("session.permissions.handlePendingPermissionRequest", decision)
    await program.wait_for_event("session.idle")
    assert len([event for event in program.events if event["type"] == "permission.requested"]) == 1
    unasked = await talk(program, "s2", requestPermission=False)
    assert unasked["response"]["data"]["content"] == "Done."


async def test_a_refusal_without_a_word_ends_the_run(start: Start, cli: CommandLine) -> None:
    program = await start(turns(("write_file", {"path": "a.txt", "content": "1"}), last="Never said."))
    await program.call("session.create", {"sessionId": "s1", "requestPermission": True})
    await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    request = (await program.wait_for_event("permission.requested"))["data"]
    decision = {"sessionId": "s1", "requestId": request["requestId"], "result": {"kind": "reject"}}
    await program.call("session.permissions.handlePendingPermissionRequest", decision)
    idle = await program.wait_for_event("session.idle")
    completion = await program.wait_for_event("tool.execution_complete")
    assert "user rejected" in completion["data"]["error"]["message"]
    assert idle["data"] == {"aborted": True}
    assert not (cli.project / "a.txt").exists()


async def test_a_session_is_forked_whole_or_before_an_event(start: Start) -> None:  # D-07
    program = await start(turns(last="One.") + turns(last="Two.") + turns(last="Three."))
    await talk(program)
    await program.call("session.sendAndWait", {"sessionId": "s1", "prompt": "Again."})
    old_events = (await program.call("session.getMessages", {"sessionId": "s1"}))["events"]
    second = [event["id"] for event in old_events if event["type"] == "user.message"][1]
    for upto, expected_messages in ((None, ["Go.", "Again."]), (second, ["Go."])):
        fork = await program.call("sessions.fork", {"sessionId": "s1", **({"toEventId": upto} if upto else {})})
        await program.call("session.resume", {"sessionId": fork["sessionId"]})
        events = (await program.call("session.getMessages", {"sessionId": fork["sessionId"]}))["events"]
        assert [event["data"]["content"] for event in events if event["type"] == "user.message"] == expected_messages
    with pytest.raises(ErrorAnswer, match="Event nothing not found"):
        await program.call("sessions.fork", {"sessionId": "s1", "toEventId": "nothing"})


async def test_approve_all_answers_what_is_open_and_what_comes(start: Start, cli: CommandLine) -> None:
    program = await start(turns(("write_file", {"path": "a.txt", "content": "1"}), ("lookup", {})))
    await program.call("session.create", {"sessionId": "s1", "tools": [TOOL]})
    await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    await program.wait_for_event("permission.requested")
    await program.call("session.permissions.setApproveAll", {"sessionId": "s1", "enabled": True})
    await program.wait_for_event("external_tool.requested")
    assert (cli.project / "a.txt").read_text() == "1"


async def test_a_question_goes_to_the_program(start: Start) -> None:  # T-07
    program = await start(turns(("ask_user", {"question": "Red?", "options": ["Yes", "No"]})))
    program.answers["userInput.request"] = {"answer": "Yes", "wasFreeform": False}
    await talk(program, requestUserInput=True)
    assert [params["question"] for method, params in program.asked if method == "userInput.request"] == ["Red?"]
    assert (await program.wait_for_event("user_input.completed"))["data"]["answer"] == "Yes"


async def test_without_somebody_to_answer_there_is_no_question(start: Start) -> None:
    program = await start(turns(("ask_user", {"question": "Red?"})))
    await talk(program)
    completion = await program.wait_for_event("tool.execution_complete")
    assert "no tool 'ask_user'" in completion["data"]["error"]["message"]


async def test_hooks_of_a_program_that_left_let_nothing_through(start: Start, cli: CommandLine) -> None:
    """A call that was to be checked is not run unchecked (E-03)."""
    script = turns(("write_file", {"path": "a.txt", "content": "1"})).replace("[[turn]]", "[[turn]]\nwait_s = 5", 1)
    program = await start(script)
    await program.call("session.create", {"sessionId": "s1", "hooks": True})
    await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    await program.call("session.detach", {"sessionId": "s1"})
    await program.call("session.resume", {"sessionId": "s1"})
    await program.wait_for_event("session.idle")
    read = (await program.call("session.getMessages", {"sessionId": "s1"}))["events"]
    completion = next(event for event in read if event["type"] == "tool.execution_complete")
    assert "is not connected" in completion["data"]["error"]["message"]
    assert not (cli.project / "a.txt").exists()


async def test_a_hook_refuses_a_message(start: Start) -> None:
    program = await start(turns())
    program.answers["hooks.invoke"] = lambda request: {
        "output": {"decision": "block", "reason": "not that"} if request["hookType"] == "userPromptSubmitted" else None
    }
    await program.call("session.create", {"sessionId": "s1", "hooks": True})
    with pytest.raises(ErrorAnswer, match="not that"):
        await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    assert "user.message" not in program.types


async def test_a_hook_at_the_end_of_a_run_sends_the_model_on(start: Start) -> None:
    program = await start("".join(turns(last=each) for each in ("First.", "Second.", *map(str, range(MOST_HELD + 1)))))
    program.answers["hooks.invoke"] = lambda request: {
        "output": {"decision": "block", "reason": "Look again."}
        if request["hookType"] == "agentStop" and not request["input"]["stopHookActive"]
        else None
    }
    answer = await talk(program, hooks=True)
    assert answer["response"]["data"]["content"] == "Second."
    messages = [event["data"]["content"] for event in program.events if event["type"] == "user.message"]
    assert messages == ["Go.", "Look again."]
    assert len([event for event in program.events if event["type"] == "session.idle"]) == 1
    program.answers["hooks.invoke"] = lambda request: {
        "output": {"decision": "block", "reason": "Never stop."} if request["hookType"] == "agentStop" else None
    }
    answer = await program.call("session.sendAndWait", {"sessionId": "s1", "prompt": "On."})
    assert answer["response"]["data"]["content"] == str(MOST_HELD)
    warned = await program.wait_for_event("session.warning")
    assert f"wanted more {MOST_HELD} times" in warned["data"]["message"]


async def test_a_failed_run_is_told_to_hooks_and_programs(start: Start) -> None:
    program = await start('[[turn]]\n[turn.fail]\nkind = "auth"\nmessage = "no key"\ntimes = 0\n')
    with pytest.raises(ErrorAnswer, match="no key"):
        await talk(program, hooks=True)
    assert (await program.wait_for_event("session.error"))["data"]["errorType"] == "authentication"
    await program.wait_for_event("session.idle")
    await program.was_asked("hooks.invoke", hookType="errorOccurred")


async def test_the_system_message_by_its_modes(start: Start, cli: CommandLine) -> None:
    program = await start(turns())
    program.answers["systemMessage.transform"] = lambda request: {
        "sections": {name: {"content": one["content"] + " Sing."} for name, one in request["sections"].items()}
    }
    sections = {"identity": {"action": "transform"}, "guidelines": {"action": "remove"}}
    for name, message in {
        "append": {"content": "Be kind."},
        "replace": {"mode": "replace", "content": "You are a parrot."},
        "customize": {"mode": "customize", "sections": sections},
    }.items():
        await program.call("session.create", {"sessionId": name, "systemMessage": message})
    options = {name: _options(cli, name)["system_prompt"] for name in ("append", "replace", "customize")}
    assert options["append"].startswith("You are Treadle")
    assert options["append"].endswith("Be kind.\n")
    assert options["replace"] == "You are a parrot."
    assert options["customize"].rstrip().endswith("Sing.")
    assert "Rules:" not in options["customize"]


def _options(cli: CommandLine, chat: str) -> dict[str, Any]:
    """The options of a chat, as its log has them."""
    options: dict[str, Any] = {}
    for line in cli("export", chat).out.splitlines():
        event = json.loads(line)
        options |= event.get("data", {}).get("options", {}) | event.get("data", {}).get("changes", {})
    return options


async def test_which_tools_there_are(start: Start) -> None:
    program = await start(turns())

    async def names(**config: Any) -> set[str]:
        session = str(len(program.lifecycle))
        await program.call("session.create", {"sessionId": session, "tools": [TOOL], **config})
        tools = (await program.call("session.tools.getCurrentMetadata", {"sessionId": session}))["tools"]
        return {tool["name"] for tool in tools}

    assert {"bash", "view", "edit", "create", "lookup"} <= await names()
    assert await names(availableTools=["view", "custom:*"]) == {"view", "lookup"}
    assert "bash" not in await names(excludedTools=["bash"])
    agents = [{"name": "reader", "prompt": "Only read.", "tools": ["view"]}]
    assert await names(customAgents=agents, agent="reader") == {"view"}


async def test_messages_are_queued_and_the_session_is_idle_once(start: Start) -> None:  # L-08
    program = await start('[[turn]]\ntext = "one"\nwait_s = 5\n[[turn]]\ntext = "two"\n')
    await program.call("session.create", {"sessionId": "s1"})
    await program.call("session.send", {"sessionId": "s1", "prompt": "First."})
    await program.call("session.send", {"sessionId": "s1", "prompt": "Second."})
    queued = (await program.call("session.queue.pendingItems", {"sessionId": "s1"}))["items"]
    assert [item["displayText"] for item in queued] == ["Second."]
    await program.wait_for_event("session.idle")
    assert [e["data"]["content"] for e in program.events if e["type"] == "assistant.message"] == ["one", "two"]


async def test_a_session_that_goes_on_while_a_hook_is_asked_is_not_idle(start: Start) -> None:  # L-08
    """The second run begins and ends before the end of the first is reported."""
    program = await start(turns(last="one") + turns(last="two"))

    async def answer_hook(request: dict[str, Any]) -> dict[str, Any]:
        if request["hookType"] == "agentStop" and "Second." not in prompts():
            await program.call("session.send", {"sessionId": "s1", "prompt": "Second."})
            while "two" not in await recorded_answers():  # noqa: ASYNC110 - another process writes them
                await asyncio.sleep(0.05)
        return {"output": None}

    def prompts() -> list[str]:
        return [each["data"]["content"] for each in program.events if each["type"] == "user.message"]

    async def recorded_answers() -> list[str]:
        events = (await program.call("session.getMessages", {"sessionId": "s1"}))["events"]
        return [each["data"]["content"] for each in events if each["type"] == "assistant.message"]

    program.answers["hooks.invoke"] = answer_hook
    await program.call("session.create", {"sessionId": "s1", "hooks": True})
    await program.call("session.send", {"sessionId": "s1", "prompt": "First."})
    await program.wait_for_event("session.idle")
    events = [each for each in program.events if each["type"] in ("assistant.message", "session.idle")]
    assert [each["data"].get("content", "idle") for each in events] == [*await recorded_answers(), "idle"]


async def test_an_incomplete_answer_is_reported(start: Start) -> None:  # L-15
    program = await start('[[turn]]\ntext = "Once upon"\nfinish = "length"\n')
    await program.call("session.create", {"sessionId": "s1"})
    await program.call("session.send", {"sessionId": "s1", "prompt": "A story."})
    await program.wait_for_event("session.idle")
    notices = [each["data"]["message"] for each in program.events if each["type"] == "session.info"]
    assert any("output limit before its answer was complete" in notice for notice in notices)


async def test_a_session_is_compacted(start: Start) -> None:  # L-19
    program = await start(turns(last="word " * 50))
    await talk(program)
    compaction = await program.call("session.history.compact", {"sessionId": "s1"})
    assert set(compaction) == {"success", "tokensRemoved", "messagesRemoved"}
    assert "session.compaction_start" in program.types
    assert "session.compaction_complete" in program.types


async def test_sessions_are_listed_looked_at_and_deleted(start: Start, cli: CommandLine) -> None:
    program = await start(turns())
    await talk(program, session="one", name="The first")
    await program.call("session.create", {"sessionId": "two"})
    assert {each["sessionId"] for each in (await program.call("session.list", {}))["sessions"]} == {"one", "two"}
    metadata = (await program.call("session.getMetadata", {"sessionId": "one"}))["session"]
    assert (metadata["summary"], metadata["context"]["cwd"]) == ("The first", str(cli.project))
    assert (await program.call("session.delete", {"sessionId": "two"}))["success"] is True
    assert (await program.call("session.delete", {"sessionId": "two"}))["success"] is False
    assert (await program.call("session.getLastId", {}))["sessionId"] == "one"
    with pytest.raises(ErrorAnswer, match="Session not found"):
        await program.call("session.resume", {"sessionId": "two"})


async def test_another_runtime_takes_an_open_approval_up(start: Start, cli: CommandLine) -> None:  # S-08, D-01
    script = turns(("write_file", {"path": "a.txt", "content": "1"}))
    program = await start(script)
    await program.call("session.create", {"sessionId": "s1", "requestPermission": True})
    await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    request = (await program.wait_for_event("permission.requested"))["data"]
    assert program.process is not None
    program.process.kill()
    await program.process.wait()
    second_program = await start(script)
    await second_program.call("session.resume", {"sessionId": "s1", "requestPermission": True})
    again = (await second_program.wait_for_event("permission.requested"))["data"]
    assert again["requestId"] == request["requestId"]
    decision = {"sessionId": "s1", "requestId": again["requestId"], "result": {"kind": "approve-once"}}
    await second_program.call("session.permissions.handlePendingPermissionRequest", decision)
    await second_program.wait_for_event("session.idle")
    assert (cli.project / "a.txt").read_text() == "1"


async def test_pending_work_can_be_given_up_on_resume(start: Start, cli: CommandLine) -> None:
    script = turns(("write_file", {"path": "a.txt", "content": "1"}), last="Fresh.")
    program = await start(script)
    await program.call("session.create", {"sessionId": "s1", "requestPermission": True})
    await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    await program.wait_for_event("permission.requested")
    assert program.process is not None
    program.process.kill()
    await program.process.wait()
    second_program = await start(script)
    await second_program.call("session.resume", {"sessionId": "s1", "continuePendingWork": False})
    answer = await second_program.call("session.sendAndWait", {"sessionId": "s1", "prompt": "Again."})
    assert answer["response"]["data"]["content"] == "Fresh."
    assert not (cli.project / "a.txt").exists()


async def test_a_port_wants_a_token(cli: CommandLine) -> None:  # S-13
    model = cli.script(turns())
    server = cli.start("copilot", "--model", model, env={"COPILOT_CONNECTION_TOKEN": "sesame"})
    assert server.stdout is not None
    line = await asyncio.to_thread(server.stdout.readline)
    assert "listening on port" in line
    port = int(line.split()[-1])
    program = await Program.reach(port)
    with pytest.raises(ErrorAnswer, match="AUTHENTICATION_FAILED"):
        await program.call("ping", {})
    with pytest.raises(ErrorAnswer, match="AUTHENTICATION_FAILED"):
        await program.call("connect", {"token": "guess"})
    await program.call("connect", {"token": "sesame"})
    assert (await program.call("ping", {"message": "in"}))["message"] == "pong: in"
    second_program = await Program.reach(port)
    await second_program.call("connect", {"token": "sesame"})
    await _dialogues(program, second_program)
    await program.call("runtime.shutdown", {})
    serve_result = await asyncio.to_thread(end, server)
    assert serve_result.code == 0
    await program.close()


async def _dialogues(program: Program, second_program: Program) -> None:
    """One program asks another for a dialogue and a command, as long as the other is connected."""
    session = await program.call("session.create", {"sessionId": "s1"})
    assert not session["capabilities"]["ui"]["elicitation"]
    question = {"sessionId": "s1", "message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
    assert await program.call("session.ui.elicitation", question) == {"action": "cancel"}
    brings = {"requestElicitation": True, "commands": [{"name": "deploy", "description": "Deploy it"}]}
    session = await second_program.call("session.resume", {"sessionId": "s1", **brings})
    assert session["capabilities"]["ui"]["elicitation"]
    assert (await program.wait_for_event("capabilities.changed"))["data"] == {"ui": {"elicitation": True}}
    assert [each["name"] for each in (await program.wait_for_event("commands.changed"))["data"]["commands"]] == [
        "deploy"
    ]
    asking = asyncio.create_task(program.call("session.ui.elicitation", question))
    request = (await second_program.wait_for_event("elicitation.requested"))["data"]
    reply = {"sessionId": "s1", "requestId": request["requestId"], "result": {"action": "accept", "content": {}}}
    assert await second_program.call("session.ui.handlePendingElicitation", reply) == {"success": True}
    assert await asking == {"action": "accept", "content": {}}
    assert await second_program.call("session.ui.handlePendingElicitation", reply) == {"success": False}
    listed = (await program.call("session.commands.list", {"sessionId": "s1"}))["commands"]
    assert {each["name"]: each["kind"] for each in listed} == {
        "compact": "builtin",
        "model": "builtin",
        "deploy": "client",
    }
    order = {"sessionId": "s1", "commandName": "deploy", "args": "all"}
    asking = asyncio.create_task(program.call("session.commands.execute", order))
    request = (await second_program.wait_for_event("command.execute"))["data"]
    assert request["command"] == "/deploy all"
    await second_program.call(
        "session.commands.handlePendingCommand", {"sessionId": "s1", "requestId": request["requestId"]}
    )
    assert await asking == {}
    asking = asyncio.create_task(program.call("session.ui.elicitation", question))
    event_count = len(second_program.events)
    await second_program.wait_for_event("elicitation.requested", event_count - 1)
    await second_program.close()
    assert await asking == {"action": "cancel"}  # the answering program has left
    no = await program.call("session.commands.execute", order)
    assert no == {"error": "There is no command deploy."}


async def test_what_is_no_message_ends_the_connection(start: Start) -> None:
    program = await start(turns())
    program.write_bytes(b"GET / HTTP/1.1\r\n\r\n")
    assert program.process is not None
    assert await asyncio.wait_for(program.process.wait(), 60) == 0
    await program.close()
    assert [each["code"] for each in program.refusals] == [-32700]


@pytest.mark.parametrize("cursor", ["x", -1, [1], "9" * 400])
async def test_a_cursor_that_is_none_is_refused(start: Start, cursor: Any) -> None:
    program = await start(turns())
    await program.call("session.create", {"sessionId": "s1"})
    with pytest.raises(ErrorAnswer, match="cursor") as refused:
        await program.call("session.eventLog.read", {"sessionId": "s1", "cursor": cursor})
    assert refused.value.code == -32602


async def test_a_session_is_idle_though_the_end_was_read_before_its_writer_went_on(cli: CommandLine) -> None:
    """A watcher of the log may see a commit before its writer does; the end is reported all the same."""
    cli.environment["TREADLE_FAULTS"] = "delay@store.after_commit#*=0.3"
    program = await Program.start(cli, cli.script('[[turn]]\ntext = "Hello."\n'))
    await program.call("session.create", {"sessionId": "s1"})
    reply = await program.call("session.sendAndWait", {"sessionId": "s1", "prompt": "Say hello."})
    assert reply["response"]["data"]["content"] == "Hello."
    await program.close()
