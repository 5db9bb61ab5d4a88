"""How heavy a conversation is: characters of an entry, and tokens estimated from them. The provider's own count
replaces the estimate as soon as there is one; nothing is downloaded to count better."""

from typing import assert_never

from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, UserEntry

CHARS_PER_TOKEN = 3.6
ENTRY_CHARS = 16
"""What a role, an id and their punctuation weigh."""
IMAGE_CHARS = 4_000


def weigh(entry: Entry) -> int:
    """The weight of an entry in characters."""
    match entry:
        case UserEntry():
            return len(entry.text) + ENTRY_CHARS + IMAGE_CHARS * len(entry.images)
        case AssistantEntry():
            thinking = sum(len(block.opaque or block.text) for block in entry.thinking)
            calls = sum(len(call.name) + len(call.arguments) + ENTRY_CHARS for call in entry.calls)
            return len(entry.text) + thinking + calls + ENTRY_CHARS
        case ResultsEntry():
            return sum(len(result.text) + ENTRY_CHARS for result in entry.results)
        case _ as never:
            assert_never(never)


def tokens(chars: int) -> int:
    """Tokens that this many characters probably are; rounded up, so that an estimate errs on the safe side."""
    return int(chars / CHARS_PER_TOKEN) + 1 if chars else 0
