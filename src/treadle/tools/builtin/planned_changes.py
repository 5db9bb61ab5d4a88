"""What a file tool would change, as changes of the project are judged (S-16): by path, each at the file itself, before
and after. Looks, and keeps nothing."""

from collections.abc import Sequence

from msgspec.structs import replace

from treadle.chat.change_rules import left_out
from treadle.errors import ToolError
from treadle.ports.workspace import Workspace, inert
from treadle.protocol.files import DiffStat, FileChange, FileState, change_of, decode_path, encode_path
from treadle.tools.builtin.file_change import Change

_NEW_FILE = 0o644


def planned(workspace: Workspace, changes: Sequence[Change]) -> tuple[FileChange, ...]:
    """Without those that leave a file as it is."""
    return tuple(_planned(workspace, each) for each in changes if each.pre != each.post)


def refuse_never_committed(workspace: Workspace, changes: Sequence[Change]) -> None:
    """ToolError for what no project gets, whoever asks for it. A path counts as it is given, and as links lead on."""
    made = [each for each in changes if each.pre != each.post]
    places = planned(workspace, made)
    spelled = [replace(file, path=encode_path(each.path)) for each, file in zip(made, places, strict=True)]
    reasons = left_out((*places, *spelled), lambda path: workspace.inspect(path) is not None)
    for path, reason in reasons.items():
        raise ToolError(f"Nothing was changed. {inert(decode_path(path))} is never written: {reason}.")


def _planned(workspace: Workspace, change: Change) -> FileChange:
    place = workspace.locate(change.path).path
    found = workspace.inspect(place)
    before = after = None
    if found is not None and change.pre is not None:
        before = FileState("file", found.mode, change.pre, found.size)
    if change.new is not None:
        mode = change.mode if change.mode is not None else before.mode if before is not None else _NEW_FILE
        after = FileState("file", mode, change.post or "", len(change.new))
    return change_of(encode_path(place), before, after, DiffStat())
