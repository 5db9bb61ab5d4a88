"""Removes secrets from events before they are recorded (S-11): the one place through which everything goes into the
log, and so to models, files and screens. This module knows which texts of an event may contain a secret; another one
defines secrets.

The arguments of calls stay as they are: they are the input of a tool, and a model that has never seen a secret cannot
have put one there.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from treadle.errors import InvalidInput
from treadle.protocol import events as e
from treadle.protocol.commands import Apply, Command
from treadle.protocol.events import Event

Redact = Callable[[str], str]

TEXTS: dict[type[Event], tuple[str, ...]] = {
    e.UserMessage: ("content",),
    e.QueueChanged: ("content",),
    e.AssistantMessage: ("content",),
    e.TaskComplete: ("summary",),
    e.SessionError: ("message",),
    e.TurnRetry: ("message",),
    e.ModelCall: ("text", "error"),
    e.CompactionComplete: ("summary", "error"),
    e.ExecutionComplete: ("result", "error", "result_summary"),
    e.CheckCompleted: ("result", "result_summary"),
    e.PermissionRequested: ("shown",),
    e.PermissionCompleted: ("feedback",),
    e.UserInputRequested: ("question",),
    e.UserInputCompleted: ("answer",),
    e.TitleChanged: ("title",),
    e.SubagentCompleted: ("title",),
    e.ModelNotice: ("text",),
    e.SandboxNotice: ("text",),
    e.GuardNotice: ("text",),
    e.JobStarted: ("command",),
    e.Undone: ("error",),
    e.Redone: ("error",),
    e.ChangesKept: ("error",),
    e.WorkspaceConflict: (),
    e.SessionCreated: (),
}


def refuse_secrets(command: Command, redact: Redact) -> None:
    """A person's own text goes to the letter into the arguments of a call, and with them into the log: one with a
    secret is not taken."""
    text = None
    if isinstance(command, Apply):
        text = command.race.task if command.race else command.command or command.patch or command.content
    if text is not None and redact(text) != text:
        raise InvalidInput("The content holds a secret, which would stand in the log; write that file yourself.")


def without_secrets(event: Event, redact: Redact) -> Event:
    """The event as it may be recorded; the same object where there is nothing to take out."""
    names = TEXTS.get(type(event))
    if names is None or redact is str:
        return event
    changes: dict[str, Any] = {}
    for name in names:
        text = getattr(event, name)
        if text and (redacted := redact(text)) is not text and redacted != text:
            changes[name] = redacted
    if isinstance(event, (e.Restored, e.WorkspaceConflict)) and event.conflicts:
        changes["conflicts"] = tuple(
            replace(each, reason=redact(each.reason), diff=redact(each.diff)) for each in event.conflicts
        )
    if isinstance(event, e.SessionCreated):
        options = event.options
        kept_options = replace(
            options,
            system_prompt=redact(options.system_prompt),
            instructions=redact(options.instructions),
            agent_prompt=redact(options.agent_prompt),
        )
        if kept_options != options:
            changes["options"] = kept_options
    return replace(event, **changes) if changes else event
