"""What may be called of a session, by name. Each is a few lines: parameters in, the library, an answer out. A name that
is not here is answered with an error that says so."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from treadle.chat.state import status
from treadle.copilot_sdk.config import Tool
from treadle.copilot_sdk.events import MODES
from treadle.copilot_sdk.names import shown_name
from treadle.copilot_sdk.session import Session
from treadle.jsonrpc.connection import INVALID_PARAMS, Connection, RpcError
from treadle.protocol import commands as c
from treadle.protocol import events as e

Params = Mapping[str, Any]
SessionMethod = Callable[[Session, Connection, Params], Awaitable[Any]]
_OWN_MODES = {"interactive": "confirm", "plan": "read-only", "autopilot": "autopilot"}


def text_of(params: Params, name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str) or not value:
        raise RpcError(INVALID_PARAMS, f"{name} is missing, or no text.")
    return value


def _sending(session: Session, params: Params) -> Awaitable[str]:
    if params.get("responseFormat"):
        raise RpcError(INVALID_PARAMS, "Treadle does not support responseFormat for messages of a session.")
    mode = str(params.get("mode") or "enqueue")
    return session.send(text_of(params, "prompt"), mode, params.get("attachments") or ())


async def send(session: Session, _connection: Connection, params: Params) -> Any:
    return {"messageId": await _sending(session, params)}


async def send_and_wait(session: Session, _connection: Connection, params: Params) -> Any:
    return await session.wait_for(_sending(session, params))


async def abort(session: Session, _connection: Connection, _params: Params) -> Any:
    return {"success": True, "interrupted": await session.abort()}


async def get_messages(session: Session, _connection: Connection, _params: Params) -> Any:
    return {"events": await session.events()}


async def read_events(session: Session, _connection: Connection, params: Params) -> Any:
    """A page of the history; the cursor is the number of events before it."""
    told = await session.events()
    begin = int(params.get("cursor") or 0)
    end = min(len(told), begin + int(params.get("max") or len(told)))
    return {"events": told[begin:end], "cursor": str(end), "hasMore": end < len(told), "cursorStatus": "ok"}


async def interest(_session: Session, _connection: Connection, _params: Params) -> Any:
    """Every program is told everything."""
    return {"success": True, "handle": "all"}


async def detach(session: Session, connection: Connection, _params: Params) -> Any:
    await session.end(connection)
    return {"success": True}


async def tool_result(session: Session, _connection: Connection, params: Params) -> Any:
    error = params.get("error")
    request = text_of(params, "requestId")
    return {"success": await session.requests.submit(request, params.get("result"), error)}


async def permission(session: Session, _connection: Connection, params: Params) -> Any:
    result = params.get("result")
    given = result if isinstance(result, Mapping) else {}
    return {"success": await session.requests.decide(text_of(params, "requestId"), given)}


async def user_input(session: Session, _connection: Connection, params: Params) -> Any:
    response = params.get("response")
    answer = response.get("answer") if isinstance(response, Mapping) else params.get("answer")
    return {"success": await session.requests.answer(text_of(params, "requestId"), str(answer or ""))}


async def pending_tools(session: Session, _connection: Connection, _params: Params) -> Any:
    return {"items": [data for kind, data in session.requests.open.values() if kind == "external_tool.requested"]}


async def approve_all(session: Session, _connection: Connection, params: Params) -> Any:
    session.requests.approve_all = bool(params.get("enabled", True))
    if session.requests.approve_all:
        asked = [request for request, (kind, _) in session.requests.open.items() if kind == "permission.requested"]
        for request in asked:
            await session.requests.decide(request, {"kind": "approve-once"})
    return {"success": True, "enabled": session.requests.approve_all}


async def set_tools(session: Session, connection: Connection, params: Params) -> Any:
    config = session.programs.get(connection)
    if config is None:
        raise RpcError(INVALID_PARAMS, "Resume the session before its tools are changed.")
    config.tools = msgspec.convert(params.get("tools") or [], list[Tool], strict=False)
    await session.configure(config)
    return {}


async def tools_now(session: Session, _connection: Connection, _params: Params) -> Any:
    specs = session.agent.deps.tools.specs(session.options)
    return {"tools": [tool_shown(spec.name, spec.description, spec.parameters) for spec in specs]}


def tool_shown(name: str, description: str, parameters: Any) -> dict[str, Any]:
    return {"name": shown_name(name), "description": description, "parameters": parameters, "inputSchema": parameters}


async def mode_get(session: Session, _connection: Connection, _params: Params) -> Any:
    return MODES.get(session.options.mode, "interactive")


async def mode_set(session: Session, _connection: Connection, params: Params) -> Any:
    wanted = _OWN_MODES.get(text_of(params, "mode"))
    if wanted is None:
        raise RpcError(INVALID_PARAMS, f"There is no mode {params['mode']!r}; there is: {', '.join(_OWN_MODES)}.")
    await session.change({"mode": wanted} if wanted != session.options.mode else {})
    return {"status": "applied", "modeApplied": True, "modelChanged": False}


async def name_get(session: Session, _connection: Connection, _params: Params) -> Any:
    return {"name": (await session.chat.state()).title or None}


async def name_set(session: Session, _connection: Connection, params: Params) -> Any:
    await session.chat.command(c.Rename(text_of(params, "name"), by="program"))
    return {}


async def compact(session: Session, _connection: Connection, _params: Params) -> Any:
    done: e.CompactionComplete | None = None
    async for envelope in session.chat.compact():
        if isinstance(envelope.data, e.CompactionComplete):
            done = envelope.data
    if done is None or not done.success:
        return {"success": False, "tokensRemoved": 0, "messagesRemoved": 0}
    removed = max(0, done.tokens_before - done.tokens_after)
    return {"success": True, "tokensRemoved": removed, "messagesRemoved": done.upto}


async def is_processing(session: Session, _connection: Connection, _params: Params) -> Any:
    return {"processing": status(await session.chat.state()) not in ("idle", "error")}


async def queued(session: Session, _connection: Connection, _params: Params) -> Any:
    items = (await session.chat.state()).queue
    shown = [{"id": each.id, "kind": "message", "displayText": each.content} for each in items]
    steering = [each.content for each in items if each.delivery == "steering"]
    return {"items": [{**each, "agentMode": "interactive"} for each in shown], "steeringMessages": steering}


async def clear_queue(session: Session, _connection: Connection, _params: Params) -> Any:
    for item in (await session.chat.state()).queue:
        await session.chat.command(c.DeleteQueued(item.id))
    return {}


async def remove_queued(session: Session, _connection: Connection, _params: Params) -> Any:
    items = (await session.chat.state()).queue
    if items:
        await session.chat.command(c.DeleteQueued(items[-1].id))
    return {"removed": bool(items)}


async def log(session: Session, _connection: Connection, params: Params) -> Any:
    level, url = str(params.get("level") or "info"), params.get("url")
    told = await session.log(text_of(params, "message"), level, bool(params.get("ephemeral")), url)
    return {"eventId": told}


async def agents(session: Session, connection: Connection, _params: Params) -> Any:
    config = session.programs.get(connection)
    return {"agents": [_agent(agent) for agent in (config.custom_agents if config else None) or ()]}


async def agent_now(session: Session, connection: Connection, _params: Params) -> Any:
    config = session.programs.get(connection)
    chosen = config.custom_agent if config is not None else None
    return {"agent": _agent(chosen) if chosen is not None else None}


async def choose_agent(session: Session, connection: Connection, params: Params) -> Any:
    config = session.programs.get(connection)
    name = params.get("name")
    if config is None or (name and all(agent.name != name for agent in config.custom_agents or ())):
        raise RpcError(INVALID_PARAMS, f"There is no custom agent {name!r} in this session.")
    config.agent = name or None
    await session.configure(config)
    return await agent_now(session, connection, params)


def _agent(agent: Any) -> dict[str, Any]:
    shown = {"id": agent.name, "name": agent.name, "displayName": agent.display_name or agent.name}
    return {**shown, "description": agent.description or ""}


async def options_update(session: Session, _connection: Connection, params: Params) -> Any:
    """Of what a program may change later, only its model is something that Treadle has."""
    if params.get("model"):
        raise RpcError(INVALID_PARAMS, "Change the model with session.model.switchTo.")
    return {"success": True}


async def shutdown(session: Session, connection: Connection, _params: Params) -> Any:
    await session.abort()
    await session.end(connection)
    return {"success": True}


SESSION_METHODS: Mapping[str, SessionMethod] = {
    "session.send": send,
    "session.sendAndWait": send_and_wait,
    "session.abort": abort,
    "session.interruptMainTurn": abort,
    "session.getMessages": get_messages,
    "session.eventLog.read": read_events,
    "session.eventLog.registerInterest": interest,
    "session.eventLog.releaseInterest": interest,
    "session.detach": detach,
    "session.destroy": detach,
    "session.suspend": detach,
    "session.shutdown": shutdown,
    "session.tools.handlePendingToolCall": tool_result,
    "session.tools.listPendingRequests": pending_tools,
    "session.tools.set": set_tools,
    "session.tools.getCurrentMetadata": tools_now,
    "session.permissions.handlePendingPermissionRequest": permission,
    "session.permissions.setApproveAll": approve_all,
    "session.ui.handlePendingUserInput": user_input,
    "session.mode.get": mode_get,
    "session.mode.set": mode_set,
    "session.name.get": name_get,
    "session.name.set": name_set,
    "session.history.compact": compact,
    "session.metadata.isProcessing": is_processing,
    "session.queue.pendingItems": queued,
    "session.queue.clear": clear_queue,
    "session.queue.removeMostRecent": remove_queued,
    "session.log": log,
    "session.agent.list": agents,
    "session.agent.getCurrent": agent_now,
    "session.agent.select": choose_agent,
    "session.agent.deselect": choose_agent,
    "session.options.update": options_update,
}
