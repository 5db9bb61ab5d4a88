"""Which levels of reasoning effort models take, as data, by the beginning of their names (M-16). A model that is not
here and thinks is asked for any level: its server names those that it takes when it refuses one."""

from treadle.protocol.options import ReasoningEffort

Levels = tuple[ReasoningEffort, ...]

_NO_EFFORT: Levels = ()
_LOW_TO_HIGH: Levels = ("low", "medium", "high")
_LOW_TO_XHIGH: Levels = (*_LOW_TO_HIGH, "xhigh")
_LOW_TO_MAX: Levels = (*_LOW_TO_XHIGH, "max")
_ON_OR_OFF: Levels = ("none", "high")

LEVELS: dict[str, Levels] = {
    "gpt-3.5*": _NO_EFFORT,
    "gpt-4*": _NO_EFFORT,
    "gpt-5*": ("minimal", *_LOW_TO_HIGH),
    "gpt-5-pro*": ("high",),
    "gpt-5-codex*": _LOW_TO_HIGH,
    "gpt-5.1*": ("none", *_LOW_TO_HIGH),
    "gpt-5.1-codex*": _LOW_TO_HIGH,
    "gpt-5.1-codex-max*": _LOW_TO_XHIGH,
    "gpt-5.2*": ("none", *_LOW_TO_XHIGH),
    "gpt-5.2-codex*": _LOW_TO_XHIGH,
    "gpt-5.2-pro*": ("medium", "high", "xhigh"),
    "gpt-5.3*": ("none", *_LOW_TO_XHIGH),
    "gpt-5.3-codex*": _LOW_TO_XHIGH,
    "gpt-5.4*": ("none", *_LOW_TO_XHIGH),
    "gpt-5.5*": ("none", *_LOW_TO_XHIGH),
    "gpt-5.6*": ("none", *_LOW_TO_MAX),
    "gpt-6*": ("none", *_LOW_TO_MAX),
    "gpt-oss*": _LOW_TO_HIGH,
    "o1*": _LOW_TO_HIGH,
    "o3*": _LOW_TO_HIGH,
    "o4*": _LOW_TO_HIGH,
    # With a budget of tokens; see `anthropic.adapter`.
    "claude-3*": _NO_EFFORT,
    "claude-3-7*": ("none", *_LOW_TO_HIGH),
    "claude-opus-4*": ("none", *_LOW_TO_HIGH),
    "claude-sonnet-4*": ("none", *_LOW_TO_HIGH),
    "claude-haiku-4*": ("none", *_LOW_TO_HIGH),
    # By the name of the level.
    "claude-opus-4-6*": ("none", *_LOW_TO_HIGH, "max"),
    "claude-sonnet-4-6*": ("none", *_LOW_TO_HIGH),
    "claude-opus-4-7*": ("none", *_LOW_TO_MAX),
    "claude-opus-4-8*": ("none", *_LOW_TO_MAX),
    # These always think.
    "claude-fable*": _LOW_TO_MAX,
    "claude-mythos*": _LOW_TO_MAX,
    "gemini-2.0*": _NO_EFFORT,
    "gemini-2.5*": ("none", "minimal", *_LOW_TO_HIGH),
    "gemini-2.5-pro*": ("minimal", *_LOW_TO_HIGH),
    "gemini-3*": ("minimal", *_LOW_TO_HIGH),
    "gemini-3.1-pro*": _LOW_TO_HIGH,
    "gemini-4*": _LOW_TO_HIGH,
    "deepseek-flash*": ("none", "low", "high", "max"),
    "deepseek-v4*": ("none", "low", "high", "max"),
    "mistral-small-latest": _ON_OR_OFF,
    "mistral-small-2603": _ON_OR_OFF,
    "mistral-medium-3-5": _ON_OR_OFF,
    "mistral-medium-2604": _ON_OR_OFF,
    "mistral-medium-latest": _ON_OR_OFF,
    # They always think, and cannot be told how much.
    "magistral*": _NO_EFFORT,
    "grok-4.3*": ("none", *_LOW_TO_HIGH),
    "qwen3*": _ON_OR_OFF,
    "kimi-*": _ON_OR_OFF,
    "glm-4*": _ON_OR_OFF,
    "glm-5*": _ON_OR_OFF,
    "glm-5.2*": ("none", "low", "high", "max"),
    "glm-5.3*": ("low", "high", "max"),
}

RESELLERS = frozenset({"openrouter"})
"""Servers that take every level for every model that thinks, and translate it themselves."""
