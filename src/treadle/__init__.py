"""Treadle: an agentic tool-calling loop that you can kill at any moment.

Public names are loaded when they are first used, so that `import treadle` costs nothing."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from treadle._version import __version__ as __version__

if TYPE_CHECKING:
    from treadle.adapters.models.scripted import ScriptedModel as ScriptedModel
    from treadle.adapters.tools.function import tool as tool
    from treadle.errors import TreadleError as TreadleError
    from treadle.library.agent import Agent as Agent
    from treadle.library.chat import Chat as Chat
    from treadle.library.command_stream import Answer as Answer
    from treadle.ports.toolset import Invocation as Invocation
    from treadle.ports.toolset import Outcome as Outcome
    from treadle.protocol.events import Envelope as Envelope
    from treadle.protocol.events import OpenAction as OpenAction
    from treadle.protocol.options import Budget as Budget
    from treadle.protocol.options import ChatOptions as ChatOptions
    from treadle.protocol.simple import SimpleView as SimpleView
    from treadle.protocol.tools import DynamicTool as DynamicTool

_WHERE = {
    "Agent": "treadle.library.agent",
    "Answer": "treadle.library.command_stream",
    "Budget": "treadle.protocol.options",
    "Chat": "treadle.library.chat",
    "ChatOptions": "treadle.protocol.options",
    "DynamicTool": "treadle.protocol.tools",
    "Envelope": "treadle.protocol.events",
    "Invocation": "treadle.ports.toolset",
    "OpenAction": "treadle.protocol.events",
    "Outcome": "treadle.ports.toolset",
    "ScriptedModel": "treadle.adapters.models.scripted",
    "SimpleView": "treadle.protocol.simple",
    "TreadleError": "treadle.errors",
    "tool": "treadle.adapters.tools.function",
}

__all__ = sorted([*_WHERE, "__version__"])


def __getattr__(name: str) -> Any:
    module_name = _WHERE.get(name)
    if module_name is None:
        raise AttributeError(f"module 'treadle' has no attribute {name!r}")
    return getattr(import_module(module_name), name)


def __dir__() -> list[str]:
    return __all__
