"""Descriptions of Treadle's objects for programs: sessions, models, tools, custom agents."""

from typing import Any

from treadle.frontends.copilot_words.config import CustomAgent
from treadle.frontends.copilot_words.events import stamp
from treadle.frontends.copilot_words.names import shown_name
from treadle.ports.model import ModelInfo
from treadle.ports.store import Listed
from treadle.protocol.tools import ToolSpec


def session_shown(listed: Listed) -> dict[str, Any]:
    summary = listed.summary
    fields: dict[str, Any] = {
        "sessionId": summary.chat,
        "startTime": stamp(summary.created_ms),
        "modifiedTime": stamp(summary.updated_ms),
        "isRemote": False,
        "context": {"cwd": summary.root},
    }
    return {**fields, "summary": summary.title} if summary.title else fields


def model_shown(name: str, info: ModelInfo) -> dict[str, Any]:
    limits = {"max_context_window_tokens": info.window, "max_prompt_tokens": info.window - info.max_output}
    efforts = info.offered_efforts
    supports = {"vision": info.vision, "reasoningEffort": bool(efforts)}
    fields = {"id": name, "name": info.name, "capabilities": {"supports": supports, "limits": limits}}
    return {**fields, "supportedReasoningEfforts": list(efforts)} if efforts else fields


def tool_shown(spec: ToolSpec) -> dict[str, Any]:
    schema = spec.parameters
    return {"name": shown_name(spec.name), "description": spec.description, "parameters": schema, "inputSchema": schema}


def agent_shown(agent: CustomAgent) -> dict[str, Any]:
    fields = {"id": agent.name, "name": agent.name, "displayName": agent.display_name or agent.name}
    more = {
        "model": agent.model,
        "reasoningEffort": agent.reasoning_effort,
        "tools": agent.tools,
        "skills": agent.skills,
        "prompt": agent.prompt,
    }
    return {**fields, "description": agent.description or "", **{name: value for name, value in more.items() if value}}
