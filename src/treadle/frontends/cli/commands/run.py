"""`treadle run`: give a model a task. `treadle resume`: go on with a chat, or give it what it waits for."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import click

from treadle.base.file_system import is_below
from treadle.base.inert import make_inert_line, print_note
from treadle.errors import ConfigError, InvalidInput, Refused, describe_unknown_names
from treadle.frontends.cli import options as o
from treadle.frontends.cli.group import pass_chat

from treadle.frontends.cli.lazy import (  # isort: skip
    Agent, Chat, Config, asyncio, c, chat_options, collecting, command_stream, dialogue, drive, e, expansion,
    library_config, msgspec, notices, piped, retention, session, slash,
)  # fmt: skip
from treadle.protocol.choices import MODES, OWN_WORLD, CompletionStyle, OnLimit, Preset, Rung

if TYPE_CHECKING:
    from treadle.protocol.content import Image


class Task(NamedTuple):
    """The flags that are no settings; None if absent."""

    prompt: str | None
    no_stdin: bool
    chat: str | None
    root: str | None
    force_root: bool
    system: str | None  # the file with the system prompt
    tools: str | None
    agent: str | None
    output_schema: str | None  # the file with the JSON Schema of the answer
    interactive: bool | None
    world: str | None  # its id, or that it is one of its own

    def check(self) -> None:
        if self.no_stdin and self.prompt in (None, "-") and self.world in (None, OWN_WORLD):
            raise click.UsageError("--no-stdin leaves no prompt: write the task as PROMPT.")


@click.command("run", cls=o.NetworkCommand)
@click.argument("prompt", required=False)
@click.option("--model", metavar="PROVIDER:NAME", help="The model, or your alias for one; by default one is found.")
@click.option("--profile", metavar="NAME", help="A profile of config.toml; flags override it.")
@o.add_root_options
@click.option("--preset", type=click.Choice(get_args(Preset)), help="A named set of options; other flags override it.")
@click.option("--mode", type=click.Choice(MODES), help="What the model may do without asking.")
@click.option("--max-turns", type=o.POSITIVE, metavar="N", help="The turn cap: model calls a run may make (100).")
@click.option("--on-limit", type=click.Choice(get_args(OnLimit)), help="What happens at the turn cap.")
@click.option("--budget-usd", type=o.AMOUNT, metavar="X", help="Budget in US dollars; 0 is no limit.")
@click.option("--budget-tokens", type=o.COUNT, metavar="N", help="Budget in tokens.")
@click.option("--budget-wall-s", type=o.AMOUNT, metavar="S", help="Budget in seconds of work.")
@click.option("--budget-turns", type=o.COUNT, metavar="N", help="Budget in turns, without a last answer.")
@click.option("--budget-tool-calls", type=o.COUNT, metavar="N", help="Budget in tool calls.")
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
@click.option("--completion", type=click.Choice(get_args(CompletionStyle)), help="How the model says that it is done.")
@click.option(
    "--tool-calls", "rung", type=click.Choice(get_args(Rung)), help="How the model calls tools; detected by default."
)
@o.effort_option
@o.network_option
@o.add_optional_value("--world", OWN_WORLD, "[=ID]", "Work in a world: the project changes only when it is committed.")
@click.option("--git-branch", is_flag=True, default=None, help="Work on a new git branch.")
@click.option(
    "--auto-approve-commands", is_flag=True, default=None, help="Run commands without asking, except critical ones."
)
@click.option(
    "--interactive/--headless",
    default=None,
    help="Wait for approvals and answers, or refuse calls that need one; on a terminal you are asked.",
)
@click.option("--chat", type=o.CHAT, help="Continue this chat instead of starting one.")
@click.option("--no-stdin", is_flag=True, help="Do not read standard input, even if something is piped in.")
@o.add_json_option("Print every event as one line of JSON.")
@o.gather_options(Task, "task")
def run(task: Task, as_json: bool, checks: tuple[str, ...], **flags: Any) -> int:
    """Give a model a task in a project and watch it work.

    PROMPT is the task; without it, or with -, it is read from standard input. Text piped in with a PROMPT is
    context for it: git diff | treadle run "review this". ID is a chat's id, the beginning of it, or last.

    Exit codes: 0 done, 1 error, 2 usage, 53 turn cap, 54 incomplete answer, 55 budget, 56 waits for an answer, 57 done,
    but something was refused because no person could be asked, 130 interrupted."""
    if task.prompt is None and task.world not in (None, OWN_WORLD) and not task.world.startswith("world_"):
        task = task._replace(prompt=task.world, world=OWN_WORLD)  # what stands behind `--world` is the prompt
    mode, plain = flags["mode"], flags["rung"] == "plain"
    contradictions = {
        "--mode read-only and --auto-approve-commands": mode == "read-only" and flags["auto_approve_commands"],
        "--mode read-only and --git-branch": mode == "read-only" and flags["git_branch"],
        "--headless and --on-limit ask": task.interactive is False and flags["on_limit"] == "ask",
        "--tool-calls plain and --tools": plain and task.tools,
        "--json and --output-schema": as_json and task.output_schema is not None,
        "--tool-calls plain and --completion tool": plain and flags["completion"] == "tool",
    }
    o.refuse({f"{words} exclude each other.": holds for words, holds in contradictions.items()})
    from treadle.adapters.models.providers import preload_tls

    # Before what follows, which takes long, too.
    preload_tls(flags["model"] or os.environ.get("TREADLE_MODEL", ""), os.environ)
    config = session.load_config({**flags, "checks": checks or None})

    async def open_and_run() -> int:
        async with session.open_agent(config, works=True) as agent:
            code = await _run_task(agent, config, task, as_json)
            if code < 128 and retention.is_due(config.home):  # a user who stopped the run does not wait for this
                keeping = retention.make_retention(config.settings)
                await collecting.collect_briefly(agent.deps.store, config.home, keeping)
            return code

    return asyncio.run(open_and_run())


async def _run_task(agent: "Agent", config: "Config", task: Task, as_json: bool) -> int:
    text = _read_task_text(task)
    asks = not as_json and task.output_schema is None and task.interactive is not False and dialogue.is_person_there()
    if asks and task.interactive is None:
        task = task._replace(interactive=True)
    if task.tools:  # tools that do not exist are named before a model has to do without them
        tool_names = [spec.name for spec in agent.deps.tools.list_specs(chat_options.ChatOptions(interactive=True))]
        # Tools of MCP servers are known when their servers run; their names have two underlines (and may have a star).
        own_names = [name for name in o.split_names(task.tools) if "__" not in name]
        if unknown := describe_unknown_names("tool", own_names, tool_names):
            raise InvalidInput(f"{unknown} The tools are: {', '.join(sorted(tool_names))}")
    chat, after_seq, model = await _find_or_make_chat(agent, config, task)
    if not await _tell_recipient(agent, model, asks=asks):
        return o.EXIT_ERROR
    await chat.open()
    agent.remember_model(model)
    typed = text if task.prompt in (None, "-") else str(task.prompt)
    images: tuple[Image, ...] = ()
    if typed.startswith("/") or "@" in typed:
        message, images = await expansion.expand_message(agent, (await chat.state()).options, typed)
        text = message + text.removeprefix(typed)
    if task.output_schema is not None:
        return await drive.print_output(chat, text, _read(task.output_schema, "the output schema"), after_seq)
    stream = chat.send(text, images=images, traceparent=os.environ.get("TRACEPARENT", ""))
    return await dialogue.follow(chat, stream, after_seq, as_json=as_json, asks=asks)


def _read_task_text(task: Task) -> str:
    """The task with what was piped in; it alone if no task is named."""
    piped_text = ""
    if task.prompt == "-" or (not task.no_stdin and piped.is_piped()):
        shorter = "pass a part of it (… | tail -c 100000), or put it into a file and name that"
        piped_text = piped.read_text(piped.LIMIT, shorter, " (go without it: --no-stdin)")
    if task.prompt is None and not piped_text.strip():
        raise click.UsageError("Missing argument 'PROMPT': write the task, or pipe it in.")
    alone = task.prompt in (None, "-")
    text = piped_text if alone else str(task.prompt)
    if not text.strip():
        raise InvalidInput("the prompt is empty; write a task")
    return text if alone or not piped_text.strip() else piped.append_context(text, piped_text)


async def _find_or_make_chat(agent: "Agent", config: "Config", task: Task) -> "tuple[Chat, int, str]":
    """The chat of the task, its last seq and its model. An old chat keeps the options that no flag names."""
    store, options, flag_values = agent.deps.store, None, {}
    if task.chat is not None:
        chat_id = await session.find_chat(store, task.chat)
        options = (await agent.chat(chat_id).state()).options
    root = ""
    if options is None or task.root is not None:
        root = str(o.resolve_project_root(task.root, force=task.force_root))
        if is_below(str(config.home.resolve()), root):
            inside = "lies inside the project, where the model can reach it; move TREADLE_HOME"
            session.warn([f"Treadle's home {config.home} {inside}"])
    changes = _make_task_options(agent, config, task, options.root if options is not None else root)
    for name, source in config.sources.items():
        if source.startswith("flag ") and (name in library_config.OF_CHATS or name in library_config.BUDGETS):
            flag_values[name] = getattr(config.settings, name)
    if options is None:
        changes["model"] = model = changes.get("model") or await session.select_model(agent, config)
        agent.deps.models.get(model)
        changes |= {name: value for name, value in flag_values.items() if name == "reasoning_effort"}
        return agent.chat(options=config.settings.make_chat_options(root), **changes), 0, model
    changes |= flag_values
    if budget := {kind: changes.pop(name) for name, kind in library_config.BUDGETS.items() if name in changes}:
        changes["run_budget"] = msgspec.to_builtins(msgspec.structs.replace(options.run_budget, **budget))
    if root:
        changes["root"] = root
    if not changes.get("model", options.model):
        changes["model"] = await session.select_model(agent, config)
    model = changes.get("model", options.model)
    agent.deps.models.get(model)
    return agent.chat(chat_id, **changes), await store.read_head(chat_id), model


def _make_task_options(agent: "Agent", config: "Config", task: Task, root: str) -> dict[str, Any]:
    """The options of the custom agent, if one is named, and of flags, which take precedence."""
    agent_options: dict[str, Any] = {}
    if task.agent is not None:
        agent_options = slash.make_agent_changes(agent.custom_agents(chat_options.Project(root)), task.agent)
        for name in ("model", "reasoning_effort"):
            if config.sources[name].startswith("flag "):
                agent_options.pop(name, None)
    options = {
        "system_prompt": None if task.system is None else _read(task.system),
        "tools": None if task.tools is None else o.split_names(task.tools),
        "interactive": task.interactive,
        "world": task.world,
    }
    return {**agent_options, **{name: value for name, value in options.items() if value is not None}}


def _read(file: str, label: str = "the system prompt") -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{label} {file} cannot be read: {error}") from error


async def _tell_recipient(agent: "Agent", model: str, *, asks: bool) -> bool:
    """Tell the user, once for each provider, which provider receives the project (S-10): as a question if `asks`,
    otherwise in a line on standard error. False if the run may not begin."""
    from treadle.adapters.policy.trust import render_disclosure

    missing_consent = agent.consent.find_unknown_recipient(model)
    if not missing_consent:
        return True
    notice_text = make_inert_line(render_disclosure(missing_consent))
    if not asks:
        print_note(f"treadle: {notice_text} (shown once; see the setting `consent`)")
    else:
        sentence = f"{notice_text[0].upper()}{notice_text[1:]}."
        if not await dialogue.ask_yes_or_no(f"{sentence}\nGo on? [y]es, and do not ask again · [n]o: "):
            print_note("treadle: nothing was sent")
            return False
    try:
        agent.consent.give(missing_consent)
    except ConfigError as error:  # then it is told again the next time
        print_note(f"treadle: {make_inert_line(str(error))}")
    return True


class Resumption(NamedTuple):
    """The answer, as the flags give it; at most one of them."""

    approve: bool
    deny: bool
    feedback: str
    answer: str | None
    results: str | None

    def check(self) -> None:
        acts = [self.approve, self.deny, self.answer is not None, self.results is not None]
        several = "--approve, --deny, --answer and --results exclude each other."
        o.refuse({several: sum(acts) > 1, "--feedback goes with --deny.": self.feedback and not self.deny})


@click.command("resume")
@click.option("--approve", is_flag=True, help="Allow what the chat asks for.")
@click.option("--deny", is_flag=True, help="Refuse what the chat asks for.")
@click.option("--feedback", default="", metavar="TEXT", help="Tell the model why, with --deny.")
@click.option("--answer", metavar="TEXT", help="Answer the chat's question, in words or by the number of an option.")
@click.option("--results", type=o.FILE, help="Hand in the results of client tools, as JSON; - reads standard input.")
@o.add_json_option("Print every event as one line of JSON.")
@o.gather_options(Resumption, "reply")
@pass_chat(works=True)
async def resume(agent: "Agent", chat: "Chat", reply: Resumption, as_json: bool) -> int:
    """Continue a chat that was interrupted or waits for an answer.

    ID is a chat's id, the beginning of it, or last."""
    head = await agent.deps.store.read_head(chat.id)
    asks = not as_json and dialogue.is_person_there()
    return await dialogue.follow(chat, await _send_reply(chat, reply), head, as_json=as_json, asks=asks, resumed=True)


async def _send_reply(chat: "Chat", reply: Resumption) -> "command_stream.CommandStream":
    if reply.results is not None:
        return chat.submit(_read_results(reply.results))
    if reply.answer is not None:
        action = await _open(chat, "user_input", "asks no question")
        return chat.answer(action, notices.resolve_option(action, reply.answer))
    if reply.approve:
        return chat.approve(await _open(chat, "permission", "asks for no approval"))
    if reply.deny:
        return chat.deny(await _open(chat, "permission", "asks for no approval"), reply.feedback)
    return chat.resume()


async def _open(chat: "Chat", kind: str, otherwise: str) -> "e.OpenAction":
    for action in await chat.actions():
        if action.kind == kind:
            return action
    raise Refused("not_awaiting_action", f"the chat {chat.id} {otherwise}")


def _read_results(file: str) -> "list[c.Result]":
    class Results(msgspec.Struct):
        results: list[c.Result]

    try:
        return msgspec.json.decode(piped.read_bytes(file), type=Results).results
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        example = '{"results": [{"tool_call_id": "…", "output": …}]}'
        raise InvalidInput(f"{file} holds no results ({error}); it should look like {example}") from error
