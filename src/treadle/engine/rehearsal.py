"""Approving what a call does instead of what it says (W-09): it is carried out on a copy-on-write view first, and the
verdict is about that. The project is as it was; what is allowed then is exactly this effect."""

from msgspec.structs import replace

from treadle.engine.lease import STOPPED, Stopped, Tenure
from treadle.engine.stopping import stop
from treadle.ports.policy import Verdict
from treadle.ports.toolset import Invocation, Tool

HARMLESS = "auto-approved (it changes nothing in the project)"
BY_WORDS = "no copy-on-write view can be had for it, so it is asked for by its words"


async def rehearsed(tenure: Tenure, tool: Tool, invocation: Invocation, verdict: Verdict) -> Verdict | Stopped:
    """What a review comes to: nothing would change, or somebody must be asked."""
    rehearsal = await tenure.unless_stopped(tool.rehearse(invocation))
    if isinstance(rehearsal, Stopped):
        await stop(tool, invocation)
        return STOPPED
    if rehearsal is not None and rehearsal.empty:
        return Verdict("allow", HARMLESS)
    if verdict.refusal:
        return replace(verdict, decision="deny", reason=verdict.refusal)
    if rehearsal is None:
        return replace(verdict, decision="ask", reason=f"{verdict.reason}; {BY_WORDS}" if verdict.reason else BY_WORDS)
    return replace(verdict, decision="ask", shown=f"{verdict.shown}\n\n{rehearsal.shown}")
