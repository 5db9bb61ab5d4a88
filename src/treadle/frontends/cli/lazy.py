"""Modules that commands use. Each is loaded when one of its names is first used, so that the help of a command loads
none of them (U-06). The type checker sees the modules themselves, and the classes that only annotations name."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = [
    "Agent", "Chat", "Config", "applying", "asyncio", "c", "changes", "chat_files", "chat_options", "chat_state",
    "collecting", "command_stream", "damage", "demo_project", "dialogue", "diff_changes", "drive", "e", "expansion",
    "library_config", "mcp_settings", "model_registry", "msgspec", "notices", "permissions", "piped",
    "retention", "rule_book", "session", "slash", "snapshots", "sqlite", "stores", "toolset", "transfer", "trust_book",
    "views", "webbrowser", "wire",
]  # fmt: skip

if TYPE_CHECKING:
    import asyncio
    import webbrowser

    import msgspec

    from treadle.adapters import stores
    from treadle.adapters.models import registry as model_registry
    from treadle.adapters.policy import rules as rule_book
    from treadle.adapters.policy import trust as trust_book
    from treadle.adapters.stores import sqlite
    from treadle.chat import applying
    from treadle.chat import state as chat_state
    from treadle.diff import changes as diff_changes
    from treadle.frontends.cli import changes, demo_project, dialogue, drive, piped, session
    from treadle.frontends.presentation import notices, slash
    from treadle.library import command_stream, transfer
    from treadle.library import config as library_config
    from treadle.library import files as chat_files
    from treadle.library import message_expansion as expansion
    from treadle.library.agent import Agent
    from treadle.library.chat import Chat
    from treadle.library.config import Config
    from treadle.library.housekeeping import collecting, damage, retention
    from treadle.library.mcp_hub import settings as mcp_settings
    from treadle.ports import snapshots, toolset
    from treadle.protocol import commands as c
    from treadle.protocol import events as e
    from treadle.protocol import options as chat_options
    from treadle.protocol import permissions, views, wire
else:

    class _Lazy:
        def __init__(self, module: str) -> None:
            self._module = module

        def __getattr__(self, name: str) -> Any:
            return getattr(import_module(self._module), name)

    Agent = Chat = Config = Any
    asyncio, msgspec, webbrowser = _Lazy("asyncio"), _Lazy("msgspec"), _Lazy("webbrowser")
    changes, demo_project, dialogue, drive, piped, session = (
        _Lazy(f"treadle.frontends.cli.{name}")
        for name in ("changes", "demo_project", "dialogue", "drive", "piped", "session")
    )
    c, chat_options, e, permissions, views, wire = (
        _Lazy(f"treadle.protocol.{name}") for name in ("commands", "options", "events", "permissions", "views", "wire")
    )
    chat_files, expansion, command_stream, library_config, mcp_settings, transfer = (
        _Lazy(f"treadle.library.{name}")
        for name in ("files", "message_expansion", "command_stream", "config", "mcp_hub.settings", "transfer")
    )
    collecting, damage, retention = (
        _Lazy(f"treadle.library.housekeeping.{name}") for name in ("collecting", "damage", "retention")
    )
    model_registry, rule_book, trust_book = (
        _Lazy(f"treadle.adapters.{name}") for name in ("models.registry", "policy.rules", "policy.trust")
    )
    stores, sqlite = _Lazy("treadle.adapters.stores"), _Lazy("treadle.adapters.stores.sqlite")
    notices, slash = (_Lazy(f"treadle.frontends.presentation.{name}") for name in ("notices", "slash"))
    applying, chat_state = _Lazy("treadle.chat.applying"), _Lazy("treadle.chat.state")
    diff_changes, snapshots = _Lazy("treadle.diff.changes"), _Lazy("treadle.ports.snapshots")
    toolset = _Lazy("treadle.ports.toolset")
