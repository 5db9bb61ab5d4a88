"""`treadle replay`: drive a recorded chat again, offline, and compare (D-07)."""

from typing import TYPE_CHECKING

import click

from treadle.base.inert import inert
from treadle.frontends.cli.group import in_agent
from treadle.frontends.cli.options import EXIT_ERROR, EXIT_OK, json_option
from treadle.frontends.cli.terminal import Terminal, write_json

if TYPE_CHECKING:
    from treadle.library.agent import Agent


@click.command("replay")
@click.argument("chat_ref", metavar="ID")
@json_option("Print one JSON object.")
@in_agent()
async def replay(agent: "Agent", chat_ref: str, as_json: bool) -> int:
    """Replay a recorded chat offline and compare.

    ID is a chat's id, the beginning of it, or last. No model is called and nothing is run: their answers are taken from
    the log. The exit code is 0 when the same events come out, and 1 when they do not.
    """
    from treadle.frontends.cli.session import find_chat
    from treadle.library.replay import replay

    chat = await find_chat(agent.deps.store, chat_ref)
    result = await replay(agent.deps.store, chat)
    is_same = result.divergence is None and result.matches
    different = inert(result.divergence.text) if result.divergence is not None else ""
    if as_json:
        write_json({"chat": chat, "same": result.matches, "events": len(result.events), "divergence": different})
    else:
        verdict = f"{chat}: the same {len(result.events)} events" if is_same else different or f"{chat}: other events"
        Terminal().line(verdict)
    return EXIT_OK if is_same else EXIT_ERROR
