"""Which attempt of a race wins, and why (L-22). From what is in the logs alone: whoever asks again is told the same."""

import re
from collections.abc import Sequence

import msgspec

from treadle.chat.applying import last_answer
from treadle.protocol.events import CheckCompleted, CheckStarted, Envelope, RunEnd
from treadle.protocol.options import ChatOptions
from treadle.subagents.children import Rested
from treadle.tools.builtin.base import cut
from treadle.types import CallKey

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

    rested: Rested
    ended_ms: int

    @property
    def number(self) -> int:
        return self.rested.child.number


def passed(rested: Rested, events: Sequence[Envelope], check: str) -> bool | None:
    """Whether the check succeeded in the attempt's world when the attempt last said that it was done."""
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
    return success and rested.ended_well


def ended_ms(events: Sequence[Envelope]) -> int:
    return max((envelope.time_ms for envelope in events if isinstance(envelope.data, RunEnd)), default=0)


def eligible(attempts: Sequence[Contender]) -> list[Contender]:
    """Those that may win: they ended well, passed the check if there is one, and changed something."""
    return [
        each
        for each in attempts
        if each.rested.ended_well and each.rested.passed is not False and each.rested.effect.files
    ]


def choose(found: Sequence[Contender], *, first: bool) -> tuple[Contender, str]:
    """The winner without a judge: the first that passed, or the smallest change."""
    if first:
        return min(found, key=lambda each: (each.ended_ms, each.number)), "the first to pass the check"
    words = "the smallest change" if found[0].rested.passed is None else "the smallest change that passes the check"
    return min(found, key=lambda each: (each.rested.size, each.number)), words


def question(task: str, found: Sequence[Contender], diffs: Sequence[str]) -> str:
    shown = (
        _ATTEMPT.format(number=each.number, said=last_answer(each.rested.state).strip(), diff=cut(diff, SHOWN))
        for each, diff in zip(found, diffs, strict=True)
    )
    return _QUESTION.format(task=task, attempts="\n\n".join(shown))


def judge_options(options: ChatOptions) -> ChatOptions:
    return msgspec.structs.replace(
        options, mode="read-only", tools=(), output_schema=VERDICT, interactive=False, instructions="", skills=()
    )


def verdict(answer: str, found: Sequence[Contender]) -> tuple[Contender, str] | None:
    """What a judge said; None if that names no attempt."""
    read: object = None
    if shown := re.search(r"\{.*\}", answer, re.DOTALL):
        try:
            read = msgspec.json.decode(shown[0])
        except msgspec.MsgspecError:
            read = None
    said = read if isinstance(read, dict) else {}
    number = said.get("choice")
    if not isinstance(number, int) and (named := re.search(r"\d+", answer)):
        number = int(named[0])
    for each in found:
        if each.number == number:
            return each, f"the judge's choice: {str(said.get('why') or '').strip() or 'no reason given'}"
    return None
