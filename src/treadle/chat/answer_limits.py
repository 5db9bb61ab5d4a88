"""How much one answer of a model may hold, whoever sent it. What breaks a limit is no answer: nothing of it is recorded
or carried out, and the error says which limit it was. Honest answers stay far below."""

from treadle.errors import ModelError

CALLS = 256
"""Calls of one turn."""
ARGUMENTS_CHARS = 4 * 1024 * 1024
"""Arguments of one call."""
NAME_CHARS = 1_000
"""A name of a tool, or an id of a call."""
ANSWER_CHARS = 16 * 1024 * 1024
"""Text, thinking and arguments together."""
BLOCKS = 1_000
"""Blocks of thinking."""
NOTICES = 20
"""What is told beside the answer; more of it is left out."""
REASON_CHARS = 100
"""Of the reason for which it ended."""


def check_calls(count: int) -> None:
    if count > CALLS:
        raise _over(f"more than {CALLS} calls")


def check_arguments(chars: int) -> None:
    if chars > ARGUMENTS_CHARS:
        raise _over(f"a call with arguments of more than {ARGUMENTS_CHARS:,} characters")


def check_label(label: str) -> None:
    if len(label) > NAME_CHARS:
        raise _over(f"a call whose name or id has more than {NAME_CHARS:,} characters")


def check_blocks(count: int) -> None:
    if count > BLOCKS:
        raise _over(f"more than {BLOCKS:,} blocks of thinking")


def check_answer(chars: int) -> None:
    if chars > ANSWER_CHARS:
        raise _over(f"more than {ANSWER_CHARS:,} characters")


def _over(what: str) -> ModelError:
    return ModelError("answer_limit", f"The model's answer has {what}; it was given up, and nothing of it was done.")
