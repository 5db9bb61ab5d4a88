"""Names of the SDKs: methods, with the functions that answer them; tools (those of programs keep their names, those of
servers are `server__tool`); permissions."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from treadle.adapters.tools.registry import SERVER_MARK
from treadle.protocol.events import OpenAction
from treadle.protocol.permissions import Rule, RuleScope
from treadle.protocol.tools import COMMAND_TOOL, EDIT_TOOLS, is_read_only_command

THEIRS: Mapping[str, str] = {
    "run_command": "bash", "check_command": "read_bash", "send_input": "write_bash", "stop_command": "stop_bash",
    "read_file": "view", "write_file": "create", "edit_file": "edit", "grep_search": "grep", "find_files": "glob",
    "use_skill": "skill",
}  # fmt: skip
OURS: Mapping[str, str] = {theirs: ours for ours, theirs in THEIRS.items()}

_ARGUMENTS: Mapping[str, Mapping[str, str]] = {"write_file": {"content": "file_text"}, "use_skill": {"name": "skill"}}
"""Arguments that are called otherwise there."""


def to_shown_name(tool: str) -> str:
    return THEIRS.get(tool, tool)


def to_shown_arguments(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    names = _ARGUMENTS.get(tool, {})
    return {names.get(name, name): value for name, value in arguments.items()}


def to_own_arguments(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    names = {theirs: ours for ours, theirs in _ARGUMENTS.get(tool, {}).items()}
    return {names.get(name, name): value for name, value in arguments.items()}


def matches_filters(filters: Iterable[str], name: str, *, builtin: bool) -> bool:
    """True if one of the filters matches this tool: by either of its names, or by a pattern such as `builtin:*`."""
    group = "builtin" if builtin else "custom"
    tool_names = {name, to_shown_name(name)} if builtin else {name}
    spellings = {"*", f"{group}:*", *tool_names, *(f"{group}:{one}" for one in tool_names)}
    return any(each in spellings for each in filters)


def list_server_patterns(filters: Iterable[str], server: str) -> list[str]:
    """The tools of a server that a filter means, as patterns: `mcp:*`, `mcp:server-tool`, `server/tool` and so on."""
    patterns = []
    for each in (text.removeprefix("mcp:") for text in filters):
        beginnings = [f"{server}{mark}" for mark in ("__", "-", "/")]
        tool = next((each.removeprefix(begin) for begin in beginnings if each.startswith(begin)), "")
        if each in ("*", server) or tool:
            patterns.append(f"{server}__{tool or '*'}")
    return patterns


# Of the runtime as a whole (`copilot_sdk.server.Runtime`).
RUNTIME: Mapping[str, str] = {
    "connect": "connect", "ping": "ping", "status.get": "status", "auth.getStatus": "auth_status",
    "models.list": "models", "tools.list": "tools", "runtime.shutdown": "shutdown",
    "session.getForeground": "foreground", "session.setForeground": "foreground", "session.create": "create",
    "session.resume": "resume", "session.model.switchTo": "switch_model",
    "session.model.setReasoningEffort": "set_effort", "session.model.getCurrent": "current_model",
    "session.list": "list", "session.getMetadata": "metadata", "session.getLastId": "last",
    "session.delete": "delete", "sessions.fork": "fork",
}  # fmt: skip

# Of a session (`copilot_sdk.methods.Method`).
SESSION: Mapping[str, str] = {
    "session.send": "send", "session.sendAndWait": "send_and_wait", "session.abort": "abort",
    "session.interruptMainTurn": "abort", "session.detach": "detach", "session.destroy": "detach",
    "session.suspend": "detach", "session.shutdown": "shutdown", "session.history.compact": "compact",
    "session.getMessages": "get_messages", "session.eventLog.read": "read_events", "session.eventLog.tail": "tail",
    "session.eventLog.registerInterest": "interest", "session.eventLog.releaseInterest": "interest",
    "session.log": "log", "session.metadata.isProcessing": "is_processing", "session.metadata.snapshot": "snapshot",
    "session.tools.handlePendingToolCall": "tool_result", "session.tools.listPendingRequests": "pending_tools",
    "session.tools.set": "set_tools", "session.tools.getCurrentMetadata": "tools_now",
    "session.permissions.handlePendingPermissionRequest": "permission",
    "session.permissions.pendingRequests": "pending_permissions", "session.permissions.setApproveAll": "approve_all",
    "session.ui.handlePendingUserInput": "user_input", "session.ui.elicitation": "elicit",
    "session.ui.handlePendingElicitation": "dialogue_answer", "session.commands.list": "commands",
    "session.commands.invoke": "invoke_command", "session.commands.execute": "execute_command",
    "session.commands.handlePendingCommand": "dialogue_answer",
    "session.commands.respondToQueuedCommand": "dialogue_answer", "session.agent.list": "agents",
    "session.agent.reload": "agents", "session.agent.getCurrent": "agent_now", "session.agent.select": "choose_agent",
    "session.agent.deselect": "choose_agent", "session.skills.list": "skills",
    "session.skills.enable": "toggle_skill", "session.skills.disable": "toggle_skill",
    "session.skills.reload": "toggle_skill", "session.skills.ensureLoaded": "toggle_skill",
    "session.skills.getInvoked": "used_skills", "session.mcp.list": "servers",
    "session.mcp.listTools": "server_tools", "session.mcp.isServerRunning": "server_runs",
    "session.mcp.startServer": "toggle_server", "session.mcp.stopServer": "toggle_server",
    "session.mcp.restartServer": "toggle_server", "session.mcp.enable": "toggle_server",
    "session.mcp.disable": "toggle_server", "session.mode.get": "mode_get", "session.mode.set": "mode_set",
    "session.name.get": "name_get", "session.name.set": "name_set", "session.queue.pendingItems": "list_queue",
    "session.queue.clear": "drop_queued", "session.queue.removeMostRecent": "drop_queued",
    "session.options.update": "options_update",
}  # fmt: skip


_SCOPES: Mapping[str, RuleScope] = {
    "approve-for-session": "chat", "approved-for-session": "chat", "approve-for-location": "project",
    "approved-for-location": "project", "approve-permanently": "user",
}  # fmt: skip
UNANSWERED = ("no-result", "noResult")
REJECTED = "The user rejected this tool call."
NOBODY = "Permission denied: could not request permission, because no person was there."


class Decision(msgspec.Struct, frozen=True):
    decision: Literal["allow", "deny"]
    feedback: str = ""
    scope: RuleScope = "once"
    absent: bool = False  # True if it was refused only because no person was available.
    final: bool = False  # True if it was refused without instructions for the model: then the run ends, too.


def build_permission_request(action: OpenAction, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The request that a program is shown: a command, a change of a file, or the call of any other tool."""
    common = {"toolCallId": action.call, "intention": action.reason or f"{to_shown_name(name)} wants to go on"}
    if name == COMMAND_TOOL:
        command = str(arguments.get("command", ""))
        program = command.split()[0] if command.split() else ""
        return common | {
            "kind": "shell",
            "fullCommandText": command,
            "commands": [{"identifier": program, "readOnly": is_read_only_command(command)}],
            "possiblePaths": [],
            "possibleUrls": [{"url": host} for host in action.network],
            "hasWriteFileRedirection": ">" in command,
            "canOfferSessionApproval": find_rule(action, "chat") is not None,
            "warning": action.reason if action.severity in ("high", "critical") else None,
        }
    if name in EDIT_TOOLS:
        content = arguments.get("content")
        return common | {
            "kind": "write",
            "fileName": str(arguments.get("path", "")),
            "diff": action.text.partition("\n\n")[2] or action.text,
            "canOfferSessionApproval": find_rule(action, "chat") is not None,
            **({"newFileContents": content} if isinstance(content, str) else {}),
        }
    server, mark, tool = name.partition(SERVER_MARK)
    if mark:
        tool_fields = {"serverName": server, "toolName": tool, "toolTitle": tool, "args": dict(arguments)}
        return common | tool_fields | {"kind": "mcp", "readOnly": False}
    return build_custom_request(action.call, to_shown_name(name), action.text, to_shown_arguments(name, arguments))


def build_custom_request(call: str, name: str, description: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    tool = {"toolCallId": call, "toolName": name, "toolDescription": description}
    return {"kind": "custom-tool", **tool, "args": dict(arguments)}


def parse_decision(result: Mapping[str, Any]) -> Decision | None:
    """Translate a program's answer to a decision; None if it leaves the question to others."""
    if (kind := str(result.get("kind", ""))) in UNANSWERED:
        return None
    if kind.startswith("approve"):
        return Decision("allow", scope=_SCOPES.get(kind, "once"))
    feedback = result.get("feedback") or result.get("message") or result.get("reason")
    absent = "not-available" in kind or "could-not-request" in kind
    text = str(feedback) if feedback else NOBODY if absent else REJECTED
    return Decision("deny", text, absent=absent, final=text == REJECTED)


def find_rule(action: OpenAction, scope: RuleScope) -> Rule | None:
    """The first rule that was offered with the scope that the program chose; none if it was not offered."""
    offers = () if scope == "once" else action.offers
    return next((offer.rule_for(scope) for offer in offers if scope in offer.open_scopes), None)
