"""One answer of a model as it comes, put right for the rung that it stands on (M-07): calls that were written into the
text are calls, thinking that was written into it is thinking (M-10). Nearly all deltas pass as they are."""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from treadle.adapters.models.text_thinking import TextThinking
from treadle.protocol.deltas import CallDelta, Delta, FinishDelta, NoticeDelta, TextDelta
from treadle.protocol.tools import ToolSpec

if TYPE_CHECKING:
    from treadle.adapters.models.text_calls import Scanner, TextCall

_MAYBE_MARKUP = re.compile(r"<(?=[a-z|\uff5c]|\Z)|\[(?=T|\Z)|\](?=<\]|<?\Z)|[`~]")


class PlainAnswer:
    """An answer of text and thinking only. `take` processes the deltas of one read from the network; undecided text is
    returned by a later call."""

    def __init__(self) -> None:
        self._thinking: TextThinking | None = TextThinking()

    def take(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        if self._thinking is not None:
            deltas = self._thinking.take(deltas)
            if self._thinking.over:
                self._thinking = None
        return deltas


class NativeAnswer(PlainAnswer):
    """An answer whose calls come by the protocol. Text passes until markup that could be a call; from there on it is
    held, and interpreted at the end."""

    def __init__(self, ref: str, tools: Sequence[ToolSpec]) -> None:
        super().__init__()
        self._ref = ref
        self._tools = tools
        self._scanner: Scanner | None = None
        self._called = False

    def take(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        if self._thinking is not None:
            deltas = super().take(deltas)
        if self._scanner is None and self._passes(deltas):
            return deltas
        from treadle.adapters.models.text_calls import Scanner

        scanner = self._scanner = self._scanner or Scanner(marked_only=True, freeze=True)
        out: list[Delta] = []
        for delta in deltas:
            if type(delta) is TextDelta:
                out += _text(scanner.feed(delta.text))
                continue
            self._called = self._called or type(delta) is CallDelta
            if type(delta) is FinishDelta:
                call_deltas = () if self._called else self._salvaged(scanner)
                out += call_deltas or _text(scanner.held_text)
                delta = _finished(delta, bool(call_deltas))
                scanner = self._scanner = Scanner(marked_only=True, freeze=True)
            out.append(delta)
        return out

    def _passes(self, deltas: Sequence[Delta]) -> bool:
        """True if the text has no markup. It nearly never has any, and this runs for each read."""
        for delta in deltas:
            if type(delta) is TextDelta:
                if _MAYBE_MARKUP.search(delta.text) is not None:
                    return False
            elif type(delta) is CallDelta:
                self._called = True
        return True

    def _salvaged(self, scanner: "Scanner") -> Sequence[Delta]:
        """Return the held text with its calls as calls. Empty if it has no call, or if one names an unknown tool."""
        from treadle.adapters.models.text_calls import Scanner

        tool_names = {tool.name for tool in self._tools}
        reading = Scanner(tool_names, marked_only=True)
        visible_text = reading.feed(scanner.held_text)
        tail = reading.end()
        if not tail.calls or any(call.name not in tool_names for call in tail.calls):
            return ()
        notice = f"{self._ref} wrote a tool call into its text; it was taken for the call that it is"
        return [NoticeDelta("text_call", notice), *_text(visible_text + tail.text), *_calls(tail.calls)]


class TextAnswer(PlainAnswer):
    """Calls come in the text. Without tools there is nothing to call, but a model that called some before may go on
    with it: then its markup goes."""

    def __init__(self, ref: str, tools: Sequence[ToolSpec]) -> None:
        from treadle.adapters.models.text_calls import Scanner

        super().__init__()
        self._ref = ref
        self._calls = bool(tools)
        self._scanner = Scanner({tool.name for tool in tools})

    def take(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        scanner = self._scanner
        out: list[Delta] = []
        for delta in super().take(deltas):
            if type(delta) is TextDelta:
                out += _text(scanner.feed(delta.text))
            elif type(delta) is FinishDelta:
                tail = scanner.end()
                out += _text(tail.text)
                if scanner.dangling:
                    out.append(NoticeDelta("text_call", f"the answer of {self._ref} ended in half a tool call"))
                if self._calls:
                    out += _calls(tail.calls)
                out.append(_finished(delta, self._calls and bool(tail.calls)))
            else:
                out.append(delta)
        return out


def _text(text: str) -> Sequence[Delta]:
    return (TextDelta(text),) if text else ()


def _calls(calls: "Iterable[TextCall]") -> Sequence[Delta]:
    from treadle.adapters.models.wire.json import encode_json

    return [
        CallDelta(None, index, call.name, encode_json(call.arguments).decode(), call.repaired)
        for index, call in enumerate(calls)
    ]


def _finished(finish: FinishDelta, has_calls: bool) -> FinishDelta:
    return replace(finish, reason="tool_calls") if has_calls and finish.reason == "stop" else finish
