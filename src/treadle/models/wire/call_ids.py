"""The ids under which calls and results are sent. Providers' own ids may repeat or be missing (M-09), while servers
want each to be there once: the first call of an id keeps it, a turn whose ids cannot be used gets made-up ones."""

import re
from collections.abc import Mapping, Sequence

from treadle.protocol.content import ToolRequest
from treadle.types import CallKey


class CallIds:
    """The ids of one conversation, asked for in its order. `usable` is what a server takes as an id."""

    def __init__(self, usable: re.Pattern[str] | None = None) -> None:
        self._usable = usable
        self._taken: set[str] = set()
        self._turn: Mapping[CallKey, str] = {}

    def of_calls(self, calls: Sequence[ToolRequest]) -> Mapping[CallKey, str]:
        """The ids of a turn's calls; `of_result` speaks of the same turn from now on."""
        own = self._claim(calls)
        self._turn = {call.call: call.id if own else _alias(call.call) for call in calls}
        return self._turn

    def of_result(self, call: CallKey) -> str:
        return self._turn.get(call) or _alias(call)

    def _claim(self, calls: Sequence[ToolRequest]) -> bool:
        """Take the calls' own ids if all are there, usable and new; else take none."""
        ids = {call.id for call in calls}
        if len(ids) < len(calls) or "" in ids or not self._taken.isdisjoint(ids):
            return False
        if self._usable is not None and not all(map(self._usable.fullmatch, ids)):
            return False
        self._taken |= ids
        return True


def _alias(call: str) -> str:
    """An id made of the call's key: nine letters or digits, which the strictest servers demand."""
    turn, _, position = call.partition(".")
    return f"t{turn:0>5}{position:0>3}"
