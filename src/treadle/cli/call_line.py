"""The line of a finished tool call: what it touched, what came of it, and the first lines of its diff or output."""

from treadle.chat.verification import DIAGNOSTICS
from treadle.cli.terminal import Terminal
from treadle.inert import inert, inert_line
from treadle.lines.changes import count
from treadle.protocol.events import CheckCompleted, ExecutionComplete

MINUS = "\N{MINUS SIGN}"
DIFF_LINES = 14
OUTPUT_LINES = 6
CHANGED = "[changed in the project]"
"""Stands in a command's result between its output and what it did to files."""
QUIET = frozenset({"task_complete", "update_plan"})
"""Calls whose effect is shown as an event of its own."""


def show_call(terminal: Terminal, name: str, summary: str, done: ExecutionComplete) -> None:
    if name in QUIET and done.success:
        return
    mark = terminal.paint("●", "green") if done.success else terminal.paint("✗", "red")
    came = _what_came(done)
    room = max(20, terminal.width - len(name) - len(came) - 6)
    touched = inert_line(summary, room)
    came = f"… {came}" if came and not touched.endswith("…") else came
    parts = [mark, terminal.paint(inert_line(name, 64), "bold"), touched, terminal.paint(came, "dim")]
    terminal.line(" ".join(part for part in parts if part))
    for line in _glimpse(terminal, name, done):
        terminal.line(line)


def show_check(terminal: Terminal, command: str, done: CheckCompleted) -> None:
    """A check looks like the call that it would be if the model had made it."""
    if done.success and command == DIAGNOSTICS:
        return  # that changed files have no errors is nothing to talk about
    said = "" if done.success else done.result
    came = "passed" if done.success else done.synthetic or done.result_summary or "failed"
    shown = ExecutionComplete(
        done.check,
        done.success,
        error=said,
        result_summary=came,
        synthetic=done.synthetic,
        duration_ms=done.duration_ms,
    )
    show_call(terminal, "check", command, shown)


def _what_came(done: ExecutionComplete) -> str:
    came = done.result_summary or (done.error if not done.success else "")
    if done.diff_stat is not None and not done.effect:
        came = f"+{done.diff_stat.added} {MINUS}{done.diff_stat.removed}"
    if done.duration_ms >= 1000:
        came = f"{came}, {done.duration_ms / 1000:.1f} s" if came else f"{done.duration_ms / 1000:.1f} s"
    return inert_line(came, 100)


def _glimpse(terminal: Terminal, name: str, done: ExecutionComplete) -> list[str]:
    if done.diff_stat is not None and not done.effect:
        return _diff(terminal, done.result)
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
    return [_bar(terminal, line) for line in (*_last(lines), *touched[:OUTPUT_LINES])]


def _last(lines: list[str]) -> list[str]:
    shown = lines[-OUTPUT_LINES:]
    return [f"… {count(len(lines) - len(shown), 'more line')}", *shown] if len(lines) > len(shown) else shown


def _first(done: ExecutionComplete) -> str:
    """The line of the call already says it."""
    return inert_line(done.result_summary or done.error)


def _bar(terminal: Terminal, line: str) -> str:
    return terminal.paint(f"  │ {inert_line(line.replace(chr(9), '    '), terminal.width - 4)}", "dim")


def _diff(terminal: Terminal, result: str) -> list[str]:
    lines = inert(result).split("\n")
    start = next((number for number, line in enumerate(lines) if line.startswith("@@")), len(lines))
    if start == len(lines):  # a change that recovery found made: there is no diff, but something to say
        return [_bar(terminal, line) for line in lines if line.strip()]
    changed = [line for line in lines[start:] if not line.startswith("@@")]
    shown = [_diff_line(terminal, line) for line in changed[:DIFF_LINES]]
    if len(changed) > DIFF_LINES:
        shown.append(terminal.paint(f"  │ … {len(changed) - DIFF_LINES} more lines", "dim"))
    return shown


def _diff_line(terminal: Terminal, line: str) -> str:
    text = inert_line(line.replace("\t", "    "), terminal.width - 4)
    bar = terminal.paint("  │ ", "dim")
    match line[:1]:
        case "+":
            return bar + terminal.paint(text, "green")
        case "-":
            return bar + terminal.paint(text, "red")
        case _:
            return bar + terminal.paint(text, "dim")
