"""What became of changes of files, in words and by the hashes on disk: after they were made, and after a crash or a
stop in the midst of them (D-02). Changes nothing."""

from collections.abc import Sequence

from treadle.errors import ToolError
from treadle.lines.diff import bounded
from treadle.ports.toolset import Outcome, Settlement
from treadle.ports.workspace import Workspace, inert
from treadle.protocol.files import DiffStat, FileChange
from treadle.protocol.traces import Seen
from treadle.tools.builtin.change import Change, Step, headline
from treadle.tools.builtin.footprints import Footprints

AGAIN = "(Found done after a restart.)"
LOOK = "Look at them before you go on."


# -- telling --------------------------------------------------------------------------------------------------------


def told(changes: Sequence[Change], files: tuple[FileChange, ...]) -> Outcome:
    """The outcome of changes that were made; `files` is what they left in the history of the project."""
    seen = tuple(Seen(each.path, each.post or "") for each in changes)
    made = [(each, each.diff()) for each in changes if each.pre != each.post]
    if not made:
        names = ", ".join(inert(each.path) for each in changes)
        has = "has" if len(changes) == 1 else "have"
        return Outcome(
            f"{names} already {has} exactly this content; nothing was changed.", summary="no change", seen=seen
        )
    named = tuple(Step(e.path, e.pre, e.post, d.stat.added, d.stat.removed).made for e, d in made)
    stat = _total(named)
    notes = [each.note for each in changes if each.note]
    text = "\n".join([headline(named), *notes, bounded("\n".join(diff.text for _, diff in made))])
    return Outcome(text, f"+{stat.added} -{stat.removed}", diff_stat=stat, files=files, seen=seen)


def _total(files: Sequence[FileChange]) -> DiffStat:
    return DiffStat(sum(each.added for each in files), sum(each.removed for each in files))


# -- settling -------------------------------------------------------------------------------------------------------


def states_of(workspace: Workspace, steps: Sequence[Step]) -> list[str]:
    """For each file whether it is as before, as after, or neither."""
    states = []
    for step in steps:
        try:
            now = workspace.digest(step.path)
        except ToolError:  # no file any more, but something else
            states.append("other")
            continue
        states.append("pre" if now == step.pre else "post" if now == step.post else "other")
    return states


def settled(workspace: Workspace, footprints: Footprints, steps: Sequence[Step], token: str) -> Settlement:
    """Whether changes happened whose worker died: by the hashes on disk, and nothing else. If a part of them did, the
    rest can still be made; `run` does that."""
    for step in steps:
        workspace.sweep(step.path, token)
    states = states_of(workspace, steps)
    if "other" in states:
        if len(steps) == 1:
            return "unknown"
        return partly(workspace, footprints, steps, LOOK)
    open_steps = [step for step, state in zip(steps, states, strict=True) if state == "pre" and step.pre != step.post]
    if open_steps or all(step.pre == step.post for step in steps):  # writing the same bytes again changes nothing
        return "run_again"
    return found_done(steps, footprints.made(steps), AGAIN)


def partly(workspace: Workspace, footprints: Footprints, steps: Sequence[Step], note: str) -> Outcome:
    """Changes of which some were made, and the others cannot be."""
    states = states_of(workspace, steps)
    return Outcome(listed(steps, states, note), success=False, files=footprints.made(_done(steps, states), steps))


def made_so_far(workspace: Workspace, footprints: Footprints, steps: Sequence[Step]) -> Outcome | None:
    """What a call that was stopped had changed by then."""
    states = states_of(workspace, steps)
    files = footprints.made(_done(steps, states), steps)
    return Outcome("It was stopped while the files were written.", success=False, files=files) if files else None


def _done(steps: Sequence[Step], states: Sequence[str]) -> list[Step]:
    return [step for step, state in zip(steps, states, strict=True) if state == "post"]


def found_done(steps: Sequence[Step], files: tuple[FileChange, ...], note: str) -> Outcome:
    named = tuple(step.made for step in steps if step.pre != step.post)
    stat = _total(named)
    seen = tuple(Seen(step.path, step.post or "") for step in steps)
    return Outcome(
        f"{headline(named)} {note}", f"+{stat.added} -{stat.removed}", diff_stat=stat, files=files, seen=seen
    )


def listed(steps: Sequence[Step], states: Sequence[str], advice: str) -> str:
    words = {"pre": "not changed", "post": "changed as asked", "other": "changed by someone else"}
    lines = [f"{inert(step.path)}: {words[state]}" for step, state in zip(steps, states, strict=True)]
    return "\n".join([f"The call was cut off while the files were written. {advice}", *lines])
