"""When a run is done. The model decides by making no more calls; autopilot asks it to go on (L-14), and a marker in
the text can stand for `task_complete` where a model has no tools (L-15)."""

from treadle.chat.state import ChatState, Run

CONTINUE_TEXT = (
    "You stopped without calling task_complete. If the task is done, call task_complete with a short summary. "
    "Do not complete with open questions, unresolved errors or remaining steps: go on with the work instead, "
    "and decide open points yourself in the way that fits the task best."
)
MARKER = "[TASK_COMPLETE]"
MAX_STALLED = 2


def continuation(state: ChatState, run: Run) -> str:
    """The text that nudges the model to go on after an answer without calls; empty when the run may end."""
    if state.options.mode != "autopilot" or run.completed or run.stop:
        return ""
    if run.continuations >= state.options.max_continuations or run.stalled >= MAX_STALLED:
        return ""
    return state.options.continue_text or CONTINUE_TEXT


def wants_summary(state: ChatState, run: Run) -> bool:
    """Whether the run ends without a word that explains it (L-17)."""
    worked = run.tool_calls > 0
    return worked and not run.spoke and not run.summarized and not run.stop and state.options.summarize


class MarkerFilter:
    """Takes the marker, and at the end every trailing prefix of it, out of a stream of text (L-15)."""

    def __init__(self) -> None:
        self._held = ""
        self.found = False

    def feed(self, text: str) -> str:
        """What may be shown: everything up to where a marker might begin."""
        text = self._held + text
        while MARKER in text:  # again, because taking one out may join the halves of another
            self.found = True
            text = text.replace(MARKER, "")
        keep = trailing_prefix(text)
        self._held = text[len(text) - keep :] if keep else ""
        return text[: len(text) - keep] if keep else text

    def end(self) -> str:
        """At the end of the text a begun marker is dropped, not shown."""
        self._held = ""
        return ""


def trailing_prefix(text: str) -> int:
    """How many characters at the end of the text begin the marker, once or several times in a row."""
    total = 0
    while (length := _one_prefix(text[: len(text) - total])) > 0:
        total += length
    return total


def _one_prefix(text: str) -> int:
    for length in range(min(len(MARKER) - 1, len(text)), 0, -1):
        if text.endswith(MARKER[:length]):
            return length
    return 0


def strip_marker(text: str) -> tuple[str, bool]:
    """A whole text without its markers and without a trailing prefix of one; and whether there was one."""
    gate = MarkerFilter()
    shown = gate.feed(text) + gate.end()
    return (shown.rstrip() if gate.found else shown), gate.found
