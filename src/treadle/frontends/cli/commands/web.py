"""`treadle web`: a server on this machine, and the browser opened on it. With `--demo` on a small project in a
temporary folder, where a script stands in for a model that has no key."""

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treadle.base.inert import print_note
from treadle.frontends.cli.options import store_option

if TYPE_CHECKING:
    from treadle.adapters.models.registry import ModelRegistry
    from treadle.library.model_choice import ModelChoice


@click.command("web")
@click.option("--host", "serve_host", metavar="ADDRESS", help="The address to listen on; by default only this machine.")
@click.option("--port", "serve_port", type=click.IntRange(0, 65535), metavar="N", help="The port; 0 takes a free one.")
@store_option
@click.option("--model", metavar="PROVIDER:NAME", help="The model of chats that name none; by default one is found.")
@click.option("--no-open", is_flag=True, help="Only print the address.")
@click.option("--demo", is_flag=True, help="A small project in a temporary folder; without a key, a scripted model.")
def web(no_open: bool, demo: bool, **flags: Any) -> None:
    """Open the web app in a browser: the same chats, live.

    Serves as treadle serve does, for the project of this folder, until Ctrl-C; chats go on where they were next time.
    """
    import asyncio

    from treadle.frontends.cli.commands.serve import serve_until_told

    on_ready = None if no_open else _open
    if not demo:
        asyncio.run(serve_until_told(flags, on_ready=on_ready))
        return
    from treadle.adapters.sandbox.supervisor.removal import remove_tree

    folder = Path(tempfile.mkdtemp(prefix="treadle-web-")).resolve()
    try:
        asyncio.run(serve_until_told(_demo(folder, flags), on_ready=on_ready))
    finally:
        os.chdir("/")
        remove_tree(str(folder))


def _open(link: str) -> None:
    """A browser with a window; one that would take over the terminal is none."""
    windows = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if windows or sys.platform in ("darwin", "win32"):
        import webbrowser

        webbrowser.open(link)


def _demo(folder: Path, flags: dict[str, Any]) -> dict[str, Any]:
    """A project, and a home of its own, so that nothing of it is left."""
    from treadle.frontends.cli.demo_project import make_project
    from treadle.frontends.cli.demo_script import write_script

    model = _configured_model(flags)
    make_project(folder / "project")
    script = folder / "demo.toml"
    write_script(script)
    os.environ["TREADLE_HOME"] = str(folder / "home")
    os.chdir(folder / "project")
    if not model:
        print_note("there is no key for a model, so a script plays one; say anything to it")
    return {**flags, "store": flags.get("store") or str(folder / "home" / "treadle.db"),
            "model": model or f"scripted:{script}", "mode": "ask"}  # fmt: skip


def _configured_model(flags: dict[str, Any]) -> str:
    """The model that is set up here, if it can be used."""
    from treadle.adapters.models.registry import ModelRegistry
    from treadle.errors import TreadleError
    from treadle.frontends.cli.session import configured

    config = configured({"model": flags.get("model")})
    registry = ModelRegistry(os.environ, home=config.home)
    try:
        if config.settings.model:
            registry.get(config.settings.model)
            return config.settings.model
    except TreadleError:
        return ""
    import asyncio

    choice = asyncio.run(_choose(registry, config.home))
    return "" if choice is None else choice.model


async def _choose(registry: "ModelRegistry", home: Path) -> "ModelChoice | None":
    from treadle.library.model_choice import choose_model

    try:
        return await choose_model(registry, os.environ, home)
    finally:
        await registry.close()
