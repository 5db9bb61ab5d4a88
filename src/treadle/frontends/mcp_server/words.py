"""Events, actions and changes as another agent reads them: short, in words, without anything that is not shown to
people."""

from typing import Any

from treadle.diff.hunks import FileDiff
from treadle.protocol import events as e

_LONGEST = 4_000


def describe_event(event: e.Event) -> str:
    """Describe an event in one line. Empty for events that a follower of a task does not need."""
    match event:
        case e.AssistantMessage(content=text) if text:
            return f"said: {_truncate_text(text)}"
        case e.ExecutionStart(name=name, args_summary=about):
            return f"calls {name} {about}".rstrip()
        case e.ExecutionComplete(success=success, result_summary=summary):
            return f"{'done' if success else 'failed'}: {summary}"
        case e.FilesChanged(files=files):
            return "changed " + ", ".join(f"{file.path} (+{file.added} -{file.removed})" for file in files[:20])
        case e.PermissionRequested(reason=reason, shown=shown):
            return f"asks for approval ({reason}): {_truncate_text(shown, 500)}"
        case e.UserInputRequested(question=question):
            return f"asks: {_truncate_text(question)}"
        case e.TaskComplete(summary=summary):
            return f"complete: {_truncate_text(summary)}"
        case e.SessionError(error_class=kind, message=message):
            return f"error ({kind}): {_truncate_text(message)}"
        case e.RunEnd(reason=reason, why=why):
            return f"ended: {reason}" + (f" ({why})" if why else "")
        case e.ModelNotice(text=text) | e.SandboxNotice(text=text) | e.GuardNotice(text=text):
            return f"notice: {_truncate_text(text)}"
        case _:
            return ""


def action_of(action: e.OpenAction) -> dict[str, Any]:
    """Return an open action of a task, with the fields that an answer needs."""
    fields = {"action": action.action, "kind": action.kind, "text": action.text, "options": list(action.options)}
    if action.kind == "permission":
        return {
            **fields,
            "tool": action.name,
            "reason": action.reason,
            "severity": action.severity,
            "hash": action.hash,
        }
    return fields


def change_of(file_diff: FileDiff) -> dict[str, Any]:
    change = file_diff.change
    return {
        "path": change.path,
        "action": change.action,
        "added": change.added,
        "removed": change.removed,
        "diff": "\n".join(line for hunk in file_diff.hunks for line in (hunk.header, *hunk.lines)),
        "notes": list(file_diff.notes),
    }


def _truncate_text(text: str, most: int = _LONGEST) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
