"""A whole request as one text that a program can read, and a person too. Each entry is written once and its bytes are
kept (law 13). Pure; knows nothing of programs."""

from collections.abc import Iterator, Mapping
from typing import assert_never

from treadle.models.wire.pictures import NO_PICTURES, shown
from treadle.ports.model import ModelRequest
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, UserEntry
from treadle.types import CallKey

_HOW = (
    "What follows is a conversation between a user and an assistant. You are the assistant: write its next message, "
    "and nothing else."
)
_USER = "### User"
_ASSISTANT = "### Assistant"
_RESULTS = "### Results"


def flatten(request: ModelRequest) -> bytes:
    """The prompt, in UTF-8. It ends where the answer is to begin."""
    head = "\n\n".join(filter(None, (request.system.strip(), _HOW))).encode("utf-8", "replace")
    said = request.memo.pieces(request.entries, Conversation)
    return b"\n\n".join((head, *said, f"{_ASSISTANT}\n".encode()))


class Conversation:
    """Writes entries in order."""

    def __init__(self) -> None:
        self._names: Mapping[CallKey, str] = {}

    def __call__(self, entry: Entry) -> bytes:
        return "\n".join(self._lines(entry)).encode("utf-8", "replace")

    def _lines(self, entry: Entry) -> Iterator[str]:
        match entry:
            case UserEntry():
                yield _USER
                yield shown(entry, NO_PICTURES)[0]
            case AssistantEntry(text=text, calls=calls):
                self._names = {call.call: call.name for call in calls}
                yield _ASSISTANT
                if text:
                    yield text
                for call in calls:
                    yield f"[calls {call.name} with {call.arguments}]"
            case ResultsEntry(results=results):
                yield _RESULTS
                for result in results:
                    yield f"[{self._names.get(result.call) or 'a call'} {'gave' if result.success else 'failed'}]"
                    yield result.text
            case _ as never:
                assert_never(never)
