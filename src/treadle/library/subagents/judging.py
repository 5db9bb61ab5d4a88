"""Chooses the winning attempt of a race, with the reason (L-22). Uses only the logs, so that a repeated call gives the
same answer."""

import re
from collections.abc import Sequence

import msgspec

from treadle.adapters.tools.builtin.base import truncate_utf8
from treadle.base.types import CallKey
from treadle.chat.applying import last_answer
from treadle.library.subagents.children import ChildResult
from treadle.protocol.events import CheckCompleted, CheckStarted, Envelope, RunEnd
from treadle.protocol.options import ChatOptions

SHOWN = 20_000
"""So many bytes of the diff of an attempt the judge sees."""
VERDICT = {
    "type": "object",
    "properties": {"choice": {"type": "integer"}, "why": {"type": "string"}},
    "required": ["choice", "why"],
    "additionalProperties": False,
}
_QUESTION = """\
Several attempts were made at the same task. Choose the one to keep: the one that does what the task asks, correctly \
and completely, with the least that is not needed.

<task>
{task}
</task>

{attempts}

Answer with the number of your choice and with why, in one or two sentences.
"""
_ATTEMPT = "<attempt number={number}>\n{said}\n\n{diff}\n</attempt>"


class Contender(msgspec.Struct, frozen=True):
    """An attempt at rest, as far as the choice goes."""

    child_result: ChildResult
    ended_ms: int

    @property
    def number(self) -> int:
        return self.child_result.child.number


def has_passed_check(child_result: ChildResult, events: Sequence[Envelope], check: str) -> bool | None:
    """True if the check succeeded in the attempt's world when the attempt last reported that it was done; None without
    a check."""
    if not check:
        return None
    keys: set[CallKey] = set()
    success = False
    for envelope in events:
        match envelope.data:
            case CheckStarted(check=key, command=command) if command == check:
                keys.add(key)
            case CheckCompleted(check=key, success=came, synthetic="") if key in keys:
                success = came
            case _:
                pass
    return success and child_result.ended_well


def ended_ms(events: Sequence[Envelope]) -> int:
    return max((envelope.time_ms for envelope in events if isinstance(envelope.data, RunEnd)), default=0)


def eligible(attempts: Sequence[Contender]) -> list[Contender]:
    """Those that may win: they ended well, passed the check if there is one, and changed something."""
    return [
        each
        for each in attempts
        if each.child_result.ended_well and each.child_result.has_passed is not False and each.child_result.effect.files
    ]


def choose(contenders: Sequence[Contender], *, first: bool) -> tuple[Contender, str]:
    """The winner without a judge: the first that passed, or the smallest change."""
    if first:
        return min(contenders, key=lambda each: (each.ended_ms, each.number)), "the first to pass the check"
    words = (
        "the smallest change"
        if contenders[0].child_result.has_passed is None
        else "the smallest change that passes the check"
    )
    return min(contenders, key=lambda each: (each.child_result.size, each.number)), words


def question(task: str, contenders: Sequence[Contender], diffs: Sequence[str]) -> str:
    attempt_texts = (
        _ATTEMPT.format(
            number=each.number, said=last_answer(each.child_result.state).strip(), diff=truncate_utf8(diff, SHOWN)
        )
        for each, diff in zip(contenders, diffs, strict=True)
    )
    return _QUESTION.format(task=task, attempts="\n\n".join(attempt_texts))


def judge_options(options: ChatOptions) -> ChatOptions:
    return msgspec.structs.replace(
        options, mode="read-only", tools=(), output_schema=VERDICT, interactive=False, instructions="", skills=()
    )


def verdict(answer: str, contenders: Sequence[Contender]) -> tuple[Contender, str] | None:
    """Return the judge's choice and reason; None if its answer names no attempt."""
    read: object = None
    if json_match := re.search(r"\{.*\}", answer, re.DOTALL):
        try:
            read = msgspec.json.decode(json_match[0])
        except msgspec.MsgspecError:
            read = None
    reply = read if isinstance(read, dict) else {}
    number = reply.get("choice")
    if not isinstance(number, int) and (number_match := re.search(r"\d+", answer)):
        number = int(number_match[0])
    for each in contenders:
        if each.number == number:
            return each, f"the judge's choice: {str(reply.get('why') or '').strip() or 'no reason given'}"
    return None
