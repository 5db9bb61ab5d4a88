"""`treadle run`: give a model a task, in a new chat or in one that exists."""

import asyncio
import sys
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from treadle.cli.drive import drive
from treadle.cli.output import JsonLines
from treadle.cli.project import project_root
from treadle.cli.screen import Screen
from treadle.cli.session import configured, find_chat, open_agent
from treadle.config import Config
from treadle.errors import ConfigError, InvalidInput
from treadle.handle import Chat
from treadle.protocol.options import MODES, OnLimit
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
    tools: tuple[str, ...] | None
    interactive: bool


@click.command("run")
@click.argument("prompt")
@click.option("--model", metavar="PROVIDER:NAME", help="The model to work with.")
@click.option("--root", metavar="DIR", help="The project; without it the git root, else the working directory.")
@click.option("--force-root", is_flag=True, help="Allow the whole disk or the home folder as the project.")
@click.option("--mode", type=click.Choice(MODES), help="What the model may do without asking.")
@click.option("--max-turns", type=click.IntRange(min=1), metavar="N", help="How many model calls the run may make.")
@click.option("--on-limit", type=click.Choice(get_args(OnLimit)), help="What happens when they are used up.")
@click.option("--budget-usd", type=click.FloatRange(min=0), metavar="X", help="What the run may cost; 0 is no limit.")
@click.option("--tools", metavar="A,B", help="The only tools that the model may use.")
@click.option("--system", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="The system prompt.")
@click.option("--interactive", is_flag=True, help="Let approvals and questions wait for an answer; see resume.")
@click.option("--chat", metavar="ID", help="Go on with this chat instead of beginning one.")
@click.option("--json", "as_json", is_flag=True, help="Print every event as one line of JSON.")
def command(
    prompt: str,
    root: str | None,
    force_root: bool,
    tools: str | None,
    system: str | None,
    interactive: bool,
    chat: str | None,
    as_json: bool,
    **flags: Any,
) -> int:
    """Give a model a task in a project and watch it work.

    PROMPT is the task; with - it is read from standard input. ID is a chat's id, the beginning of it, or last.
    """
    names = tuple(name.strip() for name in tools.split(",") if name.strip()) if tools is not None else None
    text = Path(system).read_text(encoding="utf-8") if system else None
    wanted = Wanted(_task(prompt), chat, root, force_root, text, names, interactive)
    return asyncio.run(_run(configured(flags), wanted, as_json))


def _task(prompt: str) -> str:
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise InvalidInput("the prompt is empty; say what is to be done")
    return text


async def _run(config: Config, wanted: Wanted, as_json: bool) -> int:
    async with open_agent(config, works=True) as agent:
        after = 0
        if wanted.chat is None:
            chat = _new_chat(agent, config, wanted)
        else:
            chat, after = await _old_chat(agent, config, wanted)
        await chat.open()
        following = chat.send(wanted.prompt)
        if as_json:
            return await drive(chat, following, JsonLines(), after)
        screen = Screen()
        state = await chat.state()
        screen.begin(chat.id, state.options.model, state.options.root)
        screen.knows(state)
        return await drive(chat, following, screen, after)


def _new_chat(agent: Agent, config: Config, wanted: Wanted) -> Chat:
    _require_model(agent, config.settings.model)
    root = str(project_root(wanted.root, force=wanted.force_root))
    return agent.chat(options=config.settings.chat_options(root), **_said(wanted))


async def _old_chat(agent: Agent, config: Config, wanted: Wanted) -> tuple[Chat, int]:
    """A chat that exists keeps its options, except for those that a flag names."""
    store = agent.deps.store
    found = await find_chat(store, wanted.chat or "")
    options = (await agent.chat(found).state()).options
    changes = _said(wanted)
    for name, source in config.sources.items():
        if source.startswith("flag "):
            changes[name] = getattr(config.settings, name)
    if (usd := changes.pop("budget_usd", None)) is not None:
        changes["run_budget"] = msgspec.to_builtins(msgspec.structs.replace(options.run_budget, usd=usd))
    if wanted.root is not None:
        changes["root"] = str(project_root(wanted.root, force=wanted.force_root))
    if not options.model:
        changes.setdefault("model", config.settings.model)
    _require_model(agent, changes.get("model", options.model))
    return agent.chat(found, **changes), await store.head(found)


def _said(wanted: Wanted) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if wanted.system is not None:
        said["system_prompt"] = wanted.system
    if wanted.tools is not None:
        said["tools"] = wanted.tools
    if wanted.interactive:
        said["interactive"] = True
    return said


def _require_model(agent: Agent, ref: str) -> None:
    """A model that cannot be used is found out before anything is written."""
    if not ref:
        raise ConfigError(NO_MODEL)
    agent.deps.models.get(ref)
