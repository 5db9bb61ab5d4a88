"""Assembles a stream of deltas to text, thinking and calls (M-08). Pure; knows no provider and no time.

The hard part is to tell where one call ends and the next begins, because servers label fragments badly: some call every
index 0, some send none, some repeat id and name with every fragment, some send ids that are empty. The rules, in this
order: a known id wins; a new id on a used index is a new call; a bare fragment continues the current call; a name after
a complete JSON object is a new call. Calls that the rules cannot tell apart are never merged silently into something
that would run: at worst the arguments are no JSON, and the model is told so."""

import re
from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from treadle.base.types import make_call_key
from treadle.errors import ModelError
from treadle.protocol import deltas as d
from treadle.protocol.content import Thinking, ToolRequest, Usage
from treadle.protocol.options import MAX_COUNT, MAX_USD

_MARK = re.compile(r'["\\{}\[\]]')
CALLS = 256  # calls of one turn
ARGUMENTS_CHARS = 4 * 1024 * 1024  # arguments of one call
NAME_CHARS = 1_000  # a name of a tool, or an id of a call
_LABEL = "a call whose name or id has more than {} characters"
ANSWER_CHARS = 16 * 1024 * 1024  # text, thinking and arguments together
BLOCKS = 1_000  # blocks of thinking
NOTICES = 20  # Most notices that are recorded beside an answer. Further notices are dropped.
REASON_CHARS = 100  # of the reason for which it ended


class ModelAnswer(msgspec.Struct, frozen=True):
    text: str
    thinking: tuple[Thinking, ...] = ()
    requests: tuple[ToolRequest, ...] = ()
    usage: Usage | None = None  # None when the provider reported nothing
    finish_reason: str = "stop"


class _PartialCall:
    """A call in the making. The scanner knows whether its arguments are a complete JSON object; it runs only when
    a name arrives for a call that has one already, and reads every character once."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.id = self.name = ""
        self.index: int | None = None
        self.named_again = self.begun = self.repaired = False
        self.pieces: list[str] = []
        self._size = self._scanned = self._depth = 0
        self._in_string = self._escaped = self._complete = False

    def add(self, arguments: str) -> None:
        self.begun = self.begun or not arguments.isspace()
        self.pieces.append(arguments)
        self._size += len(arguments)
        _check_size(self._size, ARGUMENTS_CHARS, "a call with arguments of more than {} characters")

    def complete(self) -> bool:
        for piece in self.pieces[self._scanned :]:
            self._scan(piece)
        self._scanned = len(self.pieces)
        return self._complete

    def _scan(self, piece: str) -> None:
        start = 0
        if self._escaped and piece:
            self._escaped, start = False, 1
        while (mark := _MARK.search(piece, start)) is not None:
            start = mark.end()
            char = mark.group()
            if char == "\\":
                if self._in_string:
                    self._escaped = start == len(piece)
                    start += 1
            elif char == '"':
                self._in_string = not self._in_string
            elif not self._in_string:
                self._depth += 1 if char in "{[" else -1
                self._complete = self._complete or self._depth == 0

    def build_request(self, turn: int) -> ToolRequest:
        arguments = "".join(self.pieces)
        # Servers send nothing for a call without arguments; the only JSON that can mean is the empty object.
        arguments_json = arguments if arguments.strip() else "{}"
        return ToolRequest(make_call_key(turn, self.position), self.name, arguments_json, self.id, self.repaired)


class Assembler:
    """Takes the deltas of one model call and makes the answer of them. `on_call(position, delta)` is told where each
    fragment of a call went, for those who show calls live."""

    __slots__ = (
        "_blocks", "_by_id", "_by_index", "_calls", "_current", "_on_call", "_size", "_text", "_thoughts", "_turn",
        "ending", "finish_reason", "notices", "usage",
    )  # fmt: skip

    def __init__(self, turn: int, on_call: Callable[[int, d.CallDelta], None] | None = None) -> None:
        self._turn = turn
        self._on_call = on_call
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._blocks: list[Thinking] = []
        self._size = 0  # characters of all that came
        self._calls: list[_PartialCall] = []
        self._by_id: dict[str, _PartialCall] = {}
        self._by_index: dict[int, _PartialCall] = {}
        self._current: _PartialCall | None = None
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.ending: d.FinishDelta | None = None  # None until the stream has ended well
        self.notices: list[d.NoticeDelta] = []

    def feed(self, deltas: Iterable[d.Delta]) -> None:
        """Raises ModelError when the answer breaks a limit."""
        for delta in deltas:
            if type(delta) is d.TextDelta:  # first, because nearly all are
                self._text.append(delta.text)
                self._size += len(delta.text)
            else:
                self._take(delta)
        _check_size(self._size, ANSWER_CHARS, "more than {} characters")

    def _take(self, delta: d.Delta) -> None:
        match delta:
            case d.CallDelta():
                self._size += len(delta.arguments)
                call = self._place(delta)
                if self._on_call is not None:
                    self._on_call(call.position, delta)
            case d.TextDelta(text=text):
                self._text.append(text)
            case d.ThinkingDelta(text=text):
                self._size += len(text)
                self._thoughts.append(text)
            case d.ThinkingBlock(block=block):
                self._size += len(block.text) + len(block.opaque)
                self._thoughts.clear()
                self._blocks.append(block)
                _check_size(len(self._blocks), BLOCKS, "more than {} blocks of thinking")
            case d.UsageDelta(usage=usage):
                self.usage = _clamp_usage(usage)
            case d.FinishDelta(reason=reason):
                self.finish_reason = reason[:REASON_CHARS]
                self.ending = delta
            case d.NoticeDelta():
                if delta not in self.notices and len(self.notices) < NOTICES:
                    self.notices.append(delta)

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def thinking_text(self) -> str:
        return "".join([*(block.text for block in self._blocks), *self._thoughts])

    def finish(self, model_ref: str) -> ModelAnswer:
        """The whole answer. A stream that did not end well is none: no call of it may run."""
        if self.finish_reason is None:
            raise ModelError("cut_stream", f"the answer of {model_ref} stopped before its end; it can be asked again")
        requests = tuple(call.build_request(self._turn) for call in self._calls)
        return ModelAnswer(self.text, self._build_thinking(model_ref), requests, self.usage, self.finish_reason)

    def build_partial_answer(self, model_ref: str) -> ModelAnswer:
        """The part of an interrupted answer that is kept: its text and thinking, but none of its calls (L-07)."""
        return ModelAnswer(self.text, self._build_thinking(model_ref), (), self.usage, "interrupted")

    def _build_thinking(self, model_ref: str) -> tuple[Thinking, ...]:
        blocks = [block if block.model else Thinking(block.text, block.opaque, model_ref) for block in self._blocks]
        if thinking_text := "".join(self._thoughts):
            blocks.append(Thinking(thinking_text, model=model_ref))
        return tuple(blocks)

    def _place(self, delta: d.CallDelta) -> _PartialCall:
        """Put a fragment where it belongs and say where that was."""
        call = self._find(delta)
        if call is None or self._is_new_call(call, delta):
            call = self._begin(call, delta)
        _check_size(len(delta.id or ""), NAME_CHARS, _LABEL)
        if delta.id and not call.id:
            call.id = delta.id
            self._by_id[delta.id] = call  # of two calls under one id, the later one owns it
        if delta.index is not None:
            call.index = delta.index
            self._by_index[delta.index] = call
        if delta.name and delta.name != call.name and not (call.name and call.begun):
            call.name += delta.name  # a name may come in pieces, but only before the arguments
            _check_size(len(call.name), NAME_CHARS, _LABEL)
        if delta.arguments:
            call.add(delta.arguments)
        call.repaired = call.repaired or delta.repaired
        self._current = call
        return call

    def _find(self, delta: d.CallDelta) -> _PartialCall | None:
        """The call that the labels of a fragment speak of."""
        if delta.id:
            if (call := self._by_id.get(delta.id)) is not None:
                return call
            labelled = self._current if delta.index is None else self._by_index.get(delta.index)
            # An id that comes late belongs to the call that waits for one; any other new id is a new call.
            late = labelled is not None and not labelled.id and not (delta.name and labelled.name)
            return labelled if late else None
        if delta.index is None:
            return self._current
        labelled = self._by_index.get(delta.index)
        if labelled is None and not delta.name and self._current is not None and self._current.index is None:
            return self._current  # the server began to send indices in mid-call
        return labelled

    def _is_new_call(self, call: _PartialCall, delta: d.CallDelta) -> bool:
        """True if a fragment for this call can only be the beginning of another call with the same labels."""
        if not delta.name:
            return call.named_again and bool(delta.arguments.strip())
        if not call.name or not call.begun:
            return False
        if delta.name != call.name:
            return not delta.id or call.complete()  # a known id wins as long as the call can still go on
        if not call.complete():
            return False  # the server repeats the name with every fragment
        # The same name after a complete object: more arguments make it an equal call; until they come, it may be
        # an echo of the name with nothing new.
        call.named_again = not delta.arguments.strip()
        return not call.named_again

    def _begin(self, previous: _PartialCall | None, delta: d.CallDelta) -> _PartialCall:
        call = _PartialCall(len(self._calls))
        self._calls.append(call)
        _check_size(len(self._calls), CALLS, "more than {} calls")
        if previous is not None:
            call.name = "" if delta.name else previous.name
            previous.named_again = False
        return call


def _clamp_usage(usage: Usage) -> Usage:
    """A provider's counts within bounds: they are added to what was spent, so none is negative or infinite."""
    counts = {name: max(0, min(MAX_COUNT, getattr(usage, name))) for name in ("input", "output", "cached", "reasoning")}
    return replace(usage, usd=max(0.0, min(MAX_USD, usage.usd)), **counts)


def _check_size(size: int, most: int, template: str) -> None:
    """ModelError for an answer that exceeds a limit. Nothing of such an answer is recorded or carried out, and the
    error names the limit. Normal answers stay far below."""
    if size > most:
        text = f"The model's answer has {template.format(f'{most:,}')}; it was given up, and nothing of it was done."
        raise ModelError("answer_limit", text)
