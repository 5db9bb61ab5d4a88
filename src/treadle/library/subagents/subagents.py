"""`ports.subagents.Subagents`, as an Agent has it."""

from typing import Any

import msgspec

from treadle.library.subagents import delegate, race
from treadle.library.subagents.children import Children, Home
from treadle.ports.toolset import Invocation, Outcome
from treadle.protocol.subagent_events import children_of
from treadle.protocol.tools import RACE_TOOL


class AgentSubagents:
    def __init__(self, home: Home) -> None:
        self._home = home

    async def plan(self, invocation: Invocation) -> dict[str, Any]:
        way = race.plan if invocation.name == RACE_TOOL else delegate.plan
        return {"children": msgspec.to_builtins(await way(self._home, invocation))}

    async def delegate(self, invocation: Invocation) -> Outcome:
        return await delegate.delegate(self._home, invocation)

    async def race(self, invocation: Invocation) -> Outcome:
        return await race.race(self._home, invocation)

    async def stop(self, invocation: Invocation) -> Outcome | None:
        group = Children(self._home, invocation)
        with self._home.worker.lending(invocation.chat):
            child_results = await group.end(children_of(invocation.plan))
        if not child_results:
            return None
        result_pairs = [(each, await group.call_off(each.child)) for each in child_results]
        merged = [
            msgspec.structs.replace(each, effect=effect, committed=True) if effect is not None else each
            for each, effect in result_pairs
        ]
        return delegate.build_outcome(invocation, merged, [])
