"""The app as plain text: a line in, the output line by line, and so on. For screen readers, dumb terminals and users
who prefer it; nothing is redrawn, and nothing moves."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from treadle.errors import TreadleError
from treadle.frontends.cli.options import EXIT_OK, LAST

if TYPE_CHECKING:
    from treadle.library.agent import Agent
    from treadle.library.chat import Chat

_HELP = "What should I work on? /help lists the commands, /quit or Ctrl-D leaves."
_QUIT = ("/quit", "/exit")
_NEW = ("/new", "/clear")
_OWN_WORDS = {
    "help": "list the commands",
    "new": "begin another chat; /clear does the same",
    "model": "name the model, or say which it is",
    "status": "chat, model, mode and project",
    "cost": "what the chat has cost",
    "rules": "the standing rules; /permissions does the same",
    "quit": "leave; /exit does the same",
}


async def converse(root: str, first: str, resume: str | None, flags: Mapping[str, Any]) -> int:
    """`first`: the first message; `resume`: the chat to go on with, an empty name being the newest."""
    from treadle.frontends.cli.keyboard import Keyboard
    from treadle.frontends.cli.session import chosen_model, configured, find_chat, open_agent
    from treadle.frontends.cli.terminal import Terminal

    config = configured(flags)
    async with open_agent(config, works=True, stays=True) as agent:
        chat: Chat | None = None
        model = ""
        if resume is not None:
            chat = agent.chat(await find_chat(agent.deps.store, resume or LAST))
        else:
            model = await chosen_model(agent, config)
        _say(_HELP)
        text: str | None = first
        while text is not None and text.strip() not in _QUIT:
            if text.strip() in _NEW:
                chat = None
            elif text:
                if chat is None:
                    model = model or await chosen_model(agent, config)
                    options = config.settings.chat_options(root)
                    chat = agent.chat(options=options, interactive=True, model=model)
                await _turn(agent, chat, text)
            Terminal(plain=True).ask("you: ")
            text = await Keyboard().line()
        if chat is not None:
            _say(f"come back: treadle --plain --resume {chat.id}")
    return EXIT_OK


async def _turn(agent: "Agent", chat: "Chat", text: str) -> None:
    from treadle.frontends.cli.dialogue import follow
    from treadle.library.message_expansion import expand_message

    try:
        await chat.open()
        if text.startswith("/") and not text.startswith("//") and await _command(agent, chat, text):
            return
        state = await chat.state()
        agent.remember_model(state.options.model)
        message, images = await expand_message(agent, state.options, text)
        await follow(chat, chat.send(message, images=images), state.head, as_json=False, asks=True, plain=True)
    except TreadleError as error:
        _say(str(error))


async def _command(agent: "Agent", chat: "Chat", text: str) -> bool:
    """Carry out a slash command; False for a command of the user's own, which is a message."""
    from treadle.errors import InvalidInput, did_you_mean
    from treadle.frontends.presentation.slash import SLASHES, find_slash
    from treadle.library.message_expansion import commands

    name, _, words = text[1:].partition(" ")
    name, words = name.strip(), words.strip()
    state = await chat.state()
    match name:
        case "help":
            lines = {**_OWN_WORDS, **{each: slash.does for each, slash in SLASHES.items()}}
            _say("\n".join(f"/{each}: {does}" for each, does in lines.items()))
        case "undo" | "redo" | "keep":
            files = chat.files
            restored = await (
                files.undo(paths=words.split()) if name == "undo"
                else files.redo() if name == "redo" else files.keep(paths=words.split())
            )  # fmt: skip
            past = {"undo": "undone", "redo": "redone", "keep": "kept"}[name]
            _say(
                restored.error or f"{past}: {len(restored.files)} changes; left as they are: {len(restored.conflicts)}"
            )
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
            rules = (*state.options.rules, *agent.rules.all())
            _say("\n".join(f"{rule.effect} {rule.tool} {rule.pattern} ({rule.scope})" for rule in rules) or "no rules")
        case _ if (slash := find_slash(text)) is not None:
            if reply := await slash[0].run(agent, chat, slash[1]):
                _say(reply)
        case _ if name in (custom_commands := await commands(agent, state.options)):
            return False
        case _:
            suggestion = did_you_mean(name, [*_OWN_WORDS, *SLASHES, *custom_commands])
            raise InvalidInput(f"there is no command /{name}{suggestion}; see /help")
    return True


def _say(text: str) -> None:
    from treadle.frontends.cli.terminal import Terminal

    Terminal(plain=True).tell(f"treadle: {text}")
