"""The state table of a chat, computed from the rules and written into ARCHITECTURE.md: for every status and every
command, what is recorded and what the status is afterwards, or the code of the refusal.

    python -m scripts.state_table            # write it
    python -m scripts.state_table --check    # fail if it is out of date
"""

import sys
from pathlib import Path

from treadle.base.types import ChatId, make_call_key
from treadle.chat.fold import fold
from treadle.chat.state import ChatState, compute_status, list_open_actions
from treadle.chat.transitions import transition
from treadle.errors import InvalidInput, Refused
from treadle.protocol import commands as c
from treadle.protocol import events as e
from treadle.protocol.content import ToolRequest, Usage
from treadle.protocol.options import ChatOptions

DOCUMENT = Path(__file__).parents[1] / "ARCHITECTURE.md"
BEGIN, END = "<!-- state table: begin -->", "<!-- state table: end -->"
CHAT = ChatId("c_table")
LATE_MS = 10**12

SHORT = {
    "user.message": "message",
    "assistant.turn_start": "start",
    "assistant.message": "call",
    "queue.changed": "queue",
    "tool.execution_complete": "result",
    "permission.completed": "permission",
    "external_tool.completed": "client",
    "user_input.completed": "answer",
    "assistant.turn_end": "turn",
    "session.interrupted": "stop",
    "session.run_end": "end",
    "session.limit_extended": "extend",
    "session.options_changed": "options",
    "session.title_changed": "title",
    "session.model_call": "model call",
    "session.compaction_start": "compact",
    "workspace.restore_requested": "restore",
    "session.rewound": "rewind",
    "job.ended": "job",
}
"""The events of the table in one word each; the legend under it is made from this."""


def grow(state: ChatState, *events: e.Event) -> ChatState:
    for event in events:
        state = fold(state, e.Envelope(state.head + 1, CHAT, 1_000, event))
    return state


def situations() -> dict[str, ChatState]:
    """A chat in every status; `requires_action` for each of its three reasons. One message waits in each queue."""
    key = make_call_key(1, 0)
    begun = grow(ChatState(chat=CHAT), e.SessionCreated(ChatOptions(interactive=True)), e.UserMessage("go"))
    begun = grow(begun, e.JobStarted("1.0", "make serve"))
    queued = grow(begun, e.QueueChanged("added", "q1", "next"))
    running = grow(queued, e.TurnStart(1))
    asked = e.AssistantMessage(1, tool_requests=(ToolRequest(key, "tool"),), usage=Usage())
    called = grow(running, asked)
    done = (e.ExecutionComplete(key, True, "ok"), e.TurnEnd(1))
    failed = grow(called, *done, e.SessionError("network"), e.RunEnd("error"))
    half = e.AssistantMessage(1, "Hm", partial=True, usage=Usage())
    stopped = grow(running, half, e.TurnEnd(1), e.Interrupted(), e.RunEnd("interrupted"))
    started = grow(called, e.ExecutionStart(key, "tool"))
    return {
        "idle": stopped,
        "pending": queued,
        "running": running,
        "interrupting": grow(running, e.Interrupted()),
        "approval": grow(called, e.PermissionRequested("a1", key, hash="h")),
        "client tool": grow(started, e.ExternalToolRequested(key, "tool", {}, key, deadline_s=300)),
        "question": grow(started, e.UserInputRequested("a1", "Which?", call=key)),
        "error": failed,
        "archived": grow(stopped, e.OptionsChanged({"archived": True})),
    }


def commands(state: ChatState) -> dict[str, c.Command]:
    """Every command, as well-formed as the state allows."""
    key = make_call_key(1, 0)
    action = next((each.action for each in list_open_actions(state)), "a1")
    return {
        "Send": c.Send("more", queue_id="q2"),
        "Send, steering": c.Send("more", "steering", queue_id="q2"),
        "SubmitResults": c.SubmitResults((c.Result(key, "ok"),)),
        "Decide, allow": c.Decide(action, "allow", "h"),
        "Decide, deny": c.Decide(action, "deny", "h"),
        "Answer": c.Answer(action, "this"),
        "Interrupt": c.Interrupt(),
        "Edit": c.Edit(2, "better"),
        "Edit, files too": c.Edit(2, "better", True, "u1"),
        "Rewind": c.Rewind(2, restore="u1"),
        "Restore": c.Restore("u1"),
        "EditQueued": c.EditQueued("q1", "better"),
        "DeleteQueued": c.DeleteQueued("q1"),
        "Promote": c.Promote("q1"),
        "ExtendTurns": c.ExtendTurns(),
        "ChangeOptions": c.ChangeOptions({"max_turns": 5}),
        "ChangeOptions, archive": c.ChangeOptions({"archived": not state.options.archived}),
        "Rename": c.Rename("title"),
        "RecordTitle": c.RecordTitle("title", state.title),
        "Compact": c.Compact(),
        "Apply": c.Apply("notes.txt", "text"),
        "CloseJob": c.CloseJob("1.0", "exited"),
        "Expire, late": c.Expire(LATE_MS),
    }


def outcome(state: ChatState, command: c.Command) -> str:
    try:
        events = transition(state, command)
    except Refused as refusal:
        return f"*{refusal.reason}*"
    except InvalidInput:
        return "*invalid*"
    if not events:
        return "nothing"
    words = " ".join(SHORT[event.TYPE] for event in events)
    old_status, new_status = show_status(state), show_status(grow(state, *events))
    return words if old_status == new_status else f"{words} → {new_status}"


def show_status(state: ChatState) -> str:
    return "archived" if state.options.archived else compute_status(state)


def table() -> dict[str, dict[str, str]]:
    """By command, then by status."""
    found: dict[str, dict[str, str]] = {}
    for name, state in situations().items():
        for command, value in commands(state).items():
            found.setdefault(command, {})[name] = outcome(state, value)
    return found


def markdown() -> str:
    columns = list(situations())
    lines = ["| command | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {name} | " + " | ".join(row[column] for column in columns) + " |" for name, row in table().items()]
    legend = " · ".join(f"{short} `{kind}`" for kind, short in SHORT.items())
    same = "Without an arrow the status stays as it is; `nothing` means that it is so already; *slanted* is a refusal."
    return "\n".join([*lines, "", same, f"Words of the table: {legend}."])


def update_table(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{markdown()}\n{END}{after}"


def main(arguments: list[str]) -> int:
    text = DOCUMENT.read_text(encoding="utf-8")
    new = update_table(text)
    if "--check" in arguments:
        return 0 if new == text else 1
    DOCUMENT.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
