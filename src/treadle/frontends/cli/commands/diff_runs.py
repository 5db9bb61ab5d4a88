"""`treadle diff-runs`: where two chats begin to differ (D-07)."""

from typing import TYPE_CHECKING

import click

from treadle.base.inert import inert
from treadle.frontends.cli.group import in_agent
from treadle.frontends.cli.options import EXIT_ERROR, EXIT_OK, json_option
from treadle.frontends.cli.terminal import Terminal, write_json

if TYPE_CHECKING:
    from treadle.library.agent import Agent


@click.command("diff-runs")
@click.argument("left_ref", metavar="A")
@click.argument("right", metavar="B")
@json_option("Print one JSON object.")
@in_agent()
async def diff_runs(agent: "Agent", left_ref: str, right: str, as_json: bool) -> int:
    """Find the first difference between two chats.

    A and B are chats' ids, the beginnings of them, or last. Times, ids and folders do not count. The exit code is 0
    when there is no difference, and 1 when there is one.
    """
    from treadle.chat.divergence import first_divergence
    from treadle.frontends.cli.session import find_chat
    from treadle.library.transfer import read_chat

    store = agent.deps.store
    chats = [await find_chat(store, chat_ref) for chat_ref in (left_ref, right)]
    logs = [await read_chat(store, chat) for chat in chats]
    divergence = first_divergence(logs[0], logs[1], (chats[0], chats[1]))
    if as_json:
        write_json(
            {"chats": chats, "same": divergence is None, "divergence": inert(divergence.text) if divergence else ""}
        )
    else:
        Terminal().line(inert(divergence.text) if divergence else f"no difference in {len(logs[0])} events")
    return EXIT_ERROR if divergence else EXIT_OK
