"""The line of a finished tool call: what it touched, what came of it, and the first lines of its diff or output."""

from treadle.inert import inert, inert_line
from treadle.lines.changes import count
from treadle.presentation.styled import Colour, Line, Span, line, spaced
from treadle.protocol.events import DIAGNOSTICS, CheckCompleted, ExecutionComplete

MINUS = "\N{MINUS SIGN}"
DIFF_LINES = 14
OUTPUT_LINES = 6
CHANGED = "[changed in the project]"
"""Stands in a command's result between its output and what it did to files."""
QUIET = frozenset({"task_complete", "update_plan"})
"""Calls whose effect is shown as an event of its own."""


def call_lines(name: str, summary: str, done: ExecutionComplete, width: int) -> list[Line]:
    """The call and what it left, in lines of at most about `width` columns; nothing for a quiet call."""
    if name in QUIET and done.success:
        return []
    mark = Span("●", ("green",)) if done.success else Span("✗", ("red",))
    came = what_came(done)
    room = max(20, width - len(name) - len(came) - 6)
    touched = inert_line(summary, room)
    came = f"… {came}" if came and not touched.endswith("…") else came
    head = spaced(mark, Span(inert_line(name, 64), ("bold",)), Span(touched), Span(came, ("dim",)))
    return [head, *glimpse(name, done, width)]


def check_lines(command: str, done: CheckCompleted, width: int) -> list[Line]:
    """A check looks like the call that it would be if the model had made it."""
    if done.success and command == DIAGNOSTICS:
        return []  # that changed files have no errors is nothing to talk about
    return call_lines("check", command, as_call(done), width)


def as_call(done: CheckCompleted) -> ExecutionComplete:
    said = "" if done.success else done.result
    came = "passed" if done.success else done.synthetic or done.result_summary or "failed"
    return ExecutionComplete(
        done.check,
        done.success,
        error=said,
        result_summary=came,
        synthetic=done.synthetic,
        duration_ms=done.duration_ms,
    )


def what_came(done: ExecutionComplete) -> str:
    """What came of a call, in a few words."""
    came = done.result_summary or (done.error if not done.success else "")
    if done.diff_stat is not None and not done.effect:
        came = f"+{done.diff_stat.added} {MINUS}{done.diff_stat.removed}"
    if done.duration_ms >= 1000:
        came = f"{came}, {done.duration_ms / 1000:.1f} s" if came else f"{done.duration_ms / 1000:.1f} s"
    return inert_line(came, 100)


def glimpse(name: str, done: ExecutionComplete, width: int) -> list[Line]:
    """The first lines of its diff, or the last of its output."""
    if done.diff_stat is not None and not done.effect:
        return _diff(done.result, width)
    if done.success and name != "run_command":
        return []
    text = inert(done.result if done.result else done.error).rstrip("\n")
    output, _, changes = text.partition(CHANGED)
    lines = output.split("\n")
    if name == "run_command" and lines[-1].startswith("[exit "):
        lines.pop()
    lines = [line for line in lines if line.strip() and line != "(no output)"]
    if not done.success and lines == [inert(done.error)] == [_first(done)]:
        lines = []
    touched = [line for line in changes.split("\n") if line and line[0] != "["]
    return [_bar(each, width) for each in (*_last(lines), *touched[:OUTPUT_LINES])]


def _last(lines: list[str]) -> list[str]:
    shown = lines[-OUTPUT_LINES:]
    return [f"… {count(len(lines) - len(shown), 'more line')}", *shown] if len(lines) > len(shown) else shown


def _first(done: ExecutionComplete) -> str:
    """The line of the call already says it."""
    return inert_line(done.result_summary or done.error)


def _bar(text: str, width: int) -> Line:
    return line(f"  │ {inert_line(text.replace(chr(9), '    '), width - 4)}", "dim")


def _diff(result: str, width: int) -> list[Line]:
    lines = inert(result).split("\n")
    start = next((number for number, each in enumerate(lines) if each.startswith("@@")), len(lines))
    if start == len(lines):  # a change that recovery found made: there is no diff, but something to say
        return [_bar(each, width) for each in lines if each.strip()]
    changed = [each for each in lines[start:] if not each.startswith("@@")]
    shown = [_diff_line(each, width) for each in changed[:DIFF_LINES]]
    if len(changed) > DIFF_LINES:
        shown.append(line(f"  │ … {len(changed) - DIFF_LINES} more lines", "dim"))
    return shown


_LOOKS: dict[str, Colour] = {"+": "green", "-": "red"}


def _diff_line(text: str, width: int) -> Line:
    shown = inert_line(text.replace("\t", "    "), width - 4)
    return Span("  │ ", ("dim",)), Span(shown, (_LOOKS.get(text[:1], "dim"),))
