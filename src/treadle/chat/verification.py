"""Verifies completion (L-16): before a run may end, the model is told once if the task asked for changes and nothing
was written, the changed files are diagnosed, and the configured commands are run. Pure: decides the next step and its
wording; the engine carries it out.

Failures are sent back to the model at most three times. After that a failing command ends the run with an error: the
completion is refused, and the error says so. Diagnostics never refuse it in the end: the errors may be older."""

from collections.abc import Iterator

from treadle.base.types import CallKey
from treadle.chat.intent import find_files_to_write, is_change_request, is_only_question, split_words
from treadle.chat.state import MAX_CHANGED, ChatState, Checked, OpenCheck, RunState
from treadle.protocol.content import AssistantEntry, UserEntry
from treadle.protocol.events import DIAGNOSTICS, Event, SessionError, UserMessage

MAX_ROUNDS = 3
MAX_DIAGNOSED = 20
NOTHING_WRITTEN = (
    "The task asks for a change, but no file of the project has been changed in this run. If something is left to do, "
    "do it now with the tools. If nothing needs to be changed, say why."
)
FILE_NOT_WRITTEN = (
    "The task asks for something to be written to {file}, but this file has not been changed in this run. Do it now "
    "with the tools. If it needs no change, say why."
)
_HEAD = (
    "Before your work is accepted it is checked, and these checks failed. Mend the cause, not the check; "
    "when you are done, say so again.\n\n"
)
_DIAGNOSED = "If an error was there before your change and does not belong to the task, say so and leave it."
_TAIL_LINES = 60
_TAIL_CHARS = 6_000
_LANGUAGES = split_words("py pyi js mjs cjs jsx ts tsx mts cts c cc cpp cxx hpp hh go rs sh bash json toml yaml yml")


def verify(state: ChatState, run: RunState) -> OpenCheck | Event | None:
    """Return the step that must come before the run may end: a check, a message, or None."""
    if state.options.mode == "read-only" or run.stop:
        return None
    if not run.reminded and is_change_missing(state, run) and not _is_asking_back(state):
        file = _find_unwritten_file(state, run) if run.wrote else ""
        return UserMessage(FILE_NOT_WRITTEN.format(file=file) if file else NOTHING_WRITTEN, source="check")
    checked_commands = {result.command for result in run.checked}
    for command in _plan_checks(state, run):
        if command not in checked_commands:
            paths = _select_diagnosable(run) if command == DIAGNOSTICS else ()
            return OpenCheck(CallKey(f"check.{state.checks + 1}"), command, run.check_rounds + 1, paths)
    return _judge_checks(run)


def _judge_checks(run: RunState) -> Event | None:
    reported = (DIAGNOSTICS, run.diagnosed)  # the model has been told exactly this and left it so
    failed = [result for result in run.checked if result.failed and (result.command, result.text) != reported]
    if failed and run.check_rounds < MAX_ROUNDS:
        return UserMessage(format_report(failed), source="check")
    refusing = [result.command for result in failed if result.command != DIAGNOSTICS]
    if not refusing:
        return None
    command_list = ", ".join(f"`{command}`" for command in refusing)
    failing = f"{command_list} still {'fails' if len(refusing) == 1 else 'fail'}"
    return SessionError(
        "checks_failed",
        f"The completion was refused: {failing} after the model was told {MAX_ROUNDS} times. What it did is in the "
        "project; look at it, or go on with another message.",
    )


def format_report(failed: list[Checked]) -> str:
    return _HEAD + "\n\n".join(
        f"Errors in files that were changed:\n{result.text}\n{_DIAGNOSED}"
        if result.command == DIAGNOSTICS
        else f"$ {result.command}\n{result.text}"
        for result in failed
    )


def take_tail(text: str) -> str:
    excerpt = "\n".join(text.strip().split("\n")[-_TAIL_LINES:])[-_TAIL_CHARS:]
    return excerpt if len(excerpt) == len(text.strip()) else f"[the beginning is left out]\n{excerpt}"


def _plan_checks(state: ChatState, run: RunState) -> Iterator[str]:
    """The checks of this end, in order: the quick look first. A question that led to no change is not held up."""
    if state.options.diagnose and _select_diagnosable(run):
        yield DIAGNOSTICS
    if not state.options.checks:
        return
    if run.wrote or run.completed or not all(is_only_question(text) for text in _find_person_messages(state, run)):
        yield from dict.fromkeys(state.options.checks)


def _select_diagnosable(run: RunState) -> tuple[str, ...]:
    paths = [path for path in run.changed_files if path.rpartition(".")[2].lower() in _LANGUAGES]
    return tuple(paths[-MAX_DIAGNOSED:])


def _is_asking_back(state: ChatState) -> bool:
    last = state.history.last
    return state.options.interactive and isinstance(last, AssistantEntry) and last.text.rstrip().endswith("?")


def is_change_missing(state: ChatState, run: RunState) -> bool:
    """True if the person asked for a change that the mode allows and none was made, or only to other files."""
    if not state.options.verify or state.options.mode == "read-only":
        return False
    if run.wrote:
        return bool(_find_unwritten_file(state, run))
    return any(is_change_request(text) for text in _find_person_messages(state, run))


def _find_unwritten_file(state: ChatState, run: RunState) -> str:
    """The requested file if only other files were changed; empty if there is none, or if not all are known."""
    if not run.changed_files or len(run.changed_files) >= MAX_CHANGED:
        return ""
    for file in (file for text in _find_person_messages(state, run) for file in find_files_to_write(text)):
        if not any(f"/{path}".endswith(f"/{file.removeprefix('./')}") for path in run.changed_files):
            return file
    return ""


def _find_person_messages(state: ChatState, run: RunState) -> list[str]:
    messages: list[str] = []
    for entry in reversed(state.history):
        if isinstance(entry, UserEntry) and entry.source == "person":
            messages.append(entry.text)
            if entry.seq <= run.first:
                break
    return messages
