"""`treadle` without a command: the terminal app on the user's own chats or on those of a server; plain text, line by
line, where a screen would be of no use."""

import gc
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NamedTuple

import click

from treadle.base.inert import inert_line, print_line
from treadle.frontends.cli.options import EXIT_OK

if TYPE_CHECKING:
    from treadle.frontends.tui.app import AppExit
    from treadle.frontends.tui.late_parts import Connection
    from treadle.library.config import Config


GARBAGE = (3_000, 3, 500)
"""Thresholds of the garbage collector: small collections take a millisecond or two, and a full one runs only while no
key is typed. A key must not wait for it."""


class AppArguments(NamedTuple):
    """The arguments of `treadle`."""

    prompt: str = ""
    resume: str | None = None
    """A chat; empty: to be chosen from a list."""
    server: str = ""
    model: str | None = None
    root: str | None = None
    force_root: bool = False
    mode: str | None = None
    plain: bool = False
    inline: bool = False
    """True if the app is drawn below the prompt, and the conversation goes to the terminal's scrollback."""


def open_app(arguments: AppArguments) -> int:
    from treadle.frontends.cli.project import project_root

    root = str(project_root(arguments.root, force=arguments.force_root))
    if arguments.plain or os.environ.get("TERM") == "dumb" or os.environ.get("TREADLE_PLAIN"):
        import asyncio

        from treadle.frontends.cli.plain import converse

        if arguments.server:
            raise click.UsageError("the chats of a server are not shown as plain text; use a terminal with a screen")
        return asyncio.run(
            converse(root, arguments.prompt, arguments.resume, {"model": arguments.model, "mode": arguments.mode})
        )
    return run_app(arguments, root)


def run_app(arguments: AppArguments, root: str, first_words: str = "") -> int:
    """Run the app. The screen comes first; modules that a run needs are loaded after it. `first_words` introduce a
    demonstration, which is not resumed later."""
    gc.disable()  # until all is loaded: what is loaded stays, and looking through it finds nothing
    import asyncio

    from treadle.base.types import home_of
    from treadle.frontends.tui.app import Start
    from treadle.frontends.tui.launch import run

    async def live() -> "AppExit | None":
        async with AsyncExitStack() as stack:

            def make_demo_project() -> tuple[str, str]:
                from treadle.frontends.cli.demo_project import demo_folder, make_demo

                return make_demo(stack.enter_context(demo_folder("treadle-demo-")))

            begin = start._replace(make_demo=make_demo_project)
            place = home_of(os.environ)
            return await run(lambda: _connect(arguments, root, stack), begin, home=place, inline=arguments.inline)

    start = Start(
        root,
        arguments.model or os.environ.get("TREADLE_MODEL", ""),
        arguments.prompt,
        arguments.resume or "",
        picks=arguments.resume == "",
        first_words=first_words,
    )
    exit_state = asyncio.run(live())
    if exit_state is None or first_words or not exit_state.chat:
        return EXIT_OK
    server = f"--server {inert_line(arguments.server)} " if arguments.server else ""
    back = f"treadle {server}--resume {exit_state.chat}"
    if exit_state.busy and exit_state.stays:
        print_line(f"The run goes on at {inert_line(exit_state.place)}. Come back: {back}")
    elif exit_state.busy:
        print_line(f"The run is paused, and nothing works on it. Continue it with: {back}")
    else:
        print_line(f"Come back: {back}")
    return EXIT_OK


async def _connect(arguments: AppArguments, root: str, stack: AsyncExitStack) -> "Connection":
    import asyncio

    if arguments.server:
        from treadle.frontends.tui.remote import Remote

        options = {"model": arguments.model or "", "root": root, "mode": arguments.mode or ""}
        connection: Connection = Remote(arguments.server, os.environ.get("TREADLE_TOKEN", ""), options)
    else:
        config = await asyncio.to_thread(_load_all, arguments)
        from treadle.adapters.models.registry import ModelRegistry
        from treadle.frontends.cli.session import find_chat, open_agent
        from treadle.frontends.tui.embedded import Embedded

        agent = await stack.enter_async_context(open_agent(config, works=True, relays=True, stays=True))
        registry = ModelRegistry(os.environ, home=config.home)
        connection = Embedded(agent, config.settings.chat_options(root), find_chat, registry)
    stack.push_async_callback(connection.close)
    gc.freeze()
    gc.set_threshold(*GARBAGE)
    gc.enable()
    return connection


def _load_all(arguments: AppArguments) -> "Config":
    """The settings, with all that a run needs loaded behind the screen."""
    import treadle.frontends.tui.code
    import treadle.frontends.tui.embedded  # noqa: F401
    from treadle.library.config import load

    return load(flags={"model": arguments.model, "mode": arguments.mode})
