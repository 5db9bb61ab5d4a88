"""Determines the outcome of a call (L-05, D-02). Runs the tool; after any fault, the code that settles the calls of a
lost worker finds out the effect of the call, and completes or ends it. So a fault of ours never leaves an effect
unrecorded.

A ToolError says that the tool did nothing, and why. Any other exception is a fault, which may have struck at any time:
the tool is asked for the outcome of the call. If it fails once more, the call is ended for good, and its effects so far
are its outcome. If even that is not possible now, the intent stays open for the next worker of the chat."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from treadle.base.file_system import reach_faultpoint
from treadle.base.logs import log_warning
from treadle.base.types import CallKey
from treadle.engine.deps import Deps
from treadle.engine.tenure import Tenure
from treadle.errors import Conflict, StoreError, ToolError
from treadle.ports.toolset import Invocation, Outcome, Tool
from treadle.protocol.content import KnownFile
from treadle.protocol.events import CheckpointCreated, Event, FilesChanged, WorkspaceConflict
from treadle.protocol.tools import ToolSpec

UNSURE = "It is not known whether it took effect. Look at the current state before you go on."
T = TypeVar("T")


class Unknown(msgspec.Struct, frozen=True):
    observed_outcome: Outcome | None = None  # the changes that were found nevertheless


class CallRun:
    """One call that is seen through. `points` are the fault points before and after its tool is run."""

    def __init__(self, tool: Tool, invocation: Invocation, deps: Deps, points: tuple[str, str]) -> None:
        self._tool, self._invocation, self._deps, self._points = tool, invocation, deps, points

    async def run_or_settle(self, *, may_have_begun: bool = False) -> Outcome | Unknown:
        """Return the outcome of the call. `may_have_begun`: True if an earlier worker may have begun it. StoreError:
        the begun changes can neither be completed nor ended now."""
        try:
            return await (self._settle_call(None) if may_have_begun else self._run_tool())
        except StoreError:
            raise
        except Exception as error:
            fault = error
        try:
            return await self._settle_call(None if may_have_begun else fault)
        except StoreError:
            raise
        except Exception as error:
            return await self._end_call(None if may_have_begun else describe_crash(self._tool.spec, error))

    async def _settle_call(self, fault: Exception | None) -> Outcome | Unknown:
        """Settle the call by asking its tool for the outcome. Effects that are missing or partial are completed now."""
        spec = self._tool.spec
        finding = "run_again" if spec.read_only else await self._tool.settle(self._invocation)
        reach_faultpoint("recovery.settled")
        if isinstance(finding, Outcome):
            return finding
        if finding == "run_again":
            return await self._run_tool()
        return await self._end_call(None if fault is None else f"{describe_crash(spec, fault)}. {UNSURE}")

    async def _end_call(self, text: str | None) -> Outcome | Unknown:
        """End the call for good and return its effects so far. Without a text its other effects are unknown."""
        outcome = await end_call(self._tool, self._invocation)
        if text is None:
            return Unknown(outcome)
        return replace(outcome or Outcome(""), text=text, summary="", success=False)

    async def _run_tool(self) -> Outcome:
        reach_faultpoint(self._points[0])
        outcome = await self._attempt()
        if outcome.question is None:
            try:  # the hooks may change the outcome. The effects stay: if a hook fails here, only a note says so
                outcome = await self._deps.hooks.after_call(self._tool.spec, self._invocation, outcome)
            except Exception as error:
                note = f"[A hook failed after this call: {type(error).__name__}: {error}]"
                outcome = replace(outcome, text=f"{outcome.text}\n{note}" if outcome.text else note)
        reach_faultpoint(self._points[1])
        return outcome

    async def _attempt(self) -> Outcome:
        """Run the tool. A ToolError or a timeout becomes an outcome that the model can act on."""
        try:
            async with asyncio.timeout(self._tool.spec.timeout_s or None) as patience:
                return await self._tool.run(self._invocation)
        except ToolError as error:
            return Outcome(str(error), success=False, known_files=list_seen_files(error))
        except TimeoutError:
            if patience.expired():
                return await self._stop_for_timeout()
            raise

    async def _stop_for_timeout(self) -> Outcome:
        text = f"{self._tool.spec.name} was stopped after {self._tool.spec.timeout_s:g} seconds."
        try:
            outcome = await _stop_call(self._tool, self._invocation)
        except StoreError:
            raise
        except Exception as error:
            return Outcome(f"{text} It could not be stopped for sure: {error}", success=False)
        return replace(outcome or Outcome(""), text=text, summary="", success=False)


async def build_workspace_events(call: CallKey, outcome: Outcome | None, deps: Deps) -> list[Event]:
    if outcome is None:
        return []
    events: list[Event] = []
    if outcome.files or outcome.uncaptured:
        all_of = await deps.spill(outcome.files)
        paths = (all_of.files, call, outcome.source, all_of.manifest, all_of.total, outcome.uncaptured, outcome.git)
        events.append(FilesChanged(*paths))
    return [*events, WorkspaceConflict(outcome.conflicts, call)] if outcome.conflicts else events


def list_seen_files(error: ToolError) -> tuple[KnownFile, ...]:
    """Return the file contents that a refusal showed to the model: a conflict shows the present content (T-13)."""
    return tuple(KnownFile(path, hash) for path, hash in error.seen.items()) if isinstance(error, Conflict) else ()


def describe_crash(spec: ToolSpec, error: Exception) -> str:
    return f"{spec.name} failed: {type(error).__name__}: {error}"


def take_first_line(text: str, limit: int = 120) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= limit else line[: limit - 1] + "…"


async def end_call(tool: Tool, invocation: Invocation) -> Outcome | None:
    """End the call for good, even if stopping it fails. Return its changes so far, if they are known. StoreError: a set
    of changes is begun, and can be neither completed nor taken back now."""
    try:
        return await _stop_call(tool, invocation)
    except StoreError:
        raise
    except Exception as error:
        log_warning("call %s could not be stopped: %s", invocation.call, error)
        return None


async def _stop_call(tool: Tool, invocation: Invocation) -> Outcome | None:
    return await retry_once(lambda: asyncio.shield(tool.stop(invocation)))


async def retry_once(step: Callable[[], Awaitable[T]]) -> T:
    """Carry out a repeatable step, and repeat it once if it fails: the fault may be temporary. A StoreError is not
    retried: the next holder of the lease continues from the stored log."""
    try:
        return await step()
    except StoreError:
        raise
    except Exception:
        return await step()


async def checkpoint(tenure: Tenure, deps: Deps) -> list[Event]:
    """Return the events to record before a call that may change files; empty if the run has its checkpoint already."""
    state = tenure.state
    if state.run is None or state.run.checkpoint or not state.options.root:
        return []
    events: list[Event] = []
    if state.options.git_branch and deps.branch is not None:
        branch_event = await deps.branch(state.options.project, state.chat, state.run.first)
        reach_faultpoint("checkpoint.branched")
        events += [branch_event] if branch_event is not None else []
    return [*events, CheckpointCreated(state.run.first)]
