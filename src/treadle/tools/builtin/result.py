"""The outcome of a command that has ended: what it wrote, how it ended, what became of the project and of the shell.
Owns the words; what is to become of the project was decided before."""

from treadle.errors import ToolError
from treadle.faultpoint import faultpoint
from treadle.lines.aside import count, sort_out
from treadle.ports.commands import Command, Ended
from treadle.ports.toolset import Invocation, Outcome
from treadle.tools.builtin.base import in_thread
from treadle.tools.builtin.context import ToolContext
from treadle.tools.builtin.output import CAP, parts, view, without_secrets
from treadle.tools.builtin.process import Place, timeout_of
from treadle.tools.builtin.shell_state import Left, read_left
from treadle.tools.builtin.transaction import Reached, Way

_LOST = "[the command's supervisor was killed; what the command did before and after that is not known]"
_LOST_VIEW = "[the command's supervisor was killed; nothing of what the command changed in the project was committed"
_LOST_NETWORK = "; what it did over the network is not known"


async def collect(
    context: ToolContext,
    command: Command,
    ended: Ended,
    invocation: Invocation,
    place: Place,
    way: Way,
    reached: Reached,
) -> Outcome:
    if ended.ending == "failed":
        raise ToolError(f"The command could not be started: {ended.error}.")
    shown = await in_thread(view, command, ended)
    digest = "" if shown.exact else await _store(context, command)
    faultpoint("command.collected")
    left = await in_thread(_left, context, command, invocation, place)
    how, last = ending(ended, invocation, way)
    changes = len(sort_out(reached.files).told)
    told = [how, count(ended.lines, "line"), *([count(changes, "change")] if changes else [])]
    text = "\n".join(
        (
            *place.notes,
            shown.text if ended.size else "(no output)",
            *(["[processes that it left running in the background were stopped]"] if ended.left_behind else []),
            *([f"[some output could not be kept: {ended.error}]"] if ended.error else []),
            *left.notes,
            *([_handle(ended, invocation)] if shown.cut else []),
            *reached.lines,
            last,
        )
    )
    notice = await in_thread(context.notice, invocation.root, invocation.options)
    return Outcome(
        text,
        summary=", ".join(told),
        success=ended.ending == "exited" and ended.code == 0 and reached.success,
        diff_stat=reached.stat,
        files=reached.files,
        source=reached.source,
        uncaptured=reached.uncaptured,
        git=reached.git,
        conflicts=reached.conflicts,
        effect="view" if way.view else "direct",
        output=digest,
        sandbox=sandbox_in(invocation),
        shell=left.shell,
        facts=() if notice is None else (notice,),
    )


def sandbox_in(invocation: Invocation) -> str:
    return str((invocation.plan or {}).get("sandbox", ""))


def ending(ended: Ended, invocation: Invocation, way: Way) -> tuple[str, str]:
    """In a few words for people, and as the last line for the model."""
    match ended.ending:
        case "timed_out":
            how = f"timed out after {timeout_of(invocation):g} s"
            return how, f"[{how}; the command and everything it started were stopped]"
        case "stopped":
            return "stopped", "[the command was stopped, with everything it had started]"
        case "lost" if way.view:
            return "lost", f"{_LOST_VIEW}{_LOST_NETWORK if way.network else ''}]"
        case "lost":
            return "lost", _LOST
        case _:
            how = f"exit {ended.code}" if ended.code >= 0 else f"killed by signal {-ended.code}"
            return how, f"[{how}]"


async def _store(context: ToolContext, command: Command) -> str:
    """Keep the whole output; what is kept has no secrets in it."""
    kept = parts(command)
    if context.redact is not str:
        kept = without_secrets(kept, context.redact)
    return await context.blobs.put_blob_parts(kept)


def _left(context: ToolContext, command: Command, invocation: Invocation, place: Place) -> Left:
    workspace = context.workspace_of(*invocation.project)
    return read_left(command.shell(), invocation.shell, place.base, workspace, context.env)


def _handle(ended: Ended, invocation: Invocation) -> str:
    kept = f"; of {ended.size:,} bytes the beginning and the end were kept" if ended.size > CAP else ""
    return f'[the whole output: read_output handle="{invocation.call}"{kept}]'
