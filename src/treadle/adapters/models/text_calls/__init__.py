"""Tool calls that models write into their text, in the notations of real families of models: found, shown as text
without them, repaired where they were cut off (P-01 to P-07). Pure; knows no model and no tool.

    extract('Let me see. <tool_call>{"name": "read_file", "arguments": {"path": "a"}}</tool_call>')"""

from collections.abc import Collection

from treadle.adapters.models.text_calls.scanner import Extraction, Scanner
from treadle.adapters.models.text_calls.shapes import ANY_NAME, TextCall

__all__ = ["Extraction", "Scanner", "TextCall", "detect_partial", "extract", "strip"]


def extract(text: str, tool_names: Collection[str] | None = None) -> Extraction:
    """All calls of a text, and the text without them. `tool_names` are needed for calls that only their shape shows."""
    scanner = Scanner(tool_names)
    visible_text = scanner.feed(text)
    tail = scanner.end()
    return Extraction(tail.calls, visible_text + tail.text)


def detect_partial(text: str, tool_names: Collection[str] | None = None) -> int | None:
    """Where the shown text must freeze, because a call may be in progress there; None where none is."""
    scanner = Scanner(ANY_NAME if tool_names is None else tool_names)
    scanner.feed(text)
    return scanner.partial


def strip(text: str, tool_names: Collection[str] | None = None) -> str:
    """The text as it may be displayed: without calls and their markup, complete or not."""
    return extract(text, tool_names).text
