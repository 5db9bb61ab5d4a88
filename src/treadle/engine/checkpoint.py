"""The point to which a run can be undone, recorded before its first change (W-01). Pre-images are kept with each
change; the checkpoint says from where on."""

from treadle.engine.deps import Deps
from treadle.engine.lease import Tenure
from treadle.faultpoint import faultpoint
from treadle.protocol.events import CheckpointCreated, Event


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
