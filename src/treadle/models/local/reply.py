"""Reads what a small model writes under the grammar, while it writes it: words as text, a call as a call. Tolerant:
what is no JSON object of the expected shape is text."""

import re

import jiter
import msgspec

from treadle.protocol.deltas import CallDelta, Delta, TextDelta

_ARGUMENTS = re.compile(r'"arguments"\s*:\s*')
_CLOSING = "} \t\r\n"


class Words:
    """An answer without a grammar: all of it is text."""

    called = False

    def feed(self, written: str) -> list[Delta]:
        return [TextDelta(written)] if written else []

    def end(self) -> list[Delta]:
        return []


class Reply:
    """An answer of the shape `{"name": …, "arguments": {…}}`."""

    def __init__(self, reply: str) -> None:
        self._reply = reply
        self._written = ""
        self._text = ""
        self._start = 0
        """Where the arguments of the call begin."""
        self._sent = 0
        self._plain = False
        self.called = False

    def feed(self, written: str) -> list[Delta]:
        self._written += written
        if self._plain:
            return [TextDelta(written)] if written else []
        if self.called:
            return self._arguments(len(self._written.rstrip(_CLOSING)))
        return self._look()

    def _look(self) -> list[Delta]:
        try:
            value = jiter.from_json(self._written.encode(), partial_mode="trailing-strings")
        except ValueError:
            value = None if self._written.strip() else {}
        if not isinstance(value, dict):
            return self._as_words()
        name, arguments = value.get("name"), value.get("arguments")
        if not isinstance(arguments, dict):
            return []  # until the arguments have begun, the name may be half of one
        if name != self._reply:
            return self._begin(name)
        text = arguments.get("text", "")
        if not isinstance(text, str) or not text.startswith(self._text):
            return []
        new, self._text = text[len(self._text) :], text
        return [TextDelta(new)] if new else []

    def _begin(self, name: object) -> list[Delta]:
        found = _ARGUMENTS.search(self._written)
        if not isinstance(name, str) or found is None:
            return self._as_words()
        self.called = True
        self._start = self._sent = found.end()
        return [CallDelta(index=0, name=name), *self._arguments(len(self._written.rstrip(_CLOSING)))]

    def _arguments(self, upto: int) -> list[Delta]:
        """The arguments as far as it is sure that they are no closing bracket of the whole."""
        new, self._sent = self._written[self._sent : upto], max(self._sent, upto)
        return [CallDelta(index=0, arguments=new)] if new else []

    def _as_words(self) -> list[Delta]:
        self._plain = not self._text  # half a reply stays what it is
        return [TextDelta(self._written)] if self._plain else []

    def end(self) -> list[Delta]:
        """What was held back. A call that was cut off stays so: whoever runs it sees that it is no JSON."""
        if not self.called:
            return []
        whole = self._written.rstrip()
        try:
            msgspec.json.decode(whole)
        except msgspec.DecodeError:
            return self._arguments(len(self._written))
        return self._arguments(len(whole) - 1)
