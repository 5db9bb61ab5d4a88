"""The thinking that servers of Chat Completions want back, each in fields of its own (M-10): DeepSeek and others the
text itself, GitHub Copilot a seal beside it, OpenRouter a list of details with the makers' signatures. Collects them
from a stream; a request gives them back as they stand."""

from typing import Any

import msgspec

from treadle.protocol.content import Thinking
from treadle.protocol.deltas import ThinkingBlock

DETAILS = "reasoning_details"
_GROWING = ("text", "summary", "data")
"""The parts of a detail that come in pieces."""


class Sealing:
    """`field` is where the server wants the text back; empty: nowhere."""

    def __init__(self, field: str = "") -> None:
        self._field = field
        self._text: list[str] = []
        self._opaque = ""
        self._details: dict[tuple[object, object], dict[str, Any]] = {}

    def take(self, thought: str, opaque: str | None, details: object) -> None:
        """One piece of a stream, as far as it has any of these."""
        if thought:
            self._text.append(thought)
        self._opaque = opaque or self._opaque
        if isinstance(details, list):
            for detail in details:
                if isinstance(detail, dict):
                    self._detail(detail)

    def block(self) -> ThinkingBlock | None:
        """All of the thinking, if there is anything to give back."""
        text = "".join(self._text)
        fields: dict[str, Any] = {}
        if self._field and text:
            fields[self._field] = text
        elif self._opaque:
            fields = {"reasoning_text": text} if text else {}
        if self._opaque:
            fields["reasoning_opaque"] = self._opaque
        if self._details:
            fields[DETAILS] = list(self._details.values())
        return ThinkingBlock(Thinking(text, msgspec.json.encode(fields).decode())) if fields else None

    def _detail(self, detail: dict[str, Any]) -> None:
        """Pieces of one detail have its type and index in common. One without an index is whole."""
        kind, index = detail.get("type"), detail.get("index")
        key = (kind if isinstance(kind, str) else None, index if isinstance(index, int) else f"#{len(self._details)}")
        known = self._details.setdefault(key, {})
        for name, value in detail.items():
            if value is None:
                known.setdefault(name, None)
            elif name in _GROWING and isinstance(value, str) and isinstance(known.get(name), str):
                known[name] += value
            else:
                known[name] = value
