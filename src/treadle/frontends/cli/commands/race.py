"""`treadle race`: several attempts at one task at once, each in a world of its own; the best is kept."""

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from treadle.base.inert import make_inert_line, print_line, print_note
from treadle.frontends.cli import options as o
from treadle.frontends.cli.group import run_in_loop
from treadle.frontends.cli.lazy import Agent, Config, drive, session, wire
from treadle.frontends.cli.terminal import Terminal, write_json
from treadle.frontends.presentation.styled import describe_status

if TYPE_CHECKING:
    from rich.table import Table

    from treadle.library.subagents.race import RunningRace
    from treadle.protocol.views import ChildView

MODES = ("ask", "auto-edit", "autopilot")


class RaceFlags(NamedTuple):
    task: str | None
    worlds: int
    models: str
    passes: str
    judge: str
    everything: bool
    chat: str
    root: str | None
    force_root: bool

    def check(self) -> None:
        if bool(self.task) == bool(self.chat):
            raise click.UsageError("Write the task as TASK, or name a race to continue with --chat.")


@click.command("race")
@click.argument("task", required=False)
@click.option("--worlds", type=click.IntRange(min=0, max=16), default=0, metavar="N", help="Number of attempts (4).")
@click.option("--model", "models", default="", metavar="A,B", help="The models of the attempts, in turn.")
@click.option(
    "--check", "passes", default="", metavar="CMD", help="A command that must succeed in the world of an attempt."
)
@click.option("--judge", default="", metavar="MODEL", help="A model that chooses among those that passed.")
@click.option("--all", "everything", is_flag=True, help="Let all attempts finish, even if one has passed.")
@click.option("--mode", type=click.Choice(MODES), help="What attempts may do without asking, in their worlds.")
@click.option("--max-turns", type=o.POSITIVE, metavar="N", help="How many model calls an attempt may make.")
@click.option("--budget-usd", type=o.AMOUNT, metavar="X", help="Budget of all attempts together, in US dollars.")
@click.option("--budget-tokens", type=o.COUNT, metavar="N", help="Budget of all attempts together, in tokens.")
@o.effort_option
@o.add_root_options
@click.option("--chat", default="", type=o.CHAT, help="Continue this race after a crash or a restart.")
@o.add_json_option("Print every change of an attempt, and at last the result, as a line of JSON.")
@o.gather_options(RaceFlags, "race_flags")
@run_in_loop
async def race(race_flags: RaceFlags, as_json: bool, **flags: Any) -> int:
    """Let several attempts at one task run at once, and keep the best.

    Each attempt is a chat in a copy-on-write world of the project, so they do not see each other, and the project stays
    as it is. The first whose --check passes wins, and the others are stopped; with --all, or without a check, it is the
    smallest change; with --judge a model chooses. The winner is committed as one change that treadle undo
    reverses. The worlds of the others stay; treadle world list shows them."""
    first = race_flags.models.split(",")[0].strip()
    config = session.load_config({**flags, "model": first or None})
    async with session.open_agent(config, works=True) as agent:
        running = await _begin(agent, config, race_flags)
        with drive.Signals(running.chat) as signals:
            await _show(running, as_json)
            result = running.result
            if as_json:
                write_json({"type": "race.result", **wire.to_wire_form(result)})
            else:
                print_line(result.text)
                if result.committed:
                    print_line(f"take it back: treadle undo {result.chat}")
            return o.EXIT_OK if result.committed else o.EXIT_ERROR
        print_note(f"treadle: left; go on with: treadle race --chat {running.chat.id}")
        return 128 + signals.ended_by


async def _begin(agent: "Agent", config: "Config", race_flags: RaceFlags) -> "RunningRace":
    from treadle.library.subagents.race import RunningRace, make_race_order

    if race_flags.chat:
        return RunningRace(agent, await session.open_chat(agent, race_flags.chat))
    models = o.split_names(race_flags.models) or (await session.select_model(agent, config),)
    for name in filter(None, (*models, race_flags.judge)):
        agent.deps.models.get(name)
        if disclosure := agent.consent.disclose(name):
            print_note(f"treadle: {make_inert_line(disclosure)}")
    judging = race_flags.passes, race_flags.judge, race_flags.everything
    race_order = make_race_order(race_flags.task or "", race_flags.worlds, models, *judging)
    root = o.resolve_project_root(race_flags.root, force=race_flags.force_root)
    chat = agent.chat(options=config.settings.make_chat_options(str(root)), interactive=False, model=models[0])
    return RunningRace(agent, chat, race_order)


async def _show(running: "RunningRace", as_json: bool) -> None:
    terminal = Terminal()
    if terminal.live and not as_json:
        from rich.live import Live

        with Live(refresh_per_second=4) as live:
            async for rows in running:
                live.update(_make_table(running, rows))
        return
    last_rows: dict[str, ChildView] = {}
    async for rows in running:
        for row in rows:
            old_row = last_rows.get(row.chat)
            last_rows[row.chat] = row
            if as_json and old_row != row:
                write_json({"type": "race.attempt", **wire.to_wire_form(row)})
                terminal.end_line()
            elif not as_json and (old_row is None or (old_row.status, old_row.ended) != (row.status, row.ended)):
                terminal.write_note(f"[{row.number}] {_describe_state(row)} · {row.chat}")


def _make_table(running: "RunningRace", rows: "list[ChildView]") -> "Table":
    from rich.table import Table

    from treadle.frontends.presentation.rich_text import Text

    table = Table(title=Text(f"race {running.chat.id}"), title_justify="left", box=None, pad_edge=False)
    for head in ("", "model", "state", "turns", "cost", "does", "chat"):
        table.add_column(head, justify="right" if head in ("turns", "cost") else "left", no_wrap=True)
    for row in rows:
        colour = {"done": "green", "task_complete": "green", "error": "red"}.get(row.ended, "yellow")
        cost = f"${row.usage.usd:.4f}" if row.usage.usd else f"{row.usage.tokens:,} tokens"
        cells = (str(row.number), row.model, _describe_state(row), str(row.turns), cost, row.doing, row.chat)
        table.add_row(
            *(Text(make_inert_line(cell, 60), style=colour if at == 2 else "") for at, cell in enumerate(cells))
        )
    return table


def _describe_state(row: "ChildView") -> str:
    if row.waits:
        return f"waits for an answer: {', '.join(row.waits)}"
    won = " · won" if "won" in row.labels else ""
    return f"{row.ended or describe_status(row.status)}{won}"
