"""A connection to a chat that is only a log: for what is drawn, without anything that runs."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from msgspec import structs

from treadle.base.types import CallKey, ChatId
from treadle.diff.diff import FileDiff
from treadle.frontends.tui.connection import ChatRow, JobRow, ModelRow
from treadle.library.model_choice import ModelChoice
from treadle.protocol import events as e
from treadle.protocol.content import PlanStep, Thinking, ToolRequest, Usage
from treadle.protocol.files import FileChange, Hunk
from treadle.protocol.options import ChatOptions

CHAT = ChatId("c_1")


class Recorded:
    """Connection, link and chat in one: it can be opened and followed, and nothing else."""

    id = "c_1"
    place = "a test"
    stays = True
    away = False
    initial = ChatOptions(model="m:x")

    def __init__(self, log: Sequence[e.Event]) -> None:
        self._log = [e.Envelope(number, CHAT, 0, event) for number, event in enumerate(log, 1)]

    @property
    def chat(self) -> "Recorded":
        """The chat of the link."""
        return self

    async def open(self, id: str) -> "Recorded":
        return self

    async def stream_events(self, after_seq: int = 0) -> AsyncIterator[Sequence[e.Envelope]]:
        for start in range(0, len(self._log), 1_000):
            yield self._log[start : start + 1_000]

    async def list_chat_rows(self, *_query: Any, **_more: Any) -> list[Any]:
        return []

    async def list_job_rows(self) -> list[Any]:
        return []

    async def list_file_diffs(self, **_more: Any) -> list[Any]:
        return []

    async def list_resource_names(self, _root: str, _chat: str = "") -> Sequence[str]:
        return ()

    async def list_own_commands(self, _root: str, _chat: str = "") -> dict[str, Any]:
        return {}

    async def list_model_rows(self) -> list[ModelRow]:
        return [
            ModelRow("m:x", 128_000),
            ModelRow("m:large", 1_000_000),
            ModelRow("n:y", 8_000, "no key: set N_API_KEY"),
        ]

    takes_keys = True

    async def find_default_model(self) -> ModelChoice | None:
        return ModelChoice("m:x", "")


class Unused(Recorded):
    """A new installation: no model is chosen yet."""

    initial = ChatOptions()

    async def find_default_model(self) -> ModelChoice | None:
        return None


class Worked(Recorded):
    """A chat beside others, with jobs and changes. Times in the future are shown as now, on any clock."""

    async def list_chat_rows(self, *_query: Any, **_more: Any) -> list[Any]:
        row = ChatRow("c_1", "Fix the bug in a.py", "idle", "/home/me/project", "openai:gpt-4.1", 1 << 52)
        return [
            row,
            structs.replace(row, id="c_2", title="Write the tests", status="requires_action"),
            structs.replace(row, id="c_3", title="Read the log", status="pending", root="/home/me/other"),
        ]

    async def list_job_rows(self) -> list[Any]:
        return [
            JobRow("2.0", "make serve", "running", 1 << 52, "listening on 8000"),
            JobRow("2.1", "make", "exited", 0),
        ]

    async def list_file_diffs(self, **_more: Any) -> list[Any]:
        hunks = (
            Hunk(1, "@@ -1,2 +1,2 @@", ("-a = 1", "+a = 2", " b = 3"), 1, 1),
            Hunk(2, "@@ -40,1 +40,2 @@", (" return a", "+    # mended"), 1, 0),
        )
        return [FileDiff(FileChange("a.py", "modified", 2, 1), hunks), FileDiff(FileChange("new.py", "created", 1, 0))]

    async def preview_back(self, seq: int) -> list[str]:
        return ["a.py", "new.py, which goes"]


def long_log(events: int) -> list[e.Event]:
    log: list[e.Event] = [e.SessionCreated(ChatOptions(model="m:x", root="/p"))]
    turn = 0
    while len(log) < events:
        log.append(e.UserMessage(f"Do thing {len(log)}"))
        for _ in range(6):
            turn += 1
            log += _turn(turn)
        log += [e.AssistantMessage(turn, f"the last words of {turn}"), e.RunEnd("done")]
    return log


def _turn(turn: int) -> list[e.Event]:
    read, edit = CallKey(f"{turn}.0"), CallKey(f"{turn}.1")
    diff = "edited a.py\n@@ -1,2 +1,2 @@\n-a = 1\n+a = 2\n b = 3"
    requests = (ToolRequest(read, "read_file", '{"path":"a.py"}'), ToolRequest(edit, "edit_file", '{"path":"a.py"}'))
    return [
        e.TurnStart(turn, "m:x"),
        e.AssistantMessage(turn, f"Some **text** of turn {turn}.\n\n```python\nx = {turn}\n```", (), requests),
        e.ExecutionStart(read, "read_file", args_summary="a.py", effect="read"),
        e.ExecutionComplete(read, True, "x\n" * 50, result_summary="50 lines"),
        e.ExecutionStart(edit, "edit_file", args_summary="a.py", effect="edit"),
        e.ExecutionComplete(edit, True, diff, diff_stat=e.DiffStat(1, 1)),
        e.TurnEnd(turn, Usage(100, 10)),
    ]


def short_log() -> list[e.Event]:
    """A little of everything, to its end."""
    failed = CallKey("2.0")
    plan = (PlanStep("read the code", "done"), PlanStep("mend it", "in_progress"), PlanStep("run the tests", "pending"))
    return [
        e.SessionCreated(ChatOptions(model="openai:gpt-4.1", root="/home/me/project", mode="ask")),
        e.UserMessage("Please fix the bug in a.py."),
        *_turn(1)[:1],
        e.AssistantMessage(1, "", (Thinking("Let me think."),)),
        *_turn(1)[1:],
        e.PlanUpdated(plan),
        e.TurnStart(2, "openai:gpt-4.1"),
        e.AssistantMessage(2, "", (), (ToolRequest(failed, "run_command", '{"command":"make test"}'),)),
        e.ExecutionStart(failed, "run_command", args_summary="make test"),
        e.ExecutionComplete(failed, False, "one failed\n[exit 2]", result_summary="exit 2"),
        e.TurnRetry(2, 1, "overloaded", "the server is busy", 2.0),
        e.AssistantMessage(2, "It is **mended**:\n\n| test | result |\n|---|---|\n| mean | passes |\n"),
        e.TurnEnd(2, Usage(1_200, 80, usd=0.0123)),
    ]


def ended_log() -> list[e.Event]:
    return [*short_log(), e.FilesChanged((e.FileChange("a.py", "modified", 1, 1),)), e.RunEnd("done")]


def asking_log() -> list[e.Event]:
    call = CallKey("3.0")
    return [
        *short_log(),
        e.TurnStart(3, "openai:gpt-4.1"),
        e.AssistantMessage(3, "", (), (ToolRequest(call, "run_command", '{"command":"rm -r build"}'),)),
        e.PermissionRequested("3.0", call, "high", "it removes files", "run_command\n  command: rm -r build", "h"),
    ]


def question_log() -> list[e.Event]:
    call = CallKey("3.0")
    return [
        *short_log(),
        e.TurnStart(3, "openai:gpt-4.1"),
        e.AssistantMessage(3, "", (), (ToolRequest(call, "ask_user", '{"question":"Which one?"}'),)),
        e.UserInputRequested("3.0", "Which one is meant?", ("the red one", "the blue one"), call=call),
    ]
