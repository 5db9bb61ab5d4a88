"""Translates approvals: the permission request for a program, and the program's answer."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from treadle.adapters.tools.registry import SERVER_MARK
from treadle.frontends.copilot_words.names import shown_arguments, shown_name
from treadle.protocol.events import OpenAction
from treadle.protocol.permissions import Rule, RuleScope
from treadle.protocol.tools import COMMAND_TOOL, EDIT_TOOLS, only_looks

_SCOPES: Mapping[str, RuleScope] = {
    "approve-for-session": "chat",
    "approved-for-session": "chat",
    "approve-for-location": "project",
    "approved-for-location": "project",
    "approve-permanently": "user",
}
UNANSWERED = ("no-result", "noResult")
REJECTED = "The user rejected this tool call."
NOBODY = "Permission denied: could not request permission, because no person was there."


class Decision(msgspec.Struct, frozen=True):
    decision: Literal["allow", "deny"]
    feedback: str = ""
    scope: RuleScope = "once"
    absent: bool = False
    """True if it was refused only because no person was available."""
    final: bool = False
    """True if it was refused without instructions for the model: then the run ends, too."""


def build_permission_request(action: OpenAction, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The request that a program is shown: a command, a change of a file, or the call of any other tool."""
    common = {"toolCallId": action.call, "intention": action.reason or f"{shown_name(name)} wants to go on"}
    if name == COMMAND_TOOL:
        command = str(arguments.get("command", ""))
        program = command.split()[0] if command.split() else ""
        return common | {
            "kind": "shell",
            "fullCommandText": command,
            "commands": [{"identifier": program, "readOnly": only_looks(command)}],
            "possiblePaths": [],
            "possibleUrls": [{"url": host} for host in action.network],
            "hasWriteFileRedirection": ">" in command,
            "canOfferSessionApproval": rule_of(action, "chat") is not None,
            "warning": action.reason if action.severity in ("high", "critical") else None,
        }
    if name in EDIT_TOOLS:
        content = arguments.get("content")
        return common | {
            "kind": "write",
            "fileName": str(arguments.get("path", "")),
            "diff": action.text.partition("\n\n")[2] or action.text,
            "canOfferSessionApproval": rule_of(action, "chat") is not None,
            **({"newFileContents": content} if isinstance(content, str) else {}),
        }
    server, mark, tool = name.partition(SERVER_MARK)
    if mark:
        tool_fields = {"serverName": server, "toolName": tool, "toolTitle": tool, "args": dict(arguments)}
        return common | tool_fields | {"kind": "mcp", "readOnly": False}
    return custom_tool(action.call, shown_name(name), action.text, shown_arguments(name, arguments))


def custom_tool(call: str, name: str, description: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": "custom-tool",
        "toolCallId": call,
        "toolName": name,
        "toolDescription": description,
        "args": dict(arguments),
    }


def parse_decision(result: Mapping[str, Any]) -> Decision | None:
    """Translate a program's answer to a decision; None if it leaves the question to others."""
    kind = str(result.get("kind", ""))
    if kind in UNANSWERED:
        return None
    if kind.startswith("approve"):
        return Decision("allow", scope=_SCOPES.get(kind, "once"))
    feedback = result.get("feedback") or result.get("message") or result.get("reason")
    absent = "not-available" in kind or "could-not-request" in kind
    text = str(feedback) if feedback else NOBODY if absent else REJECTED
    return Decision("deny", text, absent=absent, final=text == REJECTED)


def rule_of(action: OpenAction, scope: RuleScope) -> Rule | None:
    """The first rule that was offered with the scope that the program chose; none if it was not offered."""
    offers = () if scope == "once" else action.offers
    return next((offer.rule_for(scope) for offer in offers if scope in offer.open_scopes), None)
