"""`treadle import`: a chat from JSON lines (D-08)."""

import click

from treadle.base.inert import inert_line
from treadle.frontends.cli.group import in_loop
from treadle.frontends.cli.options import json_option
from treadle.frontends.cli.terminal import Terminal, write_json


@click.command("import")
@click.argument("file")
@click.option("--new-id", is_flag=True, help="Give the chat a new id, for instance because its own is taken.")
@click.option(
    "--owner", default="", metavar="USER", help="Give the chat to this user of the server; by default it is yours."
)
@json_option("Print one JSON object.")
@in_loop
async def import_(file: str, new_id: bool, owner: str, as_json: bool) -> None:
    """Read a chat from JSON lines.

    FILE is the output of export; - reads standard input. Prints the chat's id. If a line is wrong or the file was cut,
    the error names the place and nothing is imported.

    The chat gets the model, mode, rules, sandbox, budgets and project of a new chat here. A run that was under way
    there is ended, not continued.
    """
    from treadle.frontends.cli.piped import read_bytes
    from treadle.frontends.cli.session import configured, open_agent, present_root
    from treadle.library.transfer import import_chat

    lines = read_bytes(file).split(b"\n")
    config = configured()
    async with open_agent(config) as agent:
        root = present_root()
        # Options that grant rights are those of a new chat here (S-09).
        local = agent.prepare(config.settings.chat_options(root)).options
        chat = await import_chat(agent.deps.store, lines, new_id, local=local, owner=owner)
    if as_json:
        write_json({"chat": chat, "model": local.model, "mode": local.mode, "root": root})
        return
    terminal = Terminal()
    terminal.line(chat)
    model = local.model or "no model yet"
    terminal.note(inert_line(f"{model}, mode {local.mode}, in {root or 'no project'}, as for a new chat here"), "dim")
