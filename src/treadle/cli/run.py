"""`treadle run`: give a model a task, in a new chat or in one that exists."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from treadle.cli.consent import tell_recipient
from treadle.cli.dialogue import Dialogue, converse, someone_is_there
from treadle.cli.drive import EXIT_ERROR, drive
from treadle.cli.output import JsonLines
from treadle.cli.project import project_root
from treadle.cli.screen import Screen
from treadle.cli.session import configured, find_chat, open_agent, warn
from treadle.cli.terminal import Terminal
from treadle.config import BUDGETS, Config
from treadle.errors import ConfigError, InvalidInput
from treadle.file_system import is_below
from treadle.handle import Chat
from treadle.housekeeping.retention import is_due, retention_of
from treadle.runtime import Agent

NO_MODEL = (
    "no model is set. Name one with --model openai:gpt-4.1 (or TREADLE_MODEL, or `model` in config.toml) and put its "
    "key into OPENAI_API_KEY; or see Treadle work without any key: treadle demo"
)


class Wanted(msgspec.Struct, frozen=True):
    """What the flags say; None was not said."""

    prompt: str
    chat: str | None
    root: str | None
    force_root: bool
    system: str | None
    """The file with the system prompt."""
    tools: str | None
    interactive: bool | None


def run(wanted: Wanted, flags: Mapping[str, Any], as_json: bool) -> int:
    """`flags` are settings, by their names; the rest of what was typed is in `wanted`."""
    return asyncio.run(_run(configured(flags), wanted, as_json))


def _task(prompt: str) -> str:
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise InvalidInput("the prompt is empty; say what is to be done")
    return text


async def _run(config: Config, wanted: Wanted, as_json: bool) -> int:
    async with open_agent(config, works=True) as agent:
        code = await _work(agent, config, wanted, as_json)
        if code < 128 and is_due(config.home):  # nobody who stopped it waits for that
            from treadle.housekeeping.collecting import now_and_then

            await now_and_then(agent.deps.store, config.home, retention_of(config.settings))
        return code


async def _work(agent: Agent, config: Config, wanted: Wanted, as_json: bool) -> int:
    asks = not as_json and wanted.interactive is not False and wanted.prompt != "-" and someone_is_there()
    if asks and wanted.interactive is None:
        wanted = msgspec.structs.replace(wanted, interactive=True)
    after, model = 0, config.settings.model
    task = _task(wanted.prompt)
    if wanted.chat is None:
        chat = _new_chat(agent, config, wanted)
    else:
        chat, after, model = await _old_chat(agent, config, wanted)
    if not await tell_recipient(agent, model, asks=asks):
        return EXIT_ERROR
    await chat.open()
    following = chat.send(task)
    if as_json:
        return await drive(chat, following, JsonLines(), after)
    terminal = Terminal()
    screen = Screen(terminal, asks=asks)
    state = await chat.state()
    screen.begin(chat.id, state.options.model, state.options.root)
    screen.knows(state)
    return await converse(chat, following, screen, after, Dialogue(terminal) if asks else None)


def _new_chat(agent: Agent, config: Config, wanted: Wanted) -> Chat:
    _require_model(agent, config.settings.model)
    root = str(_root(config, wanted))
    return agent.chat(options=config.settings.chat_options(root), **_said(wanted))


def _root(config: Config, wanted: Wanted) -> Path:
    root = project_root(wanted.root, force=wanted.force_root)
    if is_below(str(config.home.resolve()), str(root)):
        warn([f"Treadle's home {config.home} lies inside the project, where the model can reach it; move TREADLE_HOME"])
    return root


async def _old_chat(agent: Agent, config: Config, wanted: Wanted) -> tuple[Chat, int, str]:
    """A chat that exists keeps its options, except for those that a flag names."""
    store = agent.deps.store
    found = await find_chat(store, wanted.chat or "")
    options = (await agent.chat(found).state()).options
    changes = _said(wanted)
    for name, source in config.sources.items():
        if source.startswith("flag "):
            changes[name] = getattr(config.settings, name)
    changes.pop("preset", None)  # what it means is there by name
    if budget := {kind: changes.pop(name) for name, kind in BUDGETS.items() if name in changes}:
        changes["run_budget"] = msgspec.to_builtins(msgspec.structs.replace(options.run_budget, **budget))
    if wanted.root is not None:
        changes["root"] = str(_root(config, wanted))
    if not options.model:
        changes.setdefault("model", config.settings.model)
    model = changes.get("model", options.model)
    _require_model(agent, model)
    return agent.chat(found, **changes), await store.head(found), model


def _said(wanted: Wanted) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if wanted.system is not None:
        said["system_prompt"] = _read(wanted.system)
    if wanted.tools is not None:
        said["tools"] = tuple(name.strip() for name in wanted.tools.split(",") if name.strip())
    if wanted.interactive is not None:
        said["interactive"] = wanted.interactive
    return said


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the system prompt {file} cannot be read: {error}") from error


def _require_model(agent: Agent, ref: str) -> None:
    """A model that cannot be used is found out before anything is written."""
    if not ref:
        raise ConfigError(NO_MODEL)
    agent.deps.models.get(ref)
