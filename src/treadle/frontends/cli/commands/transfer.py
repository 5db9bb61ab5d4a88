"""`treadle export`, `import`: a chat as JSON lines (D-08); `fork`, `replay`, `diff-runs`: a chat compared (D-07)."""

import sys

import click

from treadle.base.inert import inert, inert_json, inert_line
from treadle.errors import InvalidInput
from treadle.frontends.cli.group import in_agent, in_chat, in_loop
from treadle.frontends.cli.lazy import Agent, Chat, library_config, piped, session, transfer
from treadle.frontends.cli.options import CHAT, EXIT_ERROR, EXIT_OK, FILE, json_option, present_root
from treadle.frontends.cli.terminal import Terminal, write_json


@click.command("export")
@in_chat()
async def export(agent: "Agent", chat: "Chat") -> None:
    """Write a chat to standard output as JSON lines.

    ID is a chat's id, the beginning of it, or last. Every line is an event with its seq and type; data outside the log
    is included in the event that names it, so that the file is complete."""
    is_terminal = sys.stdout.isatty()
    async for line in transfer.export_chat(agent.deps.store, chat.id):
        sys.stdout.buffer.write(inert_json(line) if is_terminal else line)
    sys.stdout.buffer.flush()


@click.command("import")
@click.argument("file", type=FILE)
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
    there is ended, not continued."""
    lines = piped.read_bytes(file).split(b"\n")
    config = session.load_config()
    async with session.open_agent(config) as agent:
        root = present_root()
        # Options that grant rights are those of a new chat here (S-09).
        local = agent.prepare(config.settings.chat_options(root)).options
        chat = await transfer.import_chat(agent.deps.store, lines, new_id, local=local, owner=owner)
    if as_json:
        write_json({"chat": chat, "model": local.model, "mode": local.mode, "root": root})
        return
    terminal = Terminal()
    terminal.line(chat)
    model = local.model or "no model yet"
    terminal.note(inert_line(f"{model}, mode {local.mode}, in {root or 'no project'}, as for a new chat here"), "dim")


@click.command("fork")
@click.argument("point", metavar="ID[@SEQ]", type=CHAT)
@click.option("--model", metavar="PROVIDER:NAME", help="The model of the new chat, or your alias for one.")
@json_option("Print one JSON object.")
@in_agent()
async def fork(agent: "Agent", point: str, model: str | None, as_json: bool) -> None:
    """Start a new chat as a copy of another up to a point.

    ID is a chat's id, the beginning of it, or last. SEQ is the number of its last event in the copy; without it
    everything is copied. Prints the id of the copy, which is the last chat from then on."""
    chat_ref, at, seq = point.partition("@")
    if at and not seq.isdecimal():
        raise InvalidInput(f"{point!r} names no event; write ID@SEQ with a number, as in last@12")
    store = agent.deps.store
    chat = await session.find_chat(store, chat_ref)
    if model is not None:
        model = library_config.load().model_of(model)
        agent.deps.models.get(model)
    upto = int(seq) if at else await store.head(chat)
    copy = await transfer.fork(store, chat, upto, {} if model is None else {"model": model})
    if as_json:
        write_json({"chat": copy, "forked_from": chat, "seq": upto})
        return
    terminal = Terminal()
    terminal.line(copy)
    terminal.note(f"a copy of {chat} up to event {upto} · go on: treadle run --chat {copy} PROMPT", "dim")


@click.command("replay")
@json_option("Print one JSON object.")
@in_chat()
async def replay(agent: "Agent", chat: "Chat", as_json: bool) -> int:
    """Replay a recorded chat offline and compare.

    ID is a chat's id, the beginning of it, or last. No model is called and nothing is run: their answers are taken from
    the log. The exit code is 0 when the same events come out, and 1 when they do not."""
    from treadle.library.replay import replay

    result = await replay(agent.deps.store, chat.id)
    is_same = result.divergence is None and result.matches
    different = inert(result.divergence.text) if result.divergence is not None else ""
    number = len(result.events)
    if as_json:
        write_json({"chat": chat.id, "same": result.matches, "events": number, "divergence": different})
    else:
        Terminal().line(f"{chat.id}: the same {number} events" if is_same else different or f"{chat.id}: other events")
    return EXIT_OK if is_same else EXIT_ERROR


@click.command("diff-runs")
@click.argument("left_ref", metavar="A", type=CHAT)
@click.argument("right", metavar="B", type=CHAT)
@json_option("Print one JSON object.")
@in_agent()
async def diff_runs(agent: "Agent", left_ref: str, right: str, as_json: bool) -> int:
    """Find the first difference between two chats.

    A and B are chats' ids, the beginnings of them, or last. Times, ids and folders do not count. The exit code is 0
    when there is no difference, and 1 when there is one."""
    from treadle.chat.divergence import first_divergence

    store = agent.deps.store
    chats = [await session.find_chat(store, chat_ref) for chat_ref in (left_ref, right)]
    logs = [await transfer.read_chat(store, chat) for chat in chats]
    divergence = first_divergence(logs[0], logs[1], (chats[0], chats[1]))
    different = inert(divergence.text) if divergence else ""
    if as_json:
        write_json({"chats": chats, "same": divergence is None, "divergence": different})
    else:
        Terminal().line(different if divergence else f"no difference in {len(logs[0])} events")
    return EXIT_ERROR if divergence else EXIT_OK
