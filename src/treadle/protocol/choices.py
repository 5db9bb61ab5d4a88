"""The values that options of a chat may have, from which all front ends take them. Loads nothing, so that the help of a
command has them at once."""

from typing import Literal, get_args

Mode = Literal["read-only", "confirm", "review", "ask", "auto-edit", "autopilot"]
"""The actions that need no approval (S-07), from the fewest to the most; see `treadle.adapters.policy.standard`."""
TitleChoice = Literal["auto", "on", "off"]
"""The models that write titles of chats. auto: all but those that only play a script."""
OnLimit = Literal["ask", "answer", "error"]
OnGuard = Literal["ask", "stop"]
OnDeadline = Literal["continue", "error"]
CompletionStyle = Literal["tool", "marker"]
Rung = Literal["native", "text", "plain"]
"""How a model calls tools (M-07): by its protocol, in its text, or not at all."""
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model thinks before it answers (M-16), from the least to the most. A model may know only some of these."""
SandboxChoice = Literal["auto", "bubblewrap", "landlock", "sandbox-exec", "none"]
"""auto: the strongest that works on this machine (S-03)."""
Preset = Literal["strict"]
RuleEffect = Literal["allow", "ask", "deny"]
RuleScope = Literal["once", "chat", "project", "user"]
"""How far a rule reaches. `once`: only the call that was asked about; it is no standing rule."""

OWN_WORLD = "chat"
"""The value of the option `world` by which a new chat gets a world of its own."""
MODES: tuple[Mode, ...] = get_args(Mode)
EFFORTS: tuple[ReasoningEffort, ...] = get_args(ReasoningEffort)
BEYOND: tuple[RuleScope, ...] = ("project", "user")
"""Scopes of rules that are kept outside the chat's log."""
STANDING: tuple[RuleScope, ...] = ("chat", *BEYOND)
"""Scopes of rules that answer later questions, too."""
