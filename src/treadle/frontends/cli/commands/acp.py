"""`treadle acp`: Treadle as the agent of an editor, over standard input and output (E-02)."""

import sys
from importlib.util import find_spec
from typing import Any, cast

import click

from treadle.base.inert import print_note
from treadle.errors import ConfigError
from treadle.frontends.cli.commands.run import MODES
from treadle.frontends.cli.group import in_loop
from treadle.frontends.cli.options import effort_option

INSTALL = "editors need the package agent-client-protocol; install it with: pip install 'treadle[acp]'"


@click.command("acp")
@click.option("--model", metavar="PROVIDER:NAME", help="The model of new sessions.")
@click.option("--mode", type=click.Choice(MODES), help="What the model may do without asking, in new sessions.")
@click.option("--max-turns", type=click.IntRange(min=1), metavar="N", help="How many model calls a run may make.")
@effort_option
@in_loop
async def acp(**flags: Any) -> None:
    """Serve an editor that speaks the Agent Client Protocol.

    The editor starts this and talks to it by standard input and output; each of its sessions is a chat, which survives
    the editor. How to set it up: docs/guide/editors.md.
    """
    if find_spec("acp") is None:
        raise ConfigError(INSTALL)
    from acp import Agent as AcpAgent
    from acp import run_agent

    from treadle.adapters.tools.unsaved import UnsavedFiles
    from treadle.adapters.workspace.root import plain_root
    from treadle.frontends.acp.agent import EditorAgent
    from treadle.frontends.acp.transport import CheckedLines
    from treadle.frontends.cli.session import configured, open_agent, project_root

    config = configured(flags)
    unsaved = UnsavedFiles(plain_root)
    if sys.stdin.isatty():
        print_note("treadle: this is for editors: it waits for requests in JSON (see: treadle acp --help)")
    async with open_agent(config, works=True, hooks=[unsaved], stays=True) as agent:
        door = EditorAgent(agent, config.settings.chat_options, lambda cwd: project_root(cwd), unsaved)
        try:
            lines = await CheckedLines.open_stdio()
            await run_agent(cast("AcpAgent", door), lines, use_unstable_protocol=True)
        finally:
            await door.close()
