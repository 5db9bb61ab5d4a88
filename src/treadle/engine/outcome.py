"""What becomes of a call (L-05, D-02). Its tool is run; whatever goes wrong on the way, what the call did is found out
by the code that does so for a lost worker, and completed or ended by it. So a fault of ours costs no effect its record.

A tool says by a ToolError that it did nothing, and why. Any other exception is a fault, of which nobody knows when it
struck: the tool is asked what became of the call. If it fails once more, the call is ended for good, and what it had
done by then is its outcome. If even that cannot be done now, the intent stays open for whoever takes the chat up next.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from treadle.engine.deps import Deps
from treadle.engine.tenure import Tenure
from treadle.errors import Conflict, StoreError, ToolError
from treadle.faultpoint import faultpoint
from treadle.logs import log_warning
from treadle.ports.toolset import Invocation, Outcome, Tool
from treadle.protocol.content import Seen
from treadle.protocol.events import CheckpointCreated, Event, FilesChanged, WorkspaceConflict
from treadle.protocol.tools import ToolSpec
from treadle.types import CallKey

UNSURE = "It is not known whether it took effect. Look at the current state before you go on."


T = TypeVar("T")


class Unknown(msgspec.Struct, frozen=True):
    """Nobody can tell what became of the call of a lost worker."""

    found: Outcome | None = None
    """What is found changed all the same."""


class CallRun:
    """One call that is seen through. `points` are the fault points before and after its tool is run."""

    def __init__(self, tool: Tool, invocation: Invocation, deps: Deps, points: tuple[str, str]) -> None:
        self._tool, self._invocation = tool, invocation
        self._deps = deps
        self._points = points

    async def outcome(self, *, lost: bool = False) -> Outcome | Unknown:
        """`lost`: a worker before this one may have begun it. StoreError: what it began can neither be completed nor
        ended now."""
        try:
            return await (self._settled(None) if lost else self._ran())
        except StoreError:
            raise
        except Exception as error:
            fault = error
        try:
            return await self._settled(None if lost else fault)
        except StoreError:
            raise
        except Exception as error:
            return await self._ended(None if lost else crashed(self._tool.spec, error))

    async def _settled(self, fault: Exception | None) -> Outcome | Unknown:
        """What became of the call by what its tool finds; what was not done, or not entirely, is done now."""
        spec = self._tool.spec
        found = "run_again" if spec.read_only else await self._tool.settle(self._invocation)
        faultpoint("recovery.settled")
        if isinstance(found, Outcome):
            return found
        if found == "run_again":
            return await self._ran()
        return await self._ended(None if fault is None else f"{crashed(spec, fault)}. {UNSURE}")

    async def _ended(self, text: str | None) -> Outcome | Unknown:
        """Nothing more is done of the call, and what it has done is told. Without a text nobody knows what else it
        did."""
        done = await end(self._tool, self._invocation)
        return Unknown(done) if text is None else replace(done or Outcome(""), text=text, summary="", success=False)

    async def _ran(self) -> Outcome:
        faultpoint(self._points[0])
        outcome = await self._attempt()
        if outcome.question is None:
            outcome = await self._reworded(outcome)
        faultpoint(self._points[1])
        return outcome

    async def _reworded(self, outcome: Outcome) -> Outcome:
        """As the hooks leave it. What was done is done: a hook that fails here is said, and changes nothing."""
        try:
            return await self._deps.hooks.after(self._tool.spec, self._invocation, outcome)
        except Exception as error:
            note = f"[A hook failed after this call: {type(error).__name__}: {error}]"
            return replace(outcome, text=f"{outcome.text}\n{note}" if outcome.text else note)

    async def _attempt(self) -> Outcome:
        """Run the tool; what it refuses becomes an outcome that the model can act on."""
        try:
            async with asyncio.timeout(self._tool.spec.timeout_s or None) as patience:
                return await self._tool.run(self._invocation)
        except ToolError as error:
            return Outcome(str(error), success=False, seen=seen_of(error))
        except TimeoutError:
            if patience.expired():
                return await self._out_of_time()
            raise

    async def _out_of_time(self) -> Outcome:
        spec = self._tool.spec
        text = f"{spec.name} was stopped after {spec.timeout_s:g} seconds."
        try:
            done = await _stopped(self._tool, self._invocation)
        except StoreError:
            raise
        except Exception as error:
            return Outcome(f"{text} It could not be stopped for sure: {error}", success=False)
        return replace(done or Outcome(""), text=text, summary="", success=False)


async def workspace_events(call: CallKey, outcome: Outcome | None, deps: Deps) -> list[Event]:
    """What stands behind a call's result: what it changed, or what kept it from changing anything."""
    events: list[Event] = []
    if outcome is None:
        return events
    if outcome.files or outcome.uncaptured:
        all_of = await deps.spill(outcome.files)
        events.append(
            FilesChanged(
                all_of.files,
                call,
                outcome.source,
                all_of.manifest,
                all_of.total,
                outcome.uncaptured,
                outcome.git,
            )
        )
    if outcome.conflicts:
        events.append(WorkspaceConflict(outcome.conflicts, call))
    return events


def seen_of(error: ToolError) -> tuple[Seen, ...]:
    """What the model has seen of files by being refused: a conflict shows what is there now (T-13)."""
    return tuple(Seen(path, hash) for path, hash in error.seen.items()) if isinstance(error, Conflict) else ()


def crashed(spec: ToolSpec, error: Exception) -> str:
    return f"{spec.name} failed: {type(error).__name__}: {error}"


def first_line(text: str, limit: int = 120) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= limit else line[: limit - 1] + "…"


async def end(tool: Tool, invocation: Invocation) -> Outcome | None:
    """The run is over for the call, whether that works or not. What it had changed by then, if that is known.
    StoreError: a set of changes is begun, and can be neither completed nor taken back now."""
    try:
        return await _stopped(tool, invocation)
    except StoreError:
        raise
    except Exception as error:
        log_warning("call %s could not be stopped: %s", invocation.call, error)
        return None


async def _stopped(tool: Tool, invocation: Invocation) -> Outcome | None:
    return await twice(lambda: asyncio.shield(tool.stop(invocation)))


async def twice(step: Callable[[], Awaitable[T]]) -> T:
    """Take a step that can be repeated, once more if it fails: what struck it may strike only once. A store that fails
    is not asked again: whoever holds the lease next goes on from what it has."""
    try:
        return await step()
    except StoreError:
        raise
    except Exception:
        return await step()


async def checkpoint(tenure: Tenure, deps: Deps) -> list[Event]:
    """What is to be recorded before a call that may change files; nothing, if the run has its checkpoint already."""
    state = tenure.state
    if state.run is None or state.run.checkpoint or not state.options.root:
        return []
    events: list[Event] = []
    if state.options.git_branch and deps.branch is not None:
        made = await deps.branch(state.options.project, state.chat, state.run.first)
        faultpoint("checkpoint.branched")
        events += [made] if made is not None else []
    return [*events, CheckpointCreated(state.run.first)]
