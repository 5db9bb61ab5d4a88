"""The folder that a chat works in is one and the same for its whole life (S-01): found out when the chat is made, or,
where nobody could see the folder then, when a worker first can. A run whose root is another folder by now ends before
anything of it is touched; the tools look again, each time, for themselves."""

from treadle.engine.deps import Deps
from treadle.engine.lease import Tenure
from treadle.errors import RootChanged
from treadle.protocol.events import OptionsChanged, SessionError


async def bound(tenure: Tenure, deps: Deps) -> bool:
    """Bind the chat to its root if it is not bound yet. False: it is another folder by now, so the run has ended."""
    state = tenure.state
    if deps.bind is None or state.run is None or not state.options.root:
        return True
    try:
        found = deps.bind(state.options, state.owner)  # a look at one folder; a thread would cost more
    except RootChanged as error:
        await tenure.record(SessionError(error.code, deps.redact(str(error))))
        return False
    if found and not state.options.root_id:
        await tenure.append(OptionsChanged({"root_id": found}, by="treadle"))
    return True
