"""`treadle jobs`: the background commands of chats (S-14)."""

from typing import TYPE_CHECKING, NamedTuple

import click

from treadle.base.inert import inert_line
from treadle.frontends.cli.group import in_agent
from treadle.frontends.cli.options import CHAT, gathered, json_option
from treadle.frontends.cli.terminal import Terminal, write_list
from treadle.frontends.presentation.styled import Colour, Line, Span, spans

if TYPE_CHECKING:
    from treadle.library.agent import Agent
    from treadle.library.jobs import Job
    from treadle.protocol.views import JobView

ALL = "all"
_LOOK_S = 0.2


class JobAct(NamedTuple):
    """The action of the command, if it does not list jobs."""

    stop: str | None
    tail: str | None
    follow: bool
    job_input: tuple[str, str] | None
    diff: str | None
    commit: str | None
    discard: str | None

    def check(self) -> None:
        acts = (self.stop, self.tail, self.job_input, self.diff, self.commit, self.discard)
        if sum(each is not None for each in acts) > 1:
            raise click.UsageError("--stop, --tail, --input, --diff, --commit and --discard exclude each other.")
        if self.follow and self.tail is None:
            raise click.UsageError("--follow goes with --tail.")


@click.command("jobs")
@click.argument("id", metavar="[ID]", required=False, type=CHAT)
@click.option("--all", "everything", is_flag=True, help="Also list commands that ended recently.")
@click.option(
    "--stop", is_flag=False, flag_value=ALL, metavar="[HANDLE|all]", help="Stop one, or all that run; then list them."
)
@click.option("--tail", metavar="HANDLE", help="Print the end of its output.")
@click.option("--follow", is_flag=True, help="With --tail: print new output until it ends.")
@click.option("--input", "job_input", nargs=2, metavar="HANDLE TEXT", help="Write a line to its input.")
@click.option("--diff", metavar="HANDLE", help="Show its uncommitted changes.")
@click.option("--commit", metavar="HANDLE", help="Show its changes and commit them to the project.")
@click.option("--discard", metavar="HANDLE", help="Discard its uncommitted changes.")
@json_option("Print one JSON object a line.")
@gathered(JobAct, "act")
@in_agent(works=True)
async def jobs(agent: "Agent", id: str | None, everything: bool, act: JobAct, as_json: bool) -> None:
    """List background commands; read their output, write to them, stop them.

    A HANDLE is what the list shows; CHAT:HANDLE where several chats have the same. A job is reached only on the machine
    and in the home where it runs. The changes of a job are committed to the project by a call of the model, when the
    next run begins, or with --commit.
    """
    from treadle.frontends.cli.drive import is_open_job
    from treadle.frontends.cli.session import find_chat
    from treadle.protocol import wire

    chat = await find_chat(agent.deps.store, id) if id else ""
    all_jobs = await (agent.chat(chat).jobs() if chat else agent.jobs())
    terminal = Terminal()
    if act.tail is not None:
        return await _tail(terminal, _find_job(all_jobs, act.tail), act.follow)
    if act.job_input is not None:
        return await _find_job(all_jobs, act.job_input[0]).send(act.job_input[1])
    if act.diff is not None or act.commit is not None:
        job = _find_job(all_jobs, act.diff or act.commit or "")
        return await _show_changes(terminal, agent, job, commit=act.commit is not None)
    if act.discard is not None:
        views = [await _find_job(all_jobs, act.discard).discard()]
    elif act.stop is not None:
        running = [job for job in all_jobs if job.view.status == "running"]
        jobs_to_stop = running if act.stop == ALL else [_find_job(all_jobs, act.stop)]
        views = [await job.stop() for job in jobs_to_stop]
    else:
        views = [job.view for job in all_jobs if everything or is_open_job(job.view)]
    rows = [(wire.to_wire_form(view), _line(terminal, view)) for view in views]
    return write_list(rows, "no background command runs", as_json=as_json)


async def _show_changes(terminal: Terminal, agent: "Agent", job: "Job", *, commit: bool) -> None:
    """Show the uncommitted changes of a job as a diff; then commit them if `commit` is set."""
    from treadle.diff.changes import count
    from treadle.errors import ToolError
    from treadle.frontends.cli.changes import print_patch
    from treadle.library.following import applied

    running = job.view.status == "running"
    changes = await job.changes()
    if changes.diff:
        print_patch(terminal, changes.diff)
    elif not (running and commit):
        terminal.note("it still runs: --commit takes its changes so far" if running else "nothing is pending")
        return
    if not commit:
        return
    outcome = await applied(agent.chat(job.view.chat).commit_job(job.view.job))
    if (completion := outcome.completion) is None or not completion.success:
        raise ToolError("not committed" if completion is None else completion.error or completion.result)
    amount = count(len(outcome.files), "change")
    terminal.note(f"committed {amount}; take it back with: treadle undo {job.view.chat}", "dim")


def _line(terminal: Terminal, view: "JobView") -> Line:
    from treadle.frontends.cli.commands.chats import age

    colours: dict[str, Colour] = {"running": "green", "elsewhere": "yellow"}
    status = f"exit {view.code}" if view.status == "exited" else view.status
    if view.status == "elsewhere" and view.host:
        status = f"on {inert_line(view.host, 60)}"
    status += f", {view.pending} uncommitted" if view.pending else ""
    painted = Span(f"{status:12}", (colours.get(view.status, "dim"),))
    aged = Span(f"{age(view.ended_ms or view.began_ms):>8}", ("dim",))
    command = inert_line(view.command, max(20, terminal.width - 70))
    return spans(f"{view.chat} {inert_line(view.job, 40):>6} ", aged, "  ", painted, f" {command}")


def _find_job(all_jobs: "list[Job]", handle: str) -> "Job":
    """The job that a person means."""
    from treadle.errors import InvalidInput, NotFound

    fit = [job for job in all_jobs if handle in (job.view.job, f"{job.view.chat}:{job.view.job}")]
    if not fit:
        raise NotFound(f"there is no job {handle!r}; see them with: treadle jobs --all")
    running = [job for job in fit if job.view.status == "running"]
    if len(fit) > 1 and len(running) != 1:
        names = ", ".join(f"{job.view.chat}:{job.view.job}" for job in fit[:5])
        raise InvalidInput(f"{len(fit)} chats have a job {handle!r}; say which: {names}")
    return running[0] if running else fit[0]


async def _tail(terminal: Terminal, job: "Job", follow: bool) -> None:
    import asyncio

    page = await job.tail()
    terminal.stream(page.text)
    while follow:
        running = (await job.look()).status == "running"
        while page.next < (page := await job.tail(page.next)).next:
            terminal.stream(page.text)
        if not running:
            break
        await asyncio.sleep(_LOOK_S)
    terminal.end_line()
