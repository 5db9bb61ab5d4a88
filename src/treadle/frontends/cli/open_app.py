"""`treadle` without a command: the terminal app, or plain text line by line where a screen would be of no use."""

import gc
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NamedTuple

import click

from treadle.base.inert import make_inert_line, print_line
from treadle.base.types import get_home
from treadle.errors import InvalidInput, TreadleError, suggest_name

from treadle.frontends.cli.lazy import (  # isort: skip
    Agent, Chat, Config, asyncio, demo_project, dialogue, expansion, library_config, model_registry, session, slash,
)  # fmt: skip
from treadle.frontends.cli.options import EXIT_OK, LAST, resolve_project_root
from treadle.frontends.cli.terminal import Terminal

if TYPE_CHECKING:
    from treadle.frontends.tui.app import AppExit, Connection

GARBAGE = (3_000, 3, 500)
"""Thresholds of the garbage collector: small collections take a millisecond or two, and a full one runs only while no
key is typed. A key must not wait for it."""


class AppArguments(NamedTuple):
    prompt: str = ""
    resume: str | None = None  # a chat; empty: to be chosen from a list
    server: str = ""
    model: str | None = None
    root: str | None = None
    force_root: bool = False
    mode: str | None = None
    plain: bool = False
    inline: bool = False  # the app is drawn below the prompt, and the conversation goes to the terminal's scrollback


def open_app(arguments: AppArguments) -> int:
    root = str(resolve_project_root(arguments.root, force=arguments.force_root))
    if arguments.plain or os.environ.get("TERM") == "dumb" or os.environ.get("TREADLE_PLAIN"):
        if arguments.server:
            raise click.UsageError("the chats of a server are not shown as plain text; use a terminal with a screen")
        return asyncio.run(_converse(arguments, root))
    return run_app(arguments, root)


def run_app(arguments: AppArguments, root: str, first_words: str = "") -> int:
    """Run the app. The screen comes first; modules that a run needs are loaded after it. `first_words` introduce a
    demonstration, which is not resumed later."""
    gc.disable()  # until all is loaded: what is loaded stays, and looking through it finds nothing
    from treadle.frontends.tui.app import Start
    from treadle.frontends.tui.launch import launch_app

    async def connect_and_run() -> "AppExit | None":
        async with AsyncExitStack() as stack:

            def make_demo() -> tuple[str, str]:
                return demo_project.make_demo(stack.enter_context(demo_project.open_demo_folder("demo")))

            model, resume = arguments.model or os.environ.get("TREADLE_MODEL", ""), arguments.resume
            start = Start(root, model, arguments.prompt, resume or "", resume == "", first_words, make_demo)
            connect = lambda: _connect(arguments, root, stack)  # noqa: E731
            return await launch_app(connect, start, home=get_home(os.environ), inline=arguments.inline)

    exit_state = asyncio.run(connect_and_run())
    if exit_state is None or first_words or not exit_state.chat:
        return EXIT_OK
    invitation = "Come back"
    if exit_state.busy and exit_state.stays:
        invitation = f"The run goes on at {make_inert_line(exit_state.place)}. Come back"
    elif exit_state.busy:
        invitation = "The run is paused, and nothing works on it. Continue it with"
    server = f"--server {make_inert_line(arguments.server)} " if arguments.server else ""
    print_line(f"{invitation}: treadle {server}--resume {exit_state.chat}")
    return EXIT_OK


async def _connect(arguments: AppArguments, root: str, stack: AsyncExitStack) -> "Connection":
    if arguments.server:
        from treadle.frontends.tui.remote import Remote

        options = {"model": arguments.model or "", "root": root, "mode": arguments.mode or ""}
        connection: Connection = Remote(arguments.server, os.environ.get("TREADLE_TOKEN", ""), options)
    else:
        config = await asyncio.to_thread(_load_all, arguments)
        from treadle.frontends.tui.embedded import Embedded

        agent = await stack.enter_async_context(session.open_agent(config, works=True, relays=True, stays=True))
        registry = model_registry.ModelRegistry(os.environ, home=config.home)
        connection = Embedded(agent, config.settings.make_chat_options(root), session.find_chat, registry)
    stack.push_async_callback(connection.close)
    gc.freeze()
    gc.set_threshold(*GARBAGE)
    gc.enable()
    return connection


def _load_all(arguments: AppArguments) -> "Config":
    """The settings, with all that a run needs loaded behind the screen."""
    import treadle.frontends.tui.code
    import treadle.frontends.tui.embedded  # noqa: F401

    return library_config.load(flags={"model": arguments.model, "mode": arguments.mode})


_OWN_WORDS = {
    "help": "list the commands",
    "new": "begin another chat; /clear does the same",
    "model": "name the model, or say which it is",
    "status": "chat, model, mode and project",
    "cost": "what the chat has cost",
    "rules": "the standing rules; /permissions does the same",
    "quit": "leave; /exit does the same",
}


async def _converse(arguments: AppArguments, root: str) -> int:
    """The app as plain text: a line in, the output line by line, and so on. For screen readers, dumb terminals and
    users who prefer it; nothing is redrawn, and nothing moves."""
    from treadle.frontends.cli.keyboard import Keyboard

    config = session.load_config({"model": arguments.model, "mode": arguments.mode})
    async with session.open_agent(config, works=True, stays=True) as agent:
        chat_ref = arguments.resume
        chat = None if chat_ref is None else await session.open_chat(agent, chat_ref or LAST)
        model = await session.select_model(agent, config) if chat is None else ""
        _say("What should I work on? /help lists the commands, /quit or Ctrl-D leaves.")
        text: str | None = arguments.prompt
        while text is not None and text.strip() not in ("/quit", "/exit"):
            if text.strip() in ("/new", "/clear"):
                chat = None
            elif text:
                if chat is None:
                    model = model or await session.select_model(agent, config)
                    chat = agent.chat(options=config.settings.make_chat_options(root), interactive=True, model=model)
                await _run_turn(agent, chat, text)
            Terminal(plain=True).ask("you: ")
            text = await Keyboard().read_line()
        if chat is not None:
            _say(f"come back: treadle --plain --resume {chat.id}")
    return EXIT_OK


async def _run_turn(agent: "Agent", chat: "Chat", text: str) -> None:
    try:
        await chat.open()
        if text.startswith("/") and not text.startswith("//") and await _run_command(agent, chat, text):
            return
        state = await chat.state()
        agent.remember_model(state.options.model)
        message, images = await expansion.expand_message(agent, state.options, text)
        await dialogue.follow(chat, chat.send(message, images=images), state.head, as_json=False, asks=True, plain=True)
    except TreadleError as error:
        _say(str(error))


async def _run_command(agent: "Agent", chat: "Chat", text: str) -> bool:
    """Carry out a slash command; False for a command of the user's own, which is a message."""
    name, _, words = text[1:].partition(" ")
    name, words = name.strip(), words.strip()
    state = await chat.state()
    match name:
        case "help":
            lines = {**_OWN_WORDS, **{each: command.does for each, command in slash.SLASHES.items()}}
            _say("\n".join(f"/{each}: {does}" for each, does in lines.items()))
        case "undo" | "redo" | "keep":
            past = {"undo": "undone", "redo": "redone", "keep": "kept"}[name]
            undo_or_keep = chat.files.undo if name == "undo" else chat.files.keep
            restored = await (chat.files.redo() if name == "redo" else undo_or_keep(paths=words.split()))
            conflicts = len(restored.conflicts)
            _say(restored.error or f"{past}: {len(restored.files)} changes; left as they are: {conflicts}")
        case "model" if words:
            agent.deps.models.get(words)
            await agent.chat(chat.id, model=words).open()
            _say(f"model: {words}")
        case "model":
            _say(f"model: {state.options.model}")
        case "status":
            options = state.options
            _say(f"chat {chat.id}, model {options.model}, mode {options.mode}, project {options.root}")
        case "cost":
            usage = state.totals.usage
            _say(f"{usage.input:,} tokens in, {usage.output:,} out, ${usage.usd:.4f}")
        case "rules" | "permissions":
            rules = (*state.options.rules, *agent.rules.list_rules())
            _say("\n".join(f"{rule.effect} {rule.tool} {rule.pattern} ({rule.scope})" for rule in rules) or "no rules")
        case _ if (command := slash.find_slash(text)) is not None:
            if reply := await command[0].run(agent, chat, command[1]):
                _say(reply)
        case _ if name in (custom_commands := await expansion.list_commands(agent, state.options)):
            return False
        case _:
            suggestion = suggest_name(name, [*_OWN_WORDS, *slash.SLASHES, *custom_commands])
            raise InvalidInput(f"there is no command /{name}{suggestion}; see /help")
    return True


def _say(text: str) -> None:
    Terminal(plain=True).tell(f"treadle: {text}")
