"""Events, actions and changes as another agent reads them: short, in words, without anything that is not shown to
people."""

from typing import Any

from treadle.lines.hunks import Shown
from treadle.protocol import events as e

_LONGEST = 4_000


def told(event: e.Event) -> str:
    """One line about an event; empty for those that nobody needs to follow a task."""
    match event:
        case e.AssistantMessage(content=text) if text:
            return f"said: {_cut(text)}"
        case e.ExecutionStart(name=name, args_summary=about):
            return f"calls {name} {about}".rstrip()
        case e.ExecutionComplete(success=success, result_summary=summary):
            return f"{'done' if success else 'failed'}: {summary}"
        case e.FilesChanged(files=files):
            return "changed " + ", ".join(f"{file.path} (+{file.added} -{file.removed})" for file in files[:20])
        case e.PermissionRequested(reason=reason, shown=shown):
            return f"asks for approval ({reason}): {_cut(shown, 500)}"
        case e.UserInputRequested(question=question):
            return f"asks: {_cut(question)}"
        case e.TaskComplete(summary=summary):
            return f"complete: {_cut(summary)}"
        case e.SessionError(error_class=kind, message=message):
            return f"error ({kind}): {_cut(message)}"
        case e.RunEnd(reason=reason, why=why):
            return f"ended: {reason}" + (f" ({why})" if why else "")
        case e.ModelNotice(text=text) | e.SandboxNotice(text=text) | e.GuardNotice(text=text):
            return f"notice: {_cut(text)}"
        case _:
            return ""


def action_of(action: e.OpenAction) -> dict[str, Any]:
    """What a task waits for, with all that an answer needs."""
    shown = {"action": action.action, "kind": action.kind, "text": action.text, "options": list(action.options)}
    if action.kind == "permission":
        return {**shown, "tool": action.name, "reason": action.reason, "severity": action.severity, "hash": action.hash}
    return shown


def change_of(shown: Shown) -> dict[str, Any]:
    change = shown.change
    return {
        "path": change.path,
        "action": change.action,
        "added": change.added,
        "removed": change.removed,
        "diff": "\n".join(line for hunk in shown.hunks for line in (hunk.header, *hunk.lines)),
        "notes": list(shown.notes),
    }


def _cut(text: str, most: int = _LONGEST) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
