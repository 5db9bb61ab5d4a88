"""`treadle chats`, `show`, `stop`, `delete`: the chats of the database; `jobs`: their background commands (S-14);
`export`, `import`: a chat as JSON lines (D-08); `fork`, `replay`, `diff-runs`: a chat compared (D-07)."""

import sys
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

import click

from treadle.base.inert import make_inert, make_inert_json, make_inert_line, print_note
from treadle.errors import InvalidInput, NotFound, ToolError
from treadle.frontends.cli import options as o
from treadle.frontends.cli.group import pass_agent, pass_chat, run_in_loop

from treadle.frontends.cli.lazy import (  # isort: skip
    Agent, Chat, asyncio, changes, chat_state, command_stream, dialogue, diff_changes, drive, e, library_config,
    notices, piped, session, transfer, views, wire,
)  # fmt: skip
from treadle.frontends.cli.terminal import Terminal, age, write_json, write_list, write_outcome
from treadle.frontends.presentation.styled import Colour, Line, Span, describe_status, join_spans

if TYPE_CHECKING:
    from treadle.library.jobs import Job
    from treadle.ports.store import Listed

MOST = 200  # so many chats are listed for people, the newest
MOST_EVENTS = 2_000  # so many events of a chat are shown, its last ones


@click.command("chats")
@click.option("--all", "everything", is_flag=True, help="Show all chats, archived ones too.")
@click.option("--limit", type=o.POSITIVE, metavar="N", help="Show the N newest.")
@click.option(
    "--search", default="", metavar="TEXT", help="Only chats with these words in title, project, id or messages."
)
@o.add_optional_value("--project", ".", "[DIR]", "Only chats that work in DIR; without DIR, in this folder.", o.FOLDER)
@o.add_json_option("Print every chat as one line of JSON.")
@pass_agent()
async def chats(
    agent: "Agent", everything: bool, limit: int | None, search: str, project: str | None, as_json: bool
) -> None:
    """List the chats, newest first.

    Each with its id, age, state, project and title."""
    from treadle.library.searching import search_chats as hits
    from treadle.ports.store import ChatFilter

    most = limit or (0 if everything or as_json else MOST)
    narrow = bool(search or project)
    archived = None if everything else False
    if search.strip():
        matches = [hit.listed async for hit in hits(agent.deps.store, ChatFilter(archived=archived), search)]
    else:
        matches = await agent.chats(archived=archived, limit=most + 1 if most and not narrow else 0)
    if project is not None:
        here = str(o.resolve_project_root(project if project != "." else None, force=True))
        matches = [each for each in matches if changes.contains_folder(each.summary.root, here)]
    page = matches[:most] if most else matches
    none = "no such chat" if narrow else "no chats yet; begin one with: treadle run PROMPT"
    terminal = Terminal()
    write_list([(as_dict(each), _format_chat(terminal, each)) for each in page], none, as_json=as_json)
    if len(page) < len(matches) and limit is None:
        terminal.write_note(f"these are the {most} newest; all of them: treadle chats --all", "dim")


def as_dict(listed: "Listed") -> dict[str, object]:
    fields: dict[str, object] = wire.to_wire_form(listed.summary)
    fields["status"] = views.get_shown_status(listed.summary.status, listed.leased)
    for name in ("created", "updated"):
        fields[name] = wire.format_time(getattr(listed.summary, f"{name}_ms"))
    for name in ("created_ms", "updated_ms", "runnable", "wake_ms"):
        del fields[name]
    return fields | {"leased": listed.leased}


def _format_chat(terminal: Terminal, listed: "Listed") -> Line:
    summary, status = listed.summary, views.get_shown_status(listed.summary.status, listed.leased)
    title = make_inert_line(summary.title or "(no title)", max(20, terminal.width - 72))
    colour: Colour = "red" if status == "error" else "dim" if status == "idle" else "yellow"
    aged = Span(f"{age(summary.updated_ms):>8}", ("dim",))
    project = make_inert_line(PurePath(summary.root).name or summary.root or "-", 20)
    details = f"  {project:20}  {title}{' (archived)' if summary.archived else ''}"
    line = join_spans(f"{summary.chat} ", aged, "  ", Span(f"{describe_status(status):15}", (colour,)), details)
    if summary.last_error is None:
        return line
    error_text = f"{summary.last_error.error_class}: {summary.last_error.message}"
    return (*line, Span(f"\n    {make_inert_line(error_text, max(20, terminal.width - 4))}", ("red",)))


@click.command("show")
@click.option("--all", "everything", is_flag=True, help="Show all of a long chat, not only its end.")
@click.option("--short", is_flag=True, help="One line for calls that follow each other.")
@o.add_json_option("Print the chat as one JSON object.")
@pass_chat()
async def show(agent: "Agent", chat: "Chat", everything: bool, short: bool, as_json: bool) -> None:
    """Show a chat from its log.

    ID is a chat's id, the beginning of it, or last. For the events themselves see export."""
    from treadle.library.subagents.children import list_descendants_begun

    if as_json and short:
        raise click.UsageError("--json and --short exclude each other.")
    state = await chat.state()
    if as_json:
        return write_json(_build_chat_object(state, await agent.deps.store.get(chat.id)))
    recorded = await chat.events(0 if everything else max(0, state.head - MOST_EVENTS))
    events = [await chat.load_full_event(each) for each in recorded]
    if events and events[0].seq > 1:  # the end of a log is shown from a message on, if there is one
        events = events[next((at for at, each in enumerate(events) if isinstance(each.data, e.UserMessage)), 0) :]
    if state.parent:
        print_note(f"begun by {make_inert_line(state.parent, 120)}")
    await _print(chat, state, events, short)
    rows = await list_descendants_begun(agent.deps, chat.id, [each.data for each in events])
    # The chats that its calls began, and theirs, where what was shown has not told all of it.
    for row in rows if any(row.depth > 1 or not row.ended for row in rows) else ():
        waits = f"waits for an answer: {', '.join(row.waits)}" if row.waits else ""
        cost = f"${row.usage.usd:.4f}" if row.usage.usd else f"{row.usage.tokens:,} tokens"
        facts = (row.chat, row.title, waits or row.ended or describe_status(row.status), f"{row.turns} turns", cost)
        print_note(f"{'   ' * row.depth}└ {' · '.join(make_inert_line(fact, 80) for fact in facts)}")


async def _print(chat: "Chat", state: "chat_state.ChatState", events: "list[e.Envelope]", short: bool) -> None:
    from treadle.frontends.cli.screen import Screen
    from treadle.protocol.views import Progress

    terminal = Terminal()
    screen = Screen(terminal, echo=True)
    net_changes = await chat.files.net(step for each in events for step in drive.get_steps(each))
    screen.set_changed_files(net_changes, state.options.world)
    screen.begin(chat.id, state.options.model, state.options.root)
    earlier = events[0].seq - 1 if events else 0
    if earlier:
        hint = f"all of them: treadle show {chat.id} --all"
        terminal.write_note(f"{earlier:,} earlier events are not shown; {hint}", "dim")
    progress = Progress()
    for envelope in events:
        if short and (line := progress.take(envelope.data)):
            terminal.write_note(f"● {line}", "dim")
        if not (short and isinstance(envelope.data, e.ExecutionStart | e.ExecutionComplete)):
            screen.show_event(envelope)
    if short and (line := progress.flush()):
        terminal.write_note(f"● {line}", "dim")
    if earlier or short:
        screen.load_totals(state)
    if actions := chat_state.list_open_actions(state):
        screen.show_event(e.Envelope(0, chat.id, 0, e.ActionRequired(actions)))
    elif state.restoring is not None:
        kind = state.restoring.kind
        terminal.write_note(f"── an unfinished {kind} · complete it: treadle resume {chat.id}", "yellow")
    elif state.run is None:
        screen.show_event(e.Envelope(0, chat.id, 0, e.SessionIdle(state.last_end or "done", state.last_why)))
    else:
        terminal.write_note(f"── unfinished · go on: treadle resume {chat.id}", "yellow")


def _build_chat_object(state: "chat_state.ChatState", listed: "Listed") -> dict[str, object]:
    roles = {"UserEntry": "user", "AssistantEntry": "assistant", "ResultsEntry": "tool"}
    return as_dict(listed) | {
        "options": wire.to_wire_form(state.options),
        "last_end": state.last_end,
        "last_why": state.last_why,
        "messages": [{"role": roles[type(each).__name__]} | wire.to_wire_form(each) for each in state.history],
        "actions": wire.to_wire_form(chat_state.list_open_actions(state)),
        "queue": wire.to_wire_form(state.queue),
        "plan": wire.to_wire_form(state.plan),
    }


@click.command("stop")
@o.add_json_option("Print one JSON object.")
@pass_chat(works=True)
async def stop(agent: "Agent", chat: "Chat", as_json: bool) -> None:
    """Stop the run of a chat, wherever it works.

    ID is a chat's id, the beginning of it, or last. Running commands end, open calls get a result that says so, and the
    chat can be continued. Background commands stay: see jobs."""
    await chat.interrupt()  # recorded first; the worker of the chat, or this process, then settles the calls (L-07)
    idle_event = e.SessionIdle("interrupted")
    async for envelope in chat.resume():
        if isinstance(envelope.data, e.SessionIdle):
            idle_event = envelope.data
    note = f"chat {chat.id}: {notices.describe_end(idle_event)} · go on: treadle run --chat {chat.id} PROMPT"
    write_outcome({"chat": chat.id, "reason": idle_event.reason}, note, as_json=as_json)


@click.command("delete")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@o.add_json_option("Print one JSON object; needs --yes.")
@pass_chat()
async def delete(agent: "Agent", chat: "Chat", yes: bool, as_json: bool) -> int:
    """Delete a chat and its sub-agents for good.

    ID is a chat's id, the beginning of it, or last. A chat that works is not deleted: stop it first. Its background
    commands end. The files of the project stay as they are, but what the chat changed can no longer be undone. Worlds
    stay. To keep a copy, export the chat before; to hide it, archive it."""
    if not yes:
        if as_json or not dialogue.is_person_there():
            raise InvalidInput(f"A deleted chat cannot be brought back. Delete it with: treadle delete --yes {chat.id}")
        title = make_inert_line((await agent.deps.store.get(chat.id)).summary.title or chat.id, 60)
        if not await dialogue.ask_yes_or_no(f"delete “{title}” for good? [y/N] "):
            Terminal().write_note("nothing was deleted", "dim")
            return o.EXIT_ERROR
    await agent.delete_chat(chat.id)
    write_outcome({"chat": chat.id, "deleted": True}, f"chat {chat.id} is deleted", as_json=as_json)
    return o.EXIT_OK


@click.command("export")
@pass_chat()
async def export(agent: "Agent", chat: "Chat") -> None:
    """Write a chat to standard output as JSON lines.

    ID is a chat's id, the beginning of it, or last. Every line is an event with its seq and type; data outside the log
    is included in the event that names it, so that the file is complete."""
    is_terminal = sys.stdout.isatty()
    async for line in transfer.export_chat(agent.deps.store, chat.id):
        sys.stdout.buffer.write(make_inert_json(line) if is_terminal else line)
    sys.stdout.buffer.flush()


@click.command("import")
@click.argument("file", type=o.FILE)
@click.option("--new-id", is_flag=True, help="Give the chat a new id, for instance because its own is taken.")
@click.option(
    "--owner", default="", metavar="USER", help="Give the chat to this user of the server; by default it is yours."
)
@o.add_json_option("Print one JSON object.")
@run_in_loop
async def import_(file: str, new_id: bool, owner: str, as_json: bool) -> None:
    """Read a chat from JSON lines.

    FILE is the output of export; - reads standard input. Prints the chat's id. If a line is wrong or the file was cut,
    the error names the place and nothing is imported.

    The chat gets the model, mode, rules, sandbox, budgets and project of a new chat here. A run that was under way
    there is ended, not continued."""
    lines = piped.read_bytes(file).split(b"\n")
    config = session.load_config()
    async with session.open_agent(config) as agent:
        root = o.find_present_root()
        # Options that grant rights are those of a new chat here (S-09).
        local = agent.prepare(config.settings.make_chat_options(root)).options
        chat = await transfer.import_chat(agent.deps.store, lines, new_id, local=local, owner=owner)
    place = f"{local.model or 'no model yet'}, mode {local.mode}, in {root or 'no project'}"
    value = {"chat": chat, "model": local.model, "mode": local.mode, "root": root}
    write_outcome(value, make_inert_line(f"{place}, as for a new chat here"), line=chat, as_json=as_json)


@click.command("fork")
@click.argument("point", metavar="ID[@SEQ]", type=o.CHAT)
@click.option("--model", metavar="PROVIDER:NAME", help="The model of the new chat, or your alias for one.")
@o.add_json_option("Print one JSON object.")
@pass_agent()
async def fork(agent: "Agent", point: str, model: str | None, as_json: bool) -> None:
    """Start a new chat as a copy of another up to a point.

    ID is a chat's id, the beginning of it, or last. SEQ is the number of its last event in the copy; without it
    everything is copied. Prints the id of the copy, which is the last chat from then on."""
    chat_ref, at, seq = point.partition("@")
    if at and not (seq.isdecimal() and len(seq) < o.MOST_DIGITS):
        raise InvalidInput(f"{point[:80]!r} names no event; write ID@SEQ with a number, as in last@12")
    store = agent.deps.store
    chat = await session.find_chat(store, chat_ref)
    if model is not None:
        model = library_config.load().resolve_model(model)
        agent.deps.models.get(model)
    upto = int(seq) if at else await store.read_head(chat)
    copy = await transfer.fork_chat(store, chat, upto, {} if model is None else {"model": model})
    note = f"a copy of {chat} up to event {upto} · go on: treadle run --chat {copy} PROMPT"
    write_outcome({"chat": copy, "forked_from": chat, "seq": upto}, note, line=copy, as_json=as_json)


@click.command("replay")
@o.add_json_option("Print one JSON object.")
@pass_chat()
async def replay(agent: "Agent", chat: "Chat", as_json: bool) -> int:
    """Replay a recorded chat offline and compare.

    ID is a chat's id, the beginning of it, or last. No model is called and nothing is run: their answers are taken from
    the log. The exit code is 0 when the same events come out, and 1 when they do not."""
    from treadle.library.replay import replay

    result = await replay(agent.deps.store, chat.id)
    is_same = result.divergence is None and result.matches
    different = make_inert(result.divergence.text) if result.divergence is not None else ""
    number = len(result.events)
    line = f"{chat.id}: the same {number} events" if is_same else different or f"{chat.id}: other events"
    value = {"chat": chat.id, "same": result.matches, "events": number, "divergence": different}
    write_outcome(value, line=line, as_json=as_json)
    return o.EXIT_OK if is_same else o.EXIT_ERROR


@click.command("diff-runs")
@click.argument("left_ref", metavar="A", type=o.CHAT)
@click.argument("right", metavar="B", type=o.CHAT)
@o.add_json_option("Print one JSON object.")
@pass_agent()
async def diff_runs(agent: "Agent", left_ref: str, right: str, as_json: bool) -> int:
    """Find the first difference between two chats.

    A and B are chats' ids, the beginnings of them, or last. Times, ids and folders do not count. The exit code is 0
    when there is no difference, and 1 when there is one."""
    from treadle.chat.divergence import find_first_divergence

    store = agent.deps.store
    chats = [await session.find_chat(store, chat_ref) for chat_ref in (left_ref, right)]
    logs = [await transfer.read_chat(store, chat) for chat in chats]
    divergence = find_first_divergence(logs[0], logs[1], (chats[0], chats[1]))
    different = make_inert(divergence.text) if divergence else ""
    value = {"chats": chats, "same": divergence is None, "divergence": different}
    write_outcome(value, line=different or f"no difference in {len(logs[0])} events", as_json=as_json)
    return o.EXIT_ERROR if divergence else o.EXIT_OK


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
        acts = [self.stop, self.tail, self.job_input, self.diff, self.commit, self.discard]
        several = "--stop, --tail, --input, --diff, --commit and --discard exclude each other."
        is_lone = self.follow and self.tail is None
        o.refuse({several: acts.count(None) < len(acts) - 1, "--follow goes with --tail.": is_lone})


@click.command("jobs")
@click.argument("id", metavar="[ID]", required=False, type=o.CHAT)
@click.option("--all", "everything", is_flag=True, help="Also list commands that ended recently.")
@o.add_optional_value("--stop", ALL, "[HANDLE|all]", "Stop one, or all that run; then list them.")
@click.option("--tail", metavar="HANDLE", help="Print the end of its output.")
@click.option("--follow", is_flag=True, help="With --tail: print new output until it ends.")
@click.option("--input", "job_input", nargs=2, metavar="HANDLE TEXT", help="Write a line to its input.")
@click.option("--diff", metavar="HANDLE", help="Show its uncommitted changes.")
@click.option("--commit", metavar="HANDLE", help="Show its changes and commit them to the project.")
@click.option("--discard", metavar="HANDLE", help="Discard its uncommitted changes.")
@o.add_json_option("Print one JSON object a line.")
@o.gather_options(JobAct, "act")
@pass_agent(works=True)
async def jobs(agent: "Agent", id: str | None, everything: bool, act: JobAct, as_json: bool) -> None:
    """List background commands; read their output, write to them, stop them.

    A HANDLE is what the list shows; CHAT:HANDLE where several chats have the same. A job is reached only on the machine
    and in the home where it runs. The changes of a job are committed to the project by a call of the model, when the
    next run begins, or with --commit."""
    all_jobs = await ((await session.open_chat(agent, id)).jobs() if id else agent.jobs())
    terminal = Terminal()
    if act.tail is not None:
        return await _print_tail(terminal, _find_job(all_jobs, act.tail), act.follow)
    if act.job_input is not None:
        return await _find_job(all_jobs, act.job_input[0]).send(act.job_input[1])
    if act.diff is not None or act.commit is not None:
        job = _find_job(all_jobs, act.diff or act.commit or "")
        return await _show_changes(terminal, agent, job, commit=act.commit is not None)
    if act.discard is not None:
        views = [await _find_job(all_jobs, act.discard).discard()]
    elif act.stop is not None:
        running = [job for job in all_jobs if job.view.status == "running"]
        views = [await job.stop() for job in (running if act.stop == ALL else [_find_job(all_jobs, act.stop)])]
    else:
        views = [job.view for job in all_jobs if everything or drive.is_open_job(job.view)]
    rows = [(wire.to_wire_form(view), _format_job(terminal, view)) for view in views]
    return write_list(rows, "no background command runs", as_json=as_json)


async def _show_changes(terminal: Terminal, agent: "Agent", job: "Job", *, commit: bool) -> None:
    """Show the uncommitted changes of a job as a diff; then commit them if `commit` is set."""
    running = job.view.status == "running"
    if diff := (await job.changes()).diff:
        changes.print_patch(terminal, diff)
    elif not (running and commit):
        terminal.write_note("it still runs: --commit takes its changes so far" if running else "nothing is pending")
        return
    if not commit:
        return
    outcome = await command_stream.collect_changes(agent.chat(job.view.chat).commit_job(job.view.job))
    if (completion := outcome.completion) is None or not completion.success:
        raise ToolError("not committed" if completion is None else completion.error or completion.result)
    amount = diff_changes.count(len(outcome.files), "change")
    terminal.write_note(f"committed {amount}; take it back with: treadle undo {job.view.chat}", "dim")


def _format_job(terminal: Terminal, view: "views.JobView") -> Line:
    colours: dict[str, Colour] = {"running": "green", "elsewhere": "yellow"}
    status = f"exit {view.code}" if view.status == "exited" else view.status
    if view.status == "elsewhere" and view.host:
        status = f"on {make_inert_line(view.host, 60)}"
    status += f", {view.pending} uncommitted" if view.pending else ""
    painted = Span(f"{status:12}", (colours.get(view.status, "dim"),))
    aged = Span(f"{age(view.ended_ms or view.began_ms):>8}", ("dim",))
    command = make_inert_line(view.command, max(20, terminal.width - 70))
    return join_spans(f"{view.chat} {make_inert_line(view.job, 40):>6} ", aged, "  ", painted, f" {command}")


def _find_job(all_jobs: "list[Job]", handle: str) -> "Job":
    fit = [job for job in all_jobs if handle in (job.view.job, f"{job.view.chat}:{job.view.job}")]
    if not fit:
        raise NotFound(f"there is no job {handle!r}; see them with: treadle jobs --all")
    running = [job for job in fit if job.view.status == "running"]
    if len(fit) > 1 and len(running) != 1:
        names = ", ".join(f"{job.view.chat}:{job.view.job}" for job in fit[:5])
        raise InvalidInput(f"{len(fit)} chats have a job {handle!r}; say which: {names}")
    return running[0] if running else fit[0]


async def _print_tail(terminal: Terminal, job: "Job", follow: bool) -> None:
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
