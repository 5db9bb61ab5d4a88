"""What becomes of a call (L-05, D-02). Its tool is run; whatever goes wrong on the way, what the call did is found out
by the code that does so for a lost worker, and completed or ended by it. So a fault of ours costs no effect its record.

A tool says by a ToolError that it did nothing, and why. Any other exception is a fault, of which nobody knows when it
struck: the tool is asked what became of the call. If it fails once more, the call is ended for good, and what it had
done by then is its outcome. If even that cannot be done now, the intent stays open for whoever takes the chat up next.
"""

import asyncio

import msgspec
from msgspec.structs import replace

from treadle.engine.deps import Deps
from treadle.engine.examination import crashed, seen_of
from treadle.engine.stopping import stop, twice
from treadle.errors import StoreError, ToolError
from treadle.faultpoint import faultpoint
from treadle.ports.toolset import Invocation, Outcome, Tool

UNSURE = "It is not known whether it took effect. Look at the current state before you go on."


class Unknown(msgspec.Struct, frozen=True):
    """Nobody can tell what became of the call of a lost worker."""

    found: Outcome | None = None
    """What is found changed all the same."""


Points = tuple[str, str]
"""The fault points before and after a tool is run."""


async def outcome_of(
    tool: Tool, invocation: Invocation, deps: Deps, points: Points, *, lost: bool = False
) -> Outcome | Unknown:
    """See a call through. `lost`: a worker before this one may have begun it. StoreError: what it began can neither be
    completed nor ended now."""
    try:
        if not lost:
            return await _ran(tool, invocation, deps, points)
        return await _settled(tool, invocation, deps, points, None)
    except StoreError:
        raise
    except Exception as error:
        fault = error
    try:
        return await _settled(tool, invocation, deps, points, None if lost else fault)
    except StoreError:
        raise
    except Exception as error:
        return await _ended(tool, invocation, None if lost else crashed(tool.spec, error))


async def _settled(
    tool: Tool, invocation: Invocation, deps: Deps, points: Points, fault: Exception | None
) -> Outcome | Unknown:
    """What became of a call by what its tool finds; what was not done, or not entirely, is done now."""
    found = "run_again" if tool.spec.read_only else await tool.settle(invocation)
    faultpoint("recovery.settled")
    if isinstance(found, Outcome):
        return found
    if found == "run_again":
        return await _ran(tool, invocation, deps, points)
    return await _ended(tool, invocation, None if fault is None else f"{crashed(tool.spec, fault)}. {UNSURE}")


async def _ended(tool: Tool, invocation: Invocation, text: str | None) -> Outcome | Unknown:
    """Nothing more is done of a call, and what it has done is told. Without a text nobody knows what else it did."""
    done = await stop(tool, invocation)
    return Unknown(done) if text is None else replace(done or Outcome(""), text=text, summary="", success=False)


async def _ran(tool: Tool, invocation: Invocation, deps: Deps, points: Points) -> Outcome:
    faultpoint(points[0])
    outcome = await _reworded(tool, invocation, await _attempt(tool, invocation), deps)
    faultpoint(points[1])
    return outcome


async def _reworded(tool: Tool, invocation: Invocation, outcome: Outcome, deps: Deps) -> Outcome:
    """The outcome as the hooks leave it. What was done is done: a hook that fails here is said, and changes nothing."""
    try:
        return await deps.hooks.after(tool.spec, invocation, outcome)
    except Exception as error:
        note = f"[A hook failed after this call: {type(error).__name__}: {error}]"
        return replace(outcome, text=f"{outcome.text}\n{note}" if outcome.text else note)


async def _attempt(tool: Tool, invocation: Invocation) -> Outcome:
    """Run a tool; what it refuses becomes an outcome that the model can act on."""
    limit = tool.spec.timeout_s
    try:
        async with asyncio.timeout(limit or None) as patience:
            return await tool.run(invocation)
    except ToolError as error:
        return Outcome(str(error), success=False, seen=seen_of(error))
    except TimeoutError:
        if patience.expired():
            return await _out_of_time(tool, invocation)
        raise


async def _out_of_time(tool: Tool, invocation: Invocation) -> Outcome:
    text = f"{tool.spec.name} was stopped after {tool.spec.timeout_s:g} seconds."
    try:
        done = await twice(lambda: asyncio.shield(tool.stop(invocation)))
    except StoreError:
        raise
    except Exception as error:
        return Outcome(f"{text} It could not be stopped for sure: {error}", success=False)
    return replace(done or Outcome(""), text=text, summary="", success=False)
