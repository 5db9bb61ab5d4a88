"""The app as plain text: a line in, what comes of it line by line, and so on. For screen readers, dumb terminals and
whoever likes it; nothing is drawn over, and nothing moves."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from treadle.cli.options import EXIT_OK, LAST
from treadle.errors import TreadleError

if TYPE_CHECKING:
    from treadle.handle import Chat
    from treadle.runtime import Agent

_HELP = "say what is to be done\n/undo takes the last run back, /new begins another chat, /quit or Ctrl-D leaves"


async def converse(root: str, first: str, resume: str | None, flags: Mapping[str, Any]) -> int:
    """`first`: the first message; `resume`: the chat to go on with, an empty name being the newest."""
    from treadle.cli.keyboard import Keyboard
    from treadle.cli.session import chosen_model, configured, find_chat, open_agent
    from treadle.cli.terminal import Terminal

    config = configured(flags)
    async with open_agent(config, works=True) as agent:
        chat: Chat | None = None
        if resume is not None:
            chat = agent.chat(await find_chat(agent.deps.store, resume or LAST))
            model = ""
        else:
            model = await chosen_model(agent, config)
        _say(_HELP)
        text: str | None = first
        while True:
            if text == "/quit" or text is None:
                break
            if text == "/new":
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
    from treadle.cli.dialogue import follow
    from treadle.message_expansion import spoken

    try:
        if text == "/undo":
            undone = await chat.files.undo()
            _say(undone.error or f"undone: {len(undone.files)} changes; left as they are: {len(undone.conflicts)}")
            return
        await chat.open()
        state = await chat.state()
        agent.remember_model(state.options.model)
        said, images = await spoken(agent, state.options, text)
        await follow(chat, chat.send(said, images=images), state.head, as_json=False, asks=True, plain=True)
    except TreadleError as error:
        _say(str(error))


def _say(text: str) -> None:
    from treadle.cli.terminal import Terminal

    Terminal(plain=True).tell(f"treadle: {text}")
