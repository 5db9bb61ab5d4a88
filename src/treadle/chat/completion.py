"""When a run is done. The model decides by making no more calls; autopilot asks it to go on (L-14), and a marker in
the text can stand for `task_complete` where a model has no tools (L-15)."""

from collections.abc import Sequence

from msgspec.structs import replace

from treadle.chat.state import ChatState, RunState
from treadle.protocol.content import Thinking
from treadle.protocol.options import ChatOptions

CONTINUE_TEXT = (
    "You stopped without calling task_complete. If the task is done, call task_complete with a short summary. "
    "Do not complete with open questions, unresolved errors or remaining steps: go on with the work instead, "
    "and decide open points yourself in the way that fits the task best."
)
MARKER = "[TASK_COMPLETE]"
MARKER_TEXT = f"When the whole task is done, write {MARKER} at the end of your last answer.\n"
MAX_STALLED = 2


def choose_continuation(state: ChatState, run: RunState) -> str:
    """The text that nudges the model to go on after an answer without calls; empty when the run may end."""
    options = state.options
    if options.mode != "autopilot" or run.completed or run.stop:
        return ""
    is_over = run.continuations >= options.max_continuations or run.stalled >= MAX_STALLED
    return "" if is_over else options.continue_text or CONTINUE_TEXT


def needs_summary(state: ChatState, run: RunState) -> bool:
    """True if the run would end without a text that explains it (L-17)."""
    return run.tool_calls > 0 and not (run.spoke or run.summarized or run.stop) and state.options.summarize


def is_marker_used(options: ChatOptions, native_tools: bool) -> bool:
    """True if the model signals by the marker that it is done: by the options, else if it calls tools in its text."""
    on_text = options.rung == "text" or (not options.rung and not native_tools)
    return options.completion == "marker" or (not options.completion and on_text)


class MarkerFilter:
    """Takes the marker, in any letter case, and at the end every trailing prefix of it out of a stream of text (L-15).

    Every prefix begins with the only `[` of the marker, so the text is examined from one `[` to the next. Text that may
    still become a marker is held back. Every character is examined once, for any text."""

    def __init__(self) -> None:
        self._open: str | None = None  # the prefix that the text ends with, if it does
        self._before: list[str] = []  # prefixes in a row before it; one becomes a marker if its midst is removed
        self.found = False

    def feed(self, text: str) -> str:
        if self._open is None and "[" not in text:
            return text
        out: list[str] = []
        first, *later_pieces = text.split("[")
        self._extend(first, out)
        for piece in later_pieces:
            if self._open is not None:
                self._before.append(self._open)
            self._open = ""
            self._extend(f"[{piece}", out)
        return "".join(out)

    def end(self) -> str:
        """At the end of the text a begun marker is dropped, not shown."""
        self._open = None
        self._before.clear()
        return ""

    def _extend(self, text: str, out: list[str]) -> None:
        """Go on with text that holds no `[` but at its beginning."""
        at = 0
        while self._open is not None and at < len(text):
            size = len(self._open)
            piece = text[at : at + len(MARKER) - size]
            if piece.upper() != MARKER[size : size + len(piece)]:
                out += (*self._before, self._open)
                self.end()
            elif size + len(piece) < len(MARKER):
                self._open += piece
                return
            else:
                self.found = True
                at += len(piece)
                self._open = self._before.pop() if self._before else None
        out.append(text[at:])


def strip_marker(text: str) -> tuple[str, bool]:
    """A whole text without its markers and without a trailing prefix of one; and whether there was one."""
    gate = MarkerFilter()
    stripped = gate.feed(text) + gate.end()
    return (stripped.rstrip() if gate.found else stripped), gate.found


def strip_thinking(thinking: Sequence[Thinking]) -> tuple[tuple[Thinking, ...], bool]:
    """Thinking without markers, and True if there was one. A signed block goes back unchanged (M-10)."""
    blocks, found_marker = [], False
    for block in thinking:
        text, has_marker = ("", False) if block.opaque else strip_marker(block.text)
        found_marker = found_marker or has_marker
        if text or block.opaque:
            blocks.append(block if block.opaque else replace(block, text=text))
    return tuple(blocks), found_marker
