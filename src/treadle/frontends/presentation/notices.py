"""Lines of text about a run: finished calls with their target, outcome and the first lines of their diff or output;
retries, limits, questions, undone changes, the end."""

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from treadle.base.inert import make_inert, make_inert_line
from treadle.base.types import ChatId
from treadle.chat.budget import format_spent
from treadle.diff.changes import ASIDE, Aside, count, format_changes, is_folder, sort_out, sum_stats
from treadle.errors import TreadleError
from treadle.frontends.presentation.styled import Colour, Line, Span, make_line
from treadle.protocol import events as e
from treadle.protocol.content import Usage
from treadle.protocol.files import decode_path
from treadle.protocol.views import JobView

MINUS = "\N{MINUS SIGN}"
MOST_CHANGED = 12  # files that are named at the end of a run
LONGEST_ERROR = 4_000  # characters of an error; all of it is in the log
DIFF_LINES = 14
OUTPUT_LINES = 6
CHANGED = "[changed in the project]"  # stands in a command's result between its output and what it did to files
QUIET = frozenset({"task_complete", "update_plan"})  # calls whose effect is shown as an event of its own
_LATE = frozenset({"no_such_action", "hash_mismatch", "not_awaiting_action"})
_COLOURS: dict[str, Colour] = {"+": "green", "-": "red"}
_ENDS: dict[e.EndReason, str] = {
    "done": "done",
    "task_complete": "task complete",
    "interrupted": "interrupted",
    "error": "ended with an error",
    "turn_cap": "stopped at the turn cap",
    "budget": "stopped at the budget",
    "guard": "stopped: the model repeated itself",
    "superseded": "replaced by an edit",
    "incomplete": "ended with an incomplete answer",
}


def make_notice(event: e.Event) -> tuple[str, Colour] | None:
    """The line and its colour; None for events that are shown in another way or not at all."""
    match event:
        case e.TurnRetry(error_class="worker_lost"):
            return "the worker before was lost during a model call; the call is made again", "yellow"
        case e.TurnRetry():
            again = f"; again in {event.delay_s:.1f} s" if event.delay_s else ""
            error_text = f"({make_inert_line(event.error_class, 60)}): {make_inert_line(event.message, 300)}"
            return f"retry {event.attempt} {error_text}{again}", "yellow"
        case e.SessionError():
            message = make_inert(event.message)[:LONGEST_ERROR]
            return f"error ({make_inert_line(event.error_class, 60)}): {message}", "red"
        case e.Interrupted(by=by):
            return f"stopping (asked by {make_inert_line(by, 40)}) …", "yellow"
        case e.LimitWarning() | e.LimitReached():
            word = "limit reached" if isinstance(event, e.LimitReached) else "warning"
            return f"{word}: {format_spent(event)} of this {event.scope} used", "yellow"
        case e.LimitExtended(turns=turns, by=by):
            return f"{turns} more turns (by {make_inert_line(by, 40)})", "dim"
        case e.ModelNotice(text=text):
            return f"note: {make_inert_line(text, 500)}", "yellow"
        case e.SandboxNotice(text=text, lowered=lowered):
            return f"note: {make_inert_line(text, 500)}", "yellow" if lowered else "dim"
        case e.JobEnded(ending=ending, code=code):
            details = "".join(f"; would have been asked for: {make_inert_line(each, 200)}" for each in event.concerns)
            details += f"; {count(event.pending, 'change')} not committed yet" if event.pending else ""
            ending_text = f"{f'exit {code}' if ending == 'exited' else ending}{details}"
            return f"background command {make_inert_line(event.job, 40)}: {ending_text}", "yellow" if details else "dim"
        case e.JobSettled(outcome=outcome):
            outcome_text = {"refused": "not committed: the same files changed in the project"}.get(outcome, outcome)
            return f"changes of the background command {make_inert_line(event.job, 40)}: {outcome_text}", "dim"
        case e.SubagentCompleted():
            return f"   └ {_describe_child(event)}", "dim" if event.reason in ("done", "task_complete") else "yellow"
        case e.GuardNotice(action=action):
            ending_text = "; it was asked to stop that" if action == "nudge" else " without progress"
            return f"the model repeats itself{ending_text}", "yellow"
        case e.RecordLost(lost_type=lost_type, reason=reason):
            details = f"({make_inert_line(lost_type, 60)}): {make_inert_line(reason, 300)}"
            return f"a damaged record was left out {details}", "red"
        case e.CompactionStart():
            return "summing up the conversation to make room …", "dim"
        case e.CompactionComplete(success=True):
            return f"summed up: {event.tokens_before:,} → {event.tokens_after:,} tokens", "dim"
        case e.CompactionComplete(error=error):
            return f"summing up failed: {make_inert_line(error, 300)}", "yellow"
        case e.OptionsChanged(changes=changes) if changes:
            return f"changed: {make_inert_line(', '.join(sorted(changes)), 200)}", "dim"
        case e.PermissionCompleted(decision="deny", by=by, feedback=feedback) if by != "policy":
            # The line of a call that the policy refuses says so, and why.
            return f"not allowed{': ' + make_inert_line(feedback, 300) if feedback else ''}", "yellow"
        case _:
            return _make_project_notice(event)


def _make_project_notice(event: e.Event) -> tuple[str, Colour] | None:
    """The same for events about files, and about going back."""
    match event:
        case e.SessionImported():
            return "imported from another place; changes made before this cannot be undone here", "dim"
        case e.Undone() | e.Redone() | e.ChangesKept():
            word = {e.Undone: "undone", e.Redone: "redone", e.ChangesKept: "kept"}[type(event)]
            if event.error:
                return f"not {word}: {make_inert_line(event.error, 300)}", "yellow"
            conflicts_text = f"; not changed: {len(event.conflicts)}" if event.conflicts else ""
            changes_text = count(event.total or len(event.files), "change")
            return f"{word}: {changes_text}{conflicts_text}", "yellow" if conflicts_text else "dim"
        case e.SessionRewound(message=message, by=by):
            return f"the conversation went back to before message {message} (by {make_inert_line(by, 40)})", "dim"
        case e.WorkspaceConflict(conflicts=conflicts):
            names = ", ".join(make_inert_line(decode_path(each.path), 80) for each in conflicts[:5])
            return f"nothing was changed, because the same files were edited in the meantime: {names}", "yellow"
        case e.GitBranchCreated(branch=branch, previous=previous):
            suffix = f", before that {make_inert_line(previous, 80)}" if previous else ""
            return f"on the git branch {make_inert_line(branch, 120)}{suffix}", "dim"
        case _:
            return None


def _describe_child(event: e.SubagentCompleted) -> str:
    """A chat that a call began, when it rests."""
    facts = (
        _ENDS[event.reason],
        {None: "", True: "passed", False: "not passed"}[event.passed],
        f"{count(event.files, 'file')} +{event.added} {MINUS}{event.removed}" if event.files else "",
        "committed" if event.committed else "",
        count(event.turns, "turn"),
        f"${event.usage.usd:.4f}" if event.usage.usd else "",
        make_inert_line(event.chat, 80),
    )
    return f"[{event.number}] {make_inert_line(event.title, 60)}: {' · '.join(filter(None, facts))}"


def describe_changes(chat: ChatId, files: Sequence[e.FileChange], world: str = "") -> list[str]:
    """Return the files that a run changed, and the commands that undo them (W-04) and commit them from a world."""
    lines = format_changes(files, lambda path: make_inert_line(decode_path(path), 200), MOST_CHANGED)
    if not lines:
        return []
    lines.append(f"changed in all: {summarize_changes(files)} · undo: treadle undo {chat}")
    return [*lines, f"all of it in a world; into the project: treadle world commit {world}"] if world else lines


def describe_living_jobs(chat: ChatId, jobs: Sequence[JobView]) -> list[str]:
    """The background commands that a run leaves, and how to end them (S-14); of ended ones what is not committed."""
    names = [(job.pending, make_inert_line(job.job, 40), make_inert_line(job.command, 120)) for job in jobs]
    lines = [f"in the background: {job} {command}" for pending, job, command in names if not pending]
    lines += [f"stop: treadle jobs {chat} --stop"] if lines else []
    pending_jobs = [each for each in names if each[0]]
    lines += [f"{count(pending, 'change')} not committed: {job} {command}" for pending, job, command in pending_jobs]
    return lines + [f"commit: treadle jobs {chat} --commit {job}" for _, job, _ in pending_jobs[:1]]


def summarize_changes(files: Iterable[e.FileChange], aside: Collection[Aside] = ASIDE) -> str:
    """How many files, how many lines came and went, and how many files are only counted."""
    parts = sort_out(files, aside)
    stat = sum_stats(parts.reported_files, ())
    real = sum(not is_folder(file) for file in parts.reported_files)
    counts_text = f"{count(real, 'file')}, +{stat.added:,} {MINUS}{stat.removed:,}"
    return "; ".join([*([counts_text] if parts.reported_files or not parts.counts else []), *parts.counts])


def describe_request(action: e.OpenAction) -> list[str]:
    match action.kind:
        case "external_tool":
            call = make_inert_line(action.tool_call_id)
            head = f"waits for the result of {make_inert_line(action.name, 64)} (tool call {call})"
            body = [f"{name} = {make_inert_line(str(value), 300)}" for name, value in action.arguments.items()]
        case "permission":
            head = "waits for your approval of"
            body = [*make_inert(action.text).split("\n"), *explain_question(action)]
        case "user_input":
            head = f"asks: {make_inert(action.text)}"
            body = [f"{number} {make_inert_line(option, 300)}" for number, option in enumerate(action.options, 1)]
    return [head, *(f"  {line}" for line in body)]


def is_late_answer(error: TreadleError) -> bool:
    """True if an answer was refused because the action was answered elsewhere, or its content has changed."""
    return not _LATE.isdisjoint((error.code, getattr(error, "reason", "")))


def resolve_option(action: e.OpenAction, typed: str) -> str:
    """Resolve a typed answer: the number of an option stands for that option."""
    number = int(typed) if typed.isdecimal() and len(typed) < 4 and typed not in action.options else 0
    return action.options[number - 1] if 1 <= number <= len(action.options) else typed


def explain_question(action: e.OpenAction) -> list[str]:
    """Why a person is asked, and what a standing answer would cover and what not (S-07)."""
    lines = [f"severity: {make_inert_line(action.severity, 20)}"] if action.severity not in ("", "none") else []
    if action.reason:
        lines.append(f"asked because: {make_inert_line(action.reason, 500)}")
    for number, offer in enumerate(action.offers, 1):
        leaves = f"; not: {make_inert_line(offer.leaves, 300)}" if offer.leaves else ""
        once = ", for this call alone" if offer.open_scopes == ("once",) else ""
        lines.append(f"rule {number} would allow: {make_inert_line(offer.covers, 300)}{once}{leaves}")
    return lines


def suggest_answer(chat: ChatId, action: e.OpenAction) -> str:
    if action.kind == "permission":
        return f"treadle approve {chat} (or with --deny)"
    return f"treadle resume {chat} {'--results FILE' if action.kind == 'external_tool' else '--answer TEXT'}"


def format_cost(usage: Usage, turns: int, calls: int, seconds: float) -> str:
    parts = (
        f"{turns} {'turn' if turns == 1 else 'turns'}",
        f"{calls} {'call' if calls == 1 else 'calls'}",
        f"{'~' if usage.estimated else ''}{usage.input:,} tokens in, {usage.output:,} out",
        f"${usage.usd:.4f}" if usage.usd else "",
        f"{seconds:.1f} s" if seconds else "",
    )
    return " · ".join(filter(None, parts))


def describe_end(idle: e.SessionIdle) -> str:
    return make_inert_line(idle.why, 300) or _ENDS[idle.reason]


def suggest_next_step(chat: ChatId, reason: e.EndReason) -> str:
    if reason in ("done", "task_complete", "superseded"):
        return f"say more: treadle run --chat {chat} PROMPT"
    if reason == "turn_cap":
        return f"go on with more turns: treadle run --chat {chat} --max-turns N PROMPT (or set max_turns)"
    return f"go on: treadle run --chat {chat} PROMPT"


def format_call_lines(name: str, summary: str, completion: e.ExecutionComplete, width: int) -> list[Line]:
    """The call and what it left, in lines of at most about `width` columns; nothing for a quiet call."""
    if name in QUIET and completion.success:
        return []
    mark = Span("●", ("green",)) if completion.success else Span("✗", ("red",))
    outcome = completion.result_summary or (completion.error if not completion.success else "")
    if completion.diff_stat is not None and not completion.effect:
        outcome = f"+{completion.diff_stat.added} {MINUS}{completion.diff_stat.removed}"
    if completion.duration_ms >= 1000:
        outcome = ", ".join(filter(None, (outcome, f"{completion.duration_ms / 1000:.1f} s")))
    outcome = make_inert_line(outcome, 100)
    touched = make_inert_line(summary, max(20, width - len(name) - len(outcome) - 6))
    outcome = f"… {outcome}" if outcome and not touched.endswith("…") else outcome
    parts = [mark, Span(make_inert_line(name, 64), ("bold",)), Span(touched), Span(outcome, ("dim",))]
    head = tuple(each for part in parts if part.text for each in (Span(" "), part))[1:]
    return [head, *_glimpse(name, completion, width)]


def format_check_lines(command: str, completion: e.CheckCompleted, width: int) -> list[Line]:
    """A check looks like the call that it would be if the model had made it."""
    if completion.success and command == e.DIAGNOSTICS:
        return []  # that changed files have no errors is nothing to talk about
    return format_call_lines("check", command, as_call(completion), width)


def as_call(check: e.CheckCompleted) -> e.ExecutionComplete:
    outcome = "passed" if check.success else check.synthetic or check.result_summary or "failed"
    call = e.ExecutionComplete(check.check, check.success, error="" if check.success else check.result)
    return replace(call, result_summary=outcome, synthetic=check.synthetic, duration_ms=check.duration_ms)


def _glimpse(name: str, completion: e.ExecutionComplete, width: int) -> list[Line]:
    """The first lines of a call's diff, or the last of its output."""
    if completion.diff_stat is not None and not completion.effect:
        return _render_diff(completion.result, width)
    if completion.success and name != "run_command":
        return []
    output, _, changes = make_inert(completion.result or completion.error).rstrip("\n").partition(CHANGED)
    lines = output.split("\n")
    if name == "run_command" and lines[-1].startswith("[exit "):
        lines.pop()
    lines = [line for line in lines if line.strip() and line != "(no output)"]
    head = make_inert_line(completion.result_summary or completion.error)
    if not completion.success and lines == [make_inert(completion.error)] == [head]:
        lines = []  # the line of the call already says it
    if (hidden := len(lines) - OUTPUT_LINES) > 0:
        lines = [f"… {count(hidden, 'more line')}", *lines[-OUTPUT_LINES:]]
    touched = [line for line in changes.split("\n") if line and line[0] != "["]
    return [_format_bar(each, width) for each in (*lines, *touched[:OUTPUT_LINES])]


def _format_bar(text: str, width: int) -> Line:
    return make_line(f"  │ {make_inert_line(text.replace(chr(9), '    '), width - 4)}", "dim")


def _render_diff(result: str, width: int) -> list[Line]:
    lines = make_inert(result).split("\n")
    start = next((number for number, each in enumerate(lines) if each.startswith("@@")), len(lines))
    if start == len(lines):  # a change that recovery found made: there is no diff, but something to say
        return [_format_bar(each, width) for each in lines if each.strip()]
    changed_lines = [each for each in lines[start:] if not each.startswith("@@")]
    shown_lines: list[Line] = []
    for each in changed_lines[:DIFF_LINES]:
        text = make_inert_line(each.replace("\t", "    "), width - 4)
        shown_lines.append((Span("  │ ", ("dim",)), Span(text, (_COLOURS.get(each[:1], "dim"),))))
    hidden = len(changed_lines) - DIFF_LINES
    return [*shown_lines, make_line(f"  │ … {hidden} more lines", "dim")] if hidden > 0 else shown_lines
