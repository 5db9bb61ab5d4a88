"""`treadle eval`: measure models at a suite of tasks, or compare two results."""

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from treadle.base.inert import make_inert_line, print_note
from treadle.errors import InvalidInput
from treadle.frontends.cli.lazy import Config, asyncio, diff_changes, msgspec, session
from treadle.frontends.cli.options import FOLDER, POSITIVE, gather_options, split_names
from treadle.frontends.cli.terminal import Terminal

if TYPE_CHECKING:
    from treadle.library.evaluation.tasks import Result, Task

COMPARE = "compare"


class Evaluation(NamedTuple):
    words: tuple[str, ...]
    models: str | None
    attempts: int
    jobs: int
    out: str | None
    only: str
    repositories: str | None
    retry_errors: bool

    def check(self) -> None:
        if len(self.words) != (3 if self.words[0] == COMPARE else 1):
            two = "compare takes two results: treadle eval compare A B"
            raise click.UsageError(two if self.words[0] == COMPARE else "name one suite, or: compare A B")


@click.command("eval")
@click.argument("words", metavar="SUITE | compare A B", nargs=-1, required=True)
@click.option("--model", "models", metavar="A,B", help="The models; {task} in one stands for the task's name.")
@click.option("-n", "attempts", type=POSITIVE, default=1, metavar="N", help="Attempts at each task.")
@click.option("--jobs", type=POSITIVE, default=1, metavar="N", help="How many attempts at the same time.")
@click.option(
    "--out",
    type=FOLDER,
    help="The folder of the results, from which an interrupted run continues; by default eval-results/SUITE.",
)
@click.option("--only", default="", metavar="A,B", help="Only tasks of these names or tags.")
@click.option("--repos", "repositories", type=FOLDER, help="Where the repositories lie that a JSONL suite names.")
@click.option("--retry-errors", is_flag=True, help="Make attempts again that ended in an error.")
@gather_options(Evaluation, "flags")
def eval_(flags: Evaluation) -> None:
    """Measure how well models do a suite of tasks.

    SUITE is a folder of tasks, or a file of JSON lines in the way of SWE-bench. Every attempt is a chat in a world
    of the task's tree; then the task's check decides whether it is solved. Run the same line again to go on
    after a stop: what is done is not done again, what was under way is resumed. `compare A B` tells what got better and
    what got worse from one result to another. The exit code is 1 if every attempt ended in an error."""
    from treadle.library.evaluation.report import compare
    from treadle.library.evaluation.tasks import read_results, read_suite, select_tasks

    if flags.words[0] == COMPARE:
        return Terminal().write_line(compare(*(read_results(Path(each)) for each in flags.words[1:])))
    suite = Path(flags.words[0])
    repositories = Path(flags.repositories) if flags.repositories else None
    tasks = select_tasks(read_suite(suite, repositories), [word for word in flags.only.split(",") if word])
    name = suite.resolve().stem
    folder = Path(flags.out or Path("eval-results", name)).absolute()
    try:
        asyncio.run(_evaluate(session.load_config(), flags, folder, tasks, name))
    except KeyboardInterrupt:
        print_note("stopped; run the same command to continue")
        raise


async def _evaluate(config: "Config", flags: Evaluation, folder: Path, tasks: "list[Task]", suite: str) -> None:
    from treadle.library.evaluation.attempts import STORE, Plan, evaluate, find_open_attempts, plan_attempts
    from treadle.library.evaluation.report import render_svg_plot, text_report
    from treadle.library.evaluation.tasks import ERRORS, find_missing_programs

    models = tuple(map(config.resolve_model, split_names(flags.models or config.settings.model)))
    if not models:
        raise InvalidInput("no model is set; name one or more with --model")
    (folder / STORE).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    plan = Plan(models, flags.attempts, flags.jobs, config.settings.make_chat_options(""), flags.retry_errors)
    terminal = Terminal()
    for task in tasks:
        if lacking := find_missing_programs(task):
            terminal.write_note(f"left out, because {', '.join(lacking)} is not here: {task.name}", "yellow")
    number = len(plan_attempts(tasks, plan))
    terminal.write_note(f"{diff_changes.count(number, 'attempt')}, kept in {folder}", "dim")
    counter = itertools.count(number - len(find_open_attempts(tasks, plan, folder)) + 1)

    def print_result(result: "Result") -> None:
        mark, error_text = "✓" if result.solved else "✗", f" · {result.error}" if result.error else ""
        attempt = f"{result.task} · {result.model} · {result.attempt}"
        text = make_inert_line(f"{mark} {attempt} · {result.ended}, {result.turns} turns{error_text}")
        terminal.write_line(f"[{next(counter)}/{number}] {text}")

    settings = msgspec.structs.replace(config.settings, store=str(folder / STORE))
    async with session.open_agent(msgspec.structs.replace(config, settings=settings), works=True) as agent:
        results = await evaluate(agent, tasks, plan, folder, print_result)
    report = text_report(results)
    (folder / "report.txt").write_text(report + "\n", encoding="utf-8")
    (folder / "report.svg").write_text(render_svg_plot(results, suite), encoding="utf-8")
    terminal.write_line()
    terminal.write_line(report)
    terminal.write_note(f"see also {folder / 'report.svg'}", "dim")
    if results and all(result.ended in ERRORS for result in results):
        raise click.ClickException(f"every attempt ended in an error; the first: {make_inert_line(results[0].error)}")
