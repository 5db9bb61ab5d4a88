"""How answers end: the words of real servers for the end of an answer, and whether an answer is complete. An answer
that was cut off, filtered or empty must not pass for a finished one, so a notice says what is missing from it. The
notice comes from here and not from the engine: a replay takes it from the log, and logs from before stay as they are.
"""

from collections.abc import Sequence

from treadle.protocol.deltas import CallDelta, Delta, FinishDelta, NoticeDelta, TextDelta, ThinkingDelta

BROKEN = frozenset({"error", "abort", "aborted", "cancelled", "network_error", "insufficient_system_resource"})
"""The server gave up: vLLM, OpenRouter, Z.ai and DeepSeek say so in place of a reason. The call is made again."""

_SYNONYMS = {
    "end_turn": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "complete": "stop",
    "completed": "stop",
    "tool_call": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "safety": "content_filter",
    "sensitive": "content_filter",
    "error_toxic": "content_filter",
}

_MISSING = {
    "length": "reached its output limit before its answer was complete",
    "content_filter": "was stopped by its provider's content filter; its answer is not complete",
    "refusal": "declined to answer",
    "repetition": "was stopped by its server because it repeated itself; its answer is not complete",
}


def normalize_reason(reason: str) -> str:
    """The neutral word for a server's reason, or the server's own where there is none."""
    word = reason.lower()
    return word if word in BROKEN else _SYNONYMS.get(word, reason)


class EndingCheck:
    """Watches one answer and adds to its end what is missing from it. With `marks_calls` it marks the call that was
    being written when the room ran out: its arguments may look complete and are not."""

    def __init__(self, ref: str, *, marks_calls: bool) -> None:
        self._ref = ref
        self._marks_calls = marks_calls
        self._has_text = False
        self._has_calls = False
        self._ends_in_call = False
        self._has_arguments = False
        """True if any arguments of the last call have arrived."""
        self._is_told = False
        """True if the adapter itself reported the missing part."""

    def watch(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        ending: FinishDelta | None = None
        for delta in deltas:
            if type(delta) is TextDelta:
                self._has_text = self._has_text or not delta.text.isspace()
                self._ends_in_call = False
            elif type(delta) is CallDelta:
                self._note_call(delta)
            elif type(delta) is ThinkingDelta:
                self._ends_in_call = False
            elif type(delta) is FinishDelta:
                ending = delta
            elif type(delta) is NoticeDelta and delta.kind in ("incomplete", "paused"):
                self._is_told = True
        if ending is None:
            return deltas
        missing = self._find_missing(ending.reason)
        at = len(deltas) - 1 - deltas[::-1].index(ending)
        return [*deltas[:at], *missing, *deltas[at:]] if missing else deltas

    def _note_call(self, delta: CallDelta) -> None:
        if delta.name or delta.id:
            self._has_arguments = False
        self._has_arguments = self._has_arguments or bool(delta.arguments.strip())
        self._has_calls = self._ends_in_call = True

    def _find_missing(self, reason: str) -> list[Delta]:
        missing: list[Delta] = []
        if reason == "length" and self._ends_in_call and self._marks_calls:
            # Without a fragment the arguments would be taken for the empty object, and a call without any would run.
            missing.append(CallDelta(arguments="" if self._has_arguments else "{", repaired=True))
        if self._is_told:
            return missing
        if reason in _MISSING:
            missing.append(NoticeDelta("incomplete", f"{self._ref} {_MISSING[reason]}"))
        elif not self._has_text and not self._has_calls:
            missing.append(NoticeDelta("empty_answer", f"{self._ref} ended its turn without an answer"))
        return missing
