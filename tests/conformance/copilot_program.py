"""A program that uses the published Copilot SDK for Python, unchanged, on `treadle copilot`. Run by `test_copilot_sdk`
in a process of its own, because the SDK is no part of Treadle's environment:

    python copilot_program.py FOLDER

Plays every scene and writes what it saw as one JSON object: by scene, facts that the test looks at."""

import asyncio
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from copilot import CopilotClient, RuntimeConnection, Tool, ToolResult  # type: ignore[import-not-found]
from copilot.rpc import HandlePendingToolCallRequest  # type: ignore[import-not-found]
from copilot.session import PermissionHandler  # type: ignore[import-not-found]

PATIENCE_S = 60


class Stage:
    """A folder with a project, a home of Treadle and a script for its model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir(parents=True)
        self.env = {**os.environ, "TREADLE_HOME": str(folder / "home"), "TREADLE_RETRY_BASE_S": "0"}
        self.clients: list[Any] = []

    def script(self, text: str) -> list[str]:
        (self.folder / "script.toml").write_text(text)
        return ["-m", "treadle", "copilot", "--model", f"scripted:{self.folder / 'script.toml'}"]

    async def client(self, script: str = "", *, tcp: str = "", uri: str = "", token: str = "") -> Any:
        """Connected: to a runtime that the SDK starts, on its pipe or on a port, or to one that is there."""
        if uri:
            connection = RuntimeConnection.for_uri(uri, connection_token=token)
        else:
            arguments = self.script(script) if script else self.arguments
            make = RuntimeConnection.for_tcp if tcp else RuntimeConnection.for_stdio
            more = {"connection_token": tcp} if tcp else {}
            connection = make(path=sys.executable, args=arguments, **more)
            self.arguments = arguments
        place = {} if uri else {"working_directory": str(self.project), "env": self.env}
        client = CopilotClient(connection=connection, **place)
        await client.start()
        self.clients.append(client)
        return client

    async def close(self) -> None:
        for client in reversed(self.clients):
            await client.force_stop()


def lookup(name: str, answer: str, calls: list[Any]) -> Any:
    async def handler(invocation: Any) -> Any:
        calls.append(invocation.arguments)
        return ToolResult(text_result_for_llm=answer)

    schema = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
    return Tool(name=name, description="Looks up.", parameters=schema, handler=handler)


def watch(session: Any, kind: str) -> "asyncio.Future[Any]":
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def resolve_future(event: Any) -> None:
        if event.type.value == kind and not future.done():
            future.set_result(event)

    session.on(resolve_future)
    return future


async def soon(future: "asyncio.Future[Any]") -> Any:
    return await asyncio.wait_for(future, PATIENCE_S)


TALK = """
[model]
chunk = 5
[[turn]]
think = "Which one?"
text = "Let me look."
[[turn.call]]
name = "lookup"
args = {key = "ALPHA"}
[[turn.call]]
name = "write_file"
args = {path = "out.txt", content = "hello\\n"}
[[turn]]
[[turn.call]]
name = "ask_user"
args = {question = "Red or blue?", options = ["Red", "Blue"]}
[[turn]]
text = "Done: 54321, Blue."
[[turn]]
text = "And again."
"""


async def conversation(stage: Stage) -> dict[str, Any]:
    client = await stage.client(TALK)
    tool_calls: list[Any] = []
    questions: list[Any] = []
    hooks: list[Any] = []
    permitted: list[str] = []

    def permit(request: Any, invocation: Any) -> Any:
        permitted.append(request.kind)
        return PermissionHandler.approve_all(request, invocation)

    def answer(request: Any, invocation: Any) -> Any:
        questions.append([request["question"], request["choices"]])
        return {"answer": "Blue", "wasFreeform": False}

    def record_hook(kind: str, field: str) -> Any:
        return lambda hook_input, invocation: hooks.append([kind, hook_input[field]])

    live: list[Any] = []
    session = await client.create_session(
        session_id="talk-1",
        on_event=live.append,
        on_permission_request=permit,
        on_user_input_request=answer,
        tools=[lookup("lookup", "54321", tool_calls)],
        streaming=True,
        hooks={
            "on_pre_tool_use": record_hook("pre", "toolName"),
            "on_post_tool_use": record_hook("post", "toolName"),
            "on_user_prompt_submitted": record_hook("prompt", "prompt"),
            "on_session_start": record_hook("start", "source"),
            "on_session_end": record_hook("end", "reason"),
        },
    )
    reply = await session.send_and_wait("Look it up.", timeout=PATIENCE_S)
    second = await session.send_and_wait("Again.", timeout=PATIENCE_S)
    recorded = await session.get_events()
    listed = await client.list_sessions()
    await session.disconnect()
    facts = {
        "ping": (await client.ping("hi")).message,
        "protocol": (await client.get_status()).protocol_version,
        "authenticated": (await client.get_auth_status()).isAuthenticated,
        "models": len(await client.list_models()),
        "reply": reply.data.content,
        "second": second.data.content,
        "tool": tool_calls,
        "asked": questions,
        "hooks": hooks,
        "permitted": sorted(permitted),
        "file": (stage.project / "out.txt").read_text(),
        "deltas": "".join(e.data.delta_content for e in live if e.type.value == "assistant.message_delta"),
        "live": [event.type.value for event in live if not event.ephemeral],
        "recorded": [event.type.value for event in recorded],
        "same_ids": {str(e.id) for e in live if not e.ephemeral} <= {str(e.id) for e in recorded},
        "listed": [each.session_id for each in listed],
        "last": await client.get_last_session_id(),
    }
    await client.delete_session("talk-1")
    facts["after_delete"] = [each.session_id for each in await client.list_sessions()]
    await client.stop()
    return facts


REFUSED = """
[[turn]]
[[turn.call]]
name = "run_command"
args = {command = "touch made-by-command"}
[[turn]]
[[turn.call]]
name = "write_file"
args = {path = "a.txt", content = "model"}
[[turn]]
[[turn.call]]
name = "write_file"
args = {path = "b.txt", content = "model"}
[[turn]]
text = "Over."
"""


async def refusals(stage: Stage) -> dict[str, Any]:
    """A person refuses a command, a hook refuses one file and rewrites another."""
    client = await stage.client(REFUSED)

    def permit(request: Any, invocation: Any) -> Any:
        from copilot.rpc import PermissionDecisionReject

        if request.kind == "shell":
            return PermissionDecisionReject(feedback="not today")
        return PermissionHandler.approve_all(request, invocation)

    def handle_pre_tool_use(hook_input: Any, invocation: Any) -> Any:
        path = hook_input["toolArgs"].get("path")
        if path == "a.txt":
            return {"permissionDecision": "deny", "permissionDecisionReason": "a.txt is mine"}
        if path == "b.txt":
            return {"modifiedArgs": {**hook_input["toolArgs"], "file_text": "hook"}}
        return None

    def handle_post_tool_use(hook_input: Any, invocation: Any) -> Any:
        return {"additionalContext": "the hook was here"}

    hooks = {"on_pre_tool_use": handle_pre_tool_use, "on_post_tool_use": handle_post_tool_use}
    session = await client.create_session(on_permission_request=permit, hooks=hooks)
    await session.send_and_wait("Do it.", timeout=PATIENCE_S)
    completions = [event.data for event in await session.get_events() if event.type.value == "tool.execution_complete"]
    return {
        "results": [each.error.message if each.error else each.result.content for each in completions],
        "files": sorted(path.name for path in stage.project.iterdir()),
        "b": (stage.project / "b.txt").read_text(),
    }


SLOW = """
[[turn]]
text = "I think"
hang = true
[[turn]]
text = "Fresh."
[[turn]]
text = "Queued."
"""


async def stopping(stage: Stage) -> dict[str, Any]:
    client = await stage.client(SLOW)
    session = await client.create_session(on_permission_request=PermissionHandler.approve_all, streaming=True)
    speaking, idle = watch(session, "assistant.message_delta"), watch(session, "session.idle")
    await session.send("Think.")
    await soon(speaking)
    await session.abort()
    stopped = await soon(idle)
    again = await session.send_and_wait("Once more.", timeout=PATIENCE_S)
    idles: list[Any] = []
    session.on(lambda event: idles.append(event) if event.type.value == "session.idle" else None)
    queued = await session.send_and_wait("And more.", timeout=PATIENCE_S)
    kinds = [event.type.value for event in await session.get_events()]
    return {
        "aborted": stopped.data.aborted,
        "again": again.data.content,
        "queued": queued.data.content,
        "abort_recorded": "abort" in kinds,
        "idles": len(idles),
    }


TWO = """
[[turn]]
[[turn.call]]
name = "first_tool"
args = {key = "1"}
[[turn.call]]
name = "second_tool"
args = {key = "2"}
[[turn]]
text = "Both came."
"""


async def two_clients(stage: Stage) -> dict[str, Any]:
    one = await stage.client(TWO, tcp="open-sesame")
    uri = f"127.0.0.1:{one._runtime_port}"
    wrong = CopilotClient(connection=RuntimeConnection.for_uri(uri, connection_token="guess"))
    try:
        await wrong.start()
        refused = ""
    except Exception as error:
        refused = str(error)
    two = await stage.client(uri=uri, token="open-sesame")
    seen_one: list[Any] = []
    seen_two: list[Any] = []
    session = await one.create_session(
        on_permission_request=PermissionHandler.approve_all, tools=[lookup("first_tool", "eins", seen_one)]
    )
    second_session = await two.resume_session(session.session_id, tools=[lookup("second_tool", "zwei", seen_two)])
    event_types: list[str] = []
    second_session.on(lambda event: event_types.append(event.type.value))
    reply = await session.send_and_wait("Use both.", timeout=PATIENCE_S)
    results = [
        e.data.result.content for e in await second_session.get_events() if e.type.value == "tool.execution_complete"
    ]
    return {
        "refused": "AUTHENTICATION_FAILED" in refused,
        "reply": reply.data.content,
        "one": seen_one,
        "two": seen_two,
        "results": sorted(results),
        "both_heard": "assistant.message" in event_types,
    }


RESUMED = """
[[turn]]
[[turn.call]]
name = "slow_tool"
args = {key = "K"}
[[turn]]
text = "It said: ready."
"""


async def kill_runtime(stage: Stage) -> dict[str, Any]:
    """The runtime is killed while a program's tool is asked for; another one takes the session up."""
    client = await stage.client(RESUMED)
    waits = Tool(name="slow_tool", description="Waits.", parameters={"type": "object"}, skip_permission=True)
    session = await client.create_session(on_permission_request=PermissionHandler.approve_all, tools=[waits])
    tool_request = watch(session, "external_tool.requested")
    await session.send("Ask it.")
    first = await soon(tool_request)
    os.kill(client._cli_process.pid, signal.SIGKILL)
    again = await stage.client()
    resumed = await again.resume_session(
        session.session_id,
        on_permission_request=PermissionHandler.approve_all,
        tools=[waits],
        continue_pending_work=True,
    )
    message, idle = watch(resumed, "assistant.message"), watch(resumed, "session.idle")
    request = HandlePendingToolCallRequest(request_id=first.data.request_id, result="ready")
    accepted = await resumed.rpc.tools.handle_pending_tool_call(request)
    reply = await soon(message)
    await soon(idle)
    kinds = [event.type.value for event in await resumed.get_events()]
    return {
        "accepted": accepted.success,
        "reply": reply.data.content,
        "asked_once": kinds.count("user.message") == 1 and kinds.count("tool.execution_start") == 1,
        "resumed": "session.resume" in kinds,
    }


async def methods(stage: Stage) -> dict[str, Any]:
    """The SDK reads each answer into a type of its own, and fails where one does not fit."""
    from copilot import rpc
    from copilot.generated.rpc import SessionMode  # type: ignore[import-not-found]

    client = await stage.client('[[turn]]\ntext = "Hello."\n')
    agents = [{"name": "reader", "display_name": "Reader", "description": "Reads.", "prompt": "Only read."}]
    session = await client.create_session(
        on_permission_request=PermissionHandler.approve_all, custom_agents=agents, model="any-model"
    )
    await session.send_and_wait("Hi.", timeout=PATIENCE_S)
    api = session.rpc
    await api.name.set(rpc.NameSetRequest(name="A name"))
    await api.mode.set(rpc.ModeSetRequest(mode=SessionMode.PLAN))
    selection = await api.agent.select(rpc.AgentSelectRequest(name="reader"))
    await session.log("noted")
    await session.set_model("another-model")
    await api.permissions.set_approve_all(rpc.PermissionsSetApproveAllRequest(enabled=True))
    facts = {
        "name": (await api.name.get()).name,
        "mode": (await api.mode.get()).value,
        "agents": [agent.name for agent in (await api.agent.list()).agents],
        "agent": selection.agent.display_name,
        "tools": len((await api.tools.get_current_metadata()).tools or []) > 3,
        "all_tools": len((await client.rpc.tools.list(rpc.ToolsListRequest())).tools) > 3,
        "queue": (await api.queue.pending_items()).items,
        "pending": (await api.tools.list_pending_requests()).items,
        "processing": (await api.metadata.is_processing()).processing,
        "compacted": (await api.history.compact()).tokens_removed >= 0,
        "read": len((await api.event_log.read(rpc.EventLogReadRequest())).events) > 5,
        "model": (await api.model.get_current()).model_id is not None,
        "logged": "session.info" in [event.type.value for event in await session.get_events()],
        "metadata": (await client.get_session_metadata(session.session_id)).summary,
    }
    try:
        await api.fleet.start(rpc.FleetStartRequest())
    except Exception as error:
        facts["refused"] = str(error)
    return facts


SCENES = (methods, conversation, refusals, stopping, two_clients, kill_runtime)


async def play(folder: Path) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for scene in SCENES:
        stage = Stage(folder / scene.__name__)
        try:
            facts[scene.__name__] = await asyncio.wait_for(scene(stage), PATIENCE_S * 2)
        except Exception:
            facts[scene.__name__] = {"failed": traceback.format_exc()}
        finally:
            await stage.close()
    return facts


if __name__ == "__main__":
    print(json.dumps(asyncio.run(play(Path(sys.argv[1])))))
