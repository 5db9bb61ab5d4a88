"""The line of a finished tool call: its target, its outcome, and the first lines of its diff or output."""

from msgspec.structs import replace

from treadle.base.inert import inert, inert_line
from treadle.diff.changes import count
from treadle.frontends.presentation.styled import Colour, Line, Span, line, spaced
from treadle.protocol.events import DIAGNOSTICS, CheckCompleted, ExecutionComplete

MINUS = "\N{MINUS SIGN}"
DIFF_LINES = 14
OUTPUT_LINES = 6
CHANGED = "[changed in the project]"
"""Stands in a command's result between its output and what it did to files."""
QUIET = frozenset({"task_complete", "update_plan"})
"""Calls whose effect is shown as an event of its own."""
_COLOURS: dict[str, Colour] = {"+": "green", "-": "red"}


def call_lines(name: str, summary: str, completion: ExecutionComplete, width: int) -> list[Line]:
    """The call and what it left, in lines of at most about `width` columns; nothing for a quiet call."""
    if name in QUIET and completion.success:
        return []
    mark = Span("●", ("green",)) if completion.success else Span("✗", ("red",))
    outcome = what_came(completion)
    room = max(20, width - len(name) - len(outcome) - 6)
    touched = inert_line(summary, room)
    outcome = f"… {outcome}" if outcome and not touched.endswith("…") else outcome
    head = spaced(mark, Span(inert_line(name, 64), ("bold",)), Span(touched), Span(outcome, ("dim",)))
    return [head, *glimpse(name, completion, width)]


def check_lines(command: str, completion: CheckCompleted, width: int) -> list[Line]:
    """A check looks like the call that it would be if the model had made it."""
    if completion.success and command == DIAGNOSTICS:
        return []  # that changed files have no errors is nothing to talk about
    return call_lines("check", command, as_call(completion), width)


def as_call(check: CheckCompleted) -> ExecutionComplete:
    outcome = "passed" if check.success else check.synthetic or check.result_summary or "failed"
    call = ExecutionComplete(check.check, check.success, error="" if check.success else check.result)
    return replace(call, result_summary=outcome, synthetic=check.synthetic, duration_ms=check.duration_ms)


def what_came(completion: ExecutionComplete) -> str:
    """Return the outcome of a call in a few words."""
    outcome = completion.result_summary or (completion.error if not completion.success else "")
    if completion.diff_stat is not None and not completion.effect:
        outcome = f"+{completion.diff_stat.added} {MINUS}{completion.diff_stat.removed}"
    if completion.duration_ms >= 1000:
        outcome = ", ".join(filter(None, (outcome, f"{completion.duration_ms / 1000:.1f} s")))
    return inert_line(outcome, 100)


def glimpse(name: str, completion: ExecutionComplete, width: int) -> list[Line]:
    """The first lines of its diff, or the last of its output."""
    if completion.diff_stat is not None and not completion.effect:
        return _diff(completion.result, width)
    if completion.success and name != "run_command":
        return []
    text = inert(completion.result if completion.result else completion.error).rstrip("\n")
    output, _, changes = text.partition(CHANGED)
    lines = output.split("\n")
    if name == "run_command" and lines[-1].startswith("[exit "):
        lines.pop()
    lines = [line for line in lines if line.strip() and line != "(no output)"]
    head = inert_line(completion.result_summary or completion.error)
    if not completion.success and lines == [inert(completion.error)] == [head]:
        lines = []  # the line of the call already says it
    if (hidden := len(lines) - OUTPUT_LINES) > 0:
        lines = [f"… {count(hidden, 'more line')}", *lines[-OUTPUT_LINES:]]
    touched = [line for line in changes.split("\n") if line and line[0] != "["]
    return [_bar(each, width) for each in (*lines, *touched[:OUTPUT_LINES])]


def _bar(text: str, width: int) -> Line:
    return line(f"  │ {inert_line(text.replace(chr(9), '    '), width - 4)}", "dim")


def _diff(result: str, width: int) -> list[Line]:
    lines = inert(result).split("\n")
    start = next((number for number, each in enumerate(lines) if each.startswith("@@")), len(lines))
    if start == len(lines):  # a change that recovery found made: there is no diff, but something to say
        return [_bar(each, width) for each in lines if each.strip()]
    changed_lines = [each for each in lines[start:] if not each.startswith("@@")]
    shown_lines: list[Line] = []
    for each in changed_lines[:DIFF_LINES]:
        text = inert_line(each.replace("\t", "    "), width - 4)
        shown_lines.append((Span("  │ ", ("dim",)), Span(text, (_COLOURS.get(each[:1], "dim"),))))
    if len(changed_lines) > DIFF_LINES:
        shown_lines.append(line(f"  │ … {len(changed_lines) - DIFF_LINES} more lines", "dim"))
    return shown_lines
