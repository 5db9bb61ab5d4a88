"""`treadle run`: give a model a task, in a new chat or in one that exists."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from treadle.base.file_system import is_below
from treadle.base.inert import inert_line, print_note
from treadle.errors import ConfigError, InvalidInput
from treadle.frontends.cli.options import (
    EXIT_ERROR,
    FiniteFloat,
    NetworkCommand,
    effort_option,
    gathered,
    json_option,
    network_option,
    root_options,
)

if TYPE_CHECKING:
    from treadle.library.agent import Agent
    from treadle.library.chat import Chat
    from treadle.library.config import Config
    from treadle.protocol.content import Image

OWN_WORLD = "chat"
MODES = ("read-only", "confirm", "review", "ask", "auto-edit", "autopilot")
ON_LIMIT = ("ask", "answer", "error")
COMPLETION = ("tool", "marker")
PRESETS = ("strict",)
RUNGS = ("native", "text", "plain")
"""The same as in `treadle.protocol.options`, which a test sees to; written out so that help costs no import."""


class Task(NamedTuple):
    """The flags that are no settings; None if absent."""

    prompt: str | None
    no_stdin: bool
    chat: str | None
    root: str | None
    force_root: bool
    system: str | None
    """The file with the system prompt."""
    tools: str | None
    agent: str | None
    output_schema: str | None
    """The file with the JSON Schema of the answer."""
    interactive: bool | None
    world: str | None
    """Its id, or that it is one of its own."""

    def check(self) -> None:
        if self.no_stdin and self.prompt in (None, "-") and self.world in (None, OWN_WORLD):
            raise click.UsageError("--no-stdin leaves no prompt: write the task as PROMPT.")


@click.command("run", cls=NetworkCommand)
@click.argument("prompt", required=False)
@click.option("--model", metavar="PROVIDER:NAME", help="The model, or your alias for one; by default one is found.")
@click.option("--profile", metavar="NAME", help="A profile of config.toml; flags override it.")
@root_options
@click.option("--preset", type=click.Choice(PRESETS), help="A named set of options; other flags override it.")
@click.option("--mode", type=click.Choice(MODES), help="What the model may do without asking.")
@click.option(
    "--max-turns", type=click.IntRange(min=1), metavar="N", help="The turn cap: model calls a run may make (100)."
)
@click.option("--on-limit", type=click.Choice(ON_LIMIT), help="What happens at the turn cap.")
@click.option("--budget-usd", type=FiniteFloat(min=0), metavar="X", help="Budget in US dollars; 0 is no limit.")
@click.option("--budget-tokens", type=click.IntRange(min=0), metavar="N", help="Budget in tokens.")
@click.option("--budget-wall-s", type=FiniteFloat(min=0), metavar="S", help="Budget in seconds of work.")
@click.option("--budget-turns", type=click.IntRange(min=0), metavar="N", help="Budget in turns, without a last answer.")
@click.option("--budget-tool-calls", type=click.IntRange(min=0), metavar="N", help="Budget in tool calls.")
@click.option("--check", "checks", multiple=True, metavar="CMD", help="A command that must succeed at the end.")
@click.option("--tools", metavar="A,B", help="The only tools that the model may use.")
@click.option("--agent", metavar="NAME", help="The custom agent to use.")
@click.option("--system", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="The system prompt.")
@click.option(
    "--output-schema",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="A JSON Schema: print nothing but an answer that fits it.",
)
@click.option("--completion", type=click.Choice(COMPLETION), help="How the model says that it is done.")
@click.option("--tool-calls", "rung", type=click.Choice(RUNGS), help="How the model calls tools; detected by default.")
@effort_option
@network_option
@click.option(
    "--world",
    is_flag=False,
    flag_value=OWN_WORLD,
    metavar="[=ID]",
    help="Work in a world: the project changes only when it is committed.",
)
@click.option("--git-branch", is_flag=True, default=None, help="Work on a new git branch.")
@click.option(
    "--auto-approve-commands", is_flag=True, default=None, help="Run commands without asking, except critical ones."
)
@click.option(
    "--interactive/--headless",
    default=None,
    help="Wait for approvals and answers, or refuse calls that need one; on a terminal you are asked.",
)
@click.option("--chat", metavar="ID", help="Continue this chat instead of starting one.")
@click.option("--no-stdin", is_flag=True, help="Do not read standard input, even if something is piped in.")
@json_option("Print every event as one line of JSON.")
@gathered(Task, "task")
def run(task: Task, as_json: bool, checks: tuple[str, ...], **flags: Any) -> int:
    """Give a model a task in a project and watch it work.

    PROMPT is the task; without it, or with -, it is read from standard input. Text piped in with a PROMPT is
    context for it: git diff | treadle run "review this". ID is a chat's id, the beginning of it, or last.

    Exit codes: 0 done, 1 error, 2 usage, 53 turn cap, 54 incomplete answer, 55 budget, 56 waits for an answer, 57 done,
    but something was refused because no person could be asked, 130 interrupted.
    """
    task = _with_world(task)
    _require_sense(task, flags, as_json)
    from treadle.adapters.models.providers import preload_tls

    # Before what follows, which takes long, too.
    preload_tls(flags["model"] or os.environ.get("TREADLE_MODEL", ""), os.environ)
    import asyncio

    from treadle.frontends.cli.session import configured

    return asyncio.run(_run(configured({**flags, "checks": checks or None}), task, as_json))


async def _run(config: "Config", task: Task, as_json: bool) -> int:
    from treadle.frontends.cli.session import open_agent
    from treadle.library.housekeeping.retention import is_due, retention_of

    async with open_agent(config, works=True) as agent:
        code = await _work(agent, config, task, as_json)
        if code < 128 and is_due(config.home):  # a user who stopped the run does not wait for this
            from treadle.library.housekeeping.collecting import now_and_then

            await now_and_then(agent.deps.store, config.home, retention_of(config.settings))
        return code


async def _work(agent: "Agent", config: "Config", task: Task, as_json: bool) -> int:
    from treadle.frontends.cli.dialogue import follow, someone_is_there

    text = _text(task)
    asks = not as_json and task.output_schema is None and task.interactive is not False and someone_is_there()
    if asks and task.interactive is None:
        task = task._replace(interactive=True)
    after_seq, model = 0, config.settings.model
    _require_tools(agent, task)
    if task.chat is None:
        chat, model = await _new_chat(agent, config, task)
    else:
        chat, after_seq, model = await _old_chat(agent, config, task, task.chat)
    if not await _tell_recipient(agent, model, asks=asks):
        return EXIT_ERROR
    await chat.open()
    agent.remember_model(model)
    typed = text if task.prompt in (None, "-") else str(task.prompt)
    images: tuple[Image, ...] = ()
    if typed.startswith("/") or "@" in typed:
        from treadle.library.message_expansion import expand_message

        message, images = await expand_message(agent, (await chat.state()).options, typed)
        text = message + text.removeprefix(typed)
    if task.output_schema is not None:
        from treadle.frontends.cli.structured_run import print_output

        return await print_output(chat, text, _read(task.output_schema, "the output schema"), after_seq)
    stream = chat.send(text, images=images, traceparent=os.environ.get("TRACEPARENT", ""))
    return await follow(chat, stream, after_seq, as_json=as_json, asks=asks)


def _with_world(task: Task) -> Task:
    """A world of its own, if it was not said which: then what stands behind `--world` is the prompt."""
    if task.world in (None, OWN_WORLD) or task.world.startswith("world_") or task.prompt is not None:
        return task
    return task._replace(prompt=task.world, world=OWN_WORLD)


def _require_sense(task: Task, flags: dict[str, Any], as_json: bool) -> None:
    """Refuse contradictory flags before the run begins."""
    mode, plain = flags["mode"], flags["rung"] == "plain"
    contradictions = (
        (mode == "read-only" and flags["auto_approve_commands"], "--mode read-only and --auto-approve-commands"),
        (mode == "read-only" and flags["git_branch"], "--mode read-only and --git-branch"),
        (task.interactive is False and flags["on_limit"] == "ask", "--headless and --on-limit ask"),
        (plain and task.tools, "--tool-calls plain and --tools"),
        (as_json and task.output_schema is not None, "--json and --output-schema"),
        (plain and flags["completion"] == "tool", "--tool-calls plain and --completion tool"),
    )
    for is_contradiction, words in contradictions:
        if is_contradiction:
            raise click.UsageError(f"{words} exclude each other.")


def _text(task: Task) -> str:
    """The task with what was piped in; it alone if no task is named."""
    from treadle.frontends.cli.piped import LIMIT, is_piped, read_text, with_context

    piped_text = ""
    if task.prompt == "-" or (not task.no_stdin and is_piped()):
        shorter = "pass a part of it (… | tail -c 100000), or put it into a file and name that"
        piped_text = read_text(LIMIT, shorter, " (go without it: --no-stdin)")
    if task.prompt is None and not piped_text.strip():
        raise click.UsageError("Missing argument 'PROMPT': write the task, or pipe it in.")
    alone = task.prompt in (None, "-")
    text = piped_text if alone else str(task.prompt)
    if not text.strip():
        raise InvalidInput("the prompt is empty; write a task")
    return text if alone or not piped_text.strip() else with_context(text, piped_text)


def _require_tools(agent: "Agent", task: Task) -> None:
    """Tools that do not exist are named before a model has to do without them."""
    if not task.tools:
        return
    from treadle.errors import unknown_names
    from treadle.protocol.options import ChatOptions

    tool_names = [spec.name for spec in agent.deps.tools.specs(ChatOptions(interactive=True))]
    # Tools of MCP servers are known when their servers run; their names have two underlines (and may have a star).
    requested_names = [name for name in _names(task.tools) if "__" not in name]
    if unknown := unknown_names("tool", requested_names, tool_names):
        raise InvalidInput(f"{unknown} The tools are: {', '.join(sorted(tool_names))}")


def _names(words: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (words or "").split(",") if name.strip())


async def _new_chat(agent: "Agent", config: "Config", task: Task) -> "tuple[Chat, str]":
    from treadle.frontends.cli.session import chosen_model

    root = str(_root(config, task))
    changes = {**_as_agent(agent, config, task, root), **_collect_options(task)}
    changes["model"] = model = changes.get("model") or await chosen_model(agent, config)
    agent.deps.models.get(model)
    if config.sources["reasoning_effort"].startswith("flag "):
        changes["reasoning_effort"] = config.settings.reasoning_effort
    return agent.chat(options=config.settings.chat_options(root), **changes), model


def _as_agent(agent: "Agent", config: "Config", task: Task, root: str) -> dict[str, Any]:
    """Return the options of the custom agent. A flag takes precedence."""
    if task.agent is None:
        return {}
    from treadle.frontends.presentation.slash import agent_changes
    from treadle.protocol.options import Project

    changes = agent_changes(agent.custom_agents(Project(root)), task.agent)
    for name in ("model", "reasoning_effort"):
        if config.sources[name].startswith("flag "):
            changes.pop(name, None)
    return changes


def _root(config: "Config", task: Task) -> Path:
    from treadle.frontends.cli.session import project_root, warn

    root = project_root(task.root, force=task.force_root)
    if is_below(str(config.home.resolve()), str(root)):
        warn([f"Treadle's home {config.home} lies inside the project, where the model can reach it; move TREADLE_HOME"])
    return root


async def _old_chat(agent: "Agent", config: "Config", task: Task, chat_ref: str) -> "tuple[Chat, int, str]":
    """A chat that exists keeps its options, except for those that a flag names."""
    import msgspec

    from treadle.frontends.cli.session import chosen_model, find_chat
    from treadle.library.config import BUDGETS, OF_CHATS

    store = agent.deps.store
    chat_id = await find_chat(store, chat_ref)
    options = (await agent.chat(chat_id).state()).options
    changes = {**_as_agent(agent, config, task, options.root), **_collect_options(task)}
    for name, source in config.sources.items():
        if source.startswith("flag ") and (name in OF_CHATS or name in BUDGETS):
            changes[name] = getattr(config.settings, name)
    changes.pop("preset", None)  # the settings of the preset are in `changes` by name
    if budget := {kind: changes.pop(name) for name, kind in BUDGETS.items() if name in changes}:
        changes["run_budget"] = msgspec.to_builtins(msgspec.structs.replace(options.run_budget, **budget))
    if task.root is not None:
        changes["root"] = str(_root(config, task))
    if not changes.get("model", options.model):
        changes["model"] = await chosen_model(agent, config)
    model = changes.get("model", options.model)
    agent.deps.models.get(model)
    return agent.chat(chat_id, **changes), await store.head(chat_id), model


def _collect_options(task: Task) -> dict[str, Any]:
    option_changes: dict[str, Any] = {}
    if task.system is not None:
        option_changes["system_prompt"] = _read(task.system)
    if task.tools is not None:
        option_changes["tools"] = _names(task.tools)
    if task.interactive is not None:
        option_changes["interactive"] = task.interactive
    if task.world is not None:
        option_changes["world"] = task.world
    return option_changes


def _read(file: str, label: str = "the system prompt") -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{label} {file} cannot be read: {error}") from error


async def _tell_recipient(agent: "Agent", model: str, *, asks: bool) -> bool:
    """Tell the user, once for each provider, which provider receives the project (S-10): as a question if `asks`,
    otherwise in a line on standard error. False if the run may not begin."""
    from treadle.adapters.policy.consent import disclosure
    from treadle.frontends.cli.dialogue import agreed

    missing_consent = agent.consent.missing(model)
    if not missing_consent:
        return True
    notice_text = inert_line(disclosure(missing_consent))
    if not asks:
        print_note(f"treadle: {notice_text} (shown once; see the setting `consent`)")
    elif not await agreed(f"{notice_text[0].upper()}{notice_text[1:]}.\nGo on? [y]es, and do not ask again · [n]o: "):
        print_note("treadle: nothing was sent")
        return False
    try:
        agent.consent.give(missing_consent)
    except ConfigError as error:  # then it is told again the next time
        print_note(f"treadle: {inert_line(str(error))}")
    return True
