"""The reasoning effort in the words of servers that speak Chat Completions (M-16). The protocol has `reasoning_effort`;
some servers tell it in a field of their own, or know only on and off."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from treadle.protocol.options import ReasoningEffort

EffortFields = Callable[[ReasoningEffort], dict[str, Any]]


def _by_name(effort: ReasoningEffort) -> dict[str, Any]:
    return {"reasoning_effort": effort}


def _openrouter(effort: ReasoningEffort) -> dict[str, Any]:
    return {"reasoning": {"effort": effort}}


def _switch(effort: ReasoningEffort) -> dict[str, Any]:
    """DeepSeek, Z.ai and Kimi: a switch, and the level beside it."""
    if effort == "none":
        return {"thinking": {"type": "disabled"}}
    return {"thinking": {"type": "enabled"}, "reasoning_effort": effort}


def _groq_qwen(effort: ReasoningEffort) -> dict[str, Any]:
    """Qwen on Groq: `default` is the word for thinking."""
    return {"reasoning_effort": "none" if effort == "none" else "default"}


def _together(effort: ReasoningEffort) -> dict[str, Any]:
    if effort == "none":
        return {"reasoning": {"enabled": False}}
    return {"reasoning_effort": effort}


def _qwen(effort: ReasoningEffort) -> dict[str, Any]:
    return {"enable_thinking": effort != "none"}


def _template(effort: ReasoningEffort) -> dict[str, Any]:
    """vLLM and llama.cpp: the template of the model's prompt takes the effort. Templates know one of these words or the
    other, and ignore the rest."""
    thinks = effort != "none"
    words = {"enable_thinking": thinks, **({"reasoning_effort": effort} if thinks else {})}
    return {"chat_template_kwargs": words}


EFFORT_STYLES: Mapping[str, EffortFields] = {
    "": _by_name,
    "openrouter": _openrouter,
    "switch": _switch,
    "groq-qwen": _groq_qwen,
    "together": _together,
    "qwen": _qwen,
    "template": _template,
}
"""By the word in a row of `treadle.adapters.models.providers`."""

EFFORT_FIELDS = ("reasoning_effort", "reasoning", "thinking", "enable_thinking", "chat_template_kwargs")
"""All fields that these use."""

_HOSTS = (
    (re.compile(r"(?:^|\.)(?:z\.ai|bigmodel\.cn|deepseek\.com|moonshot\.(?:ai|cn))$"), "switch"),
    (re.compile(r"(?:^|\.)(?:dashscope[\w-]*\.aliyuncs\.com|maas\.aliyuncs\.com)$"), "qwen"),
    (re.compile(r"(?:^|\.)openrouter\.ai$"), "openrouter"),
    (re.compile(r"(?:^|\.)together\.(?:xyz|ai)$"), "together"),
)
"""Servers that are known by their address, where a user names nothing else."""


def style_of_host(host: str) -> str:
    return next((style for pattern, style in _HOSTS if pattern.search(host.partition(":")[0].lower())), "")
