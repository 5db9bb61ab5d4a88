"""Tools that talk about the work instead of doing it: the end of a task, the plan, and a question to a person
(T-07). They leave facts in the log and touch nothing else."""

from typing import Any

from treadle.adapters.tools.builtin.base import parameters
from treadle.ports.toolset import Invocation, Outcome, ReadOnlyTool
from treadle.protocol.content import PlanStep
from treadle.protocol.events import PlanUpdated, TaskComplete
from treadle.protocol.tools import ShortForm, ToolSpec

ASK_USER = ToolSpec(
    name="ask_user",
    description=(
        "Ask the user one question and wait for the answer. Only for what you can neither find out nor decide "
        "yourself. Give options where the answer is a choice; the user may still answer freely."
    ),
    short=ShortForm("Ask the user a question that you cannot answer yourself.", ("question",), ("options",)),
    parameters=parameters(
        required=("question",),
        question={"type": "string", "minLength": 1, "description": "The question, complete in itself."},
        options={"type": "array", "items": {"type": "string"}, "maxItems": 10, "description": "Possible answers."},
    ),
    kind="question",
    read_only=True,
    summary_argument="question",
)


class CompleteTask(ReadOnlyTool):
    """Says that the work is done (L-13)."""

    spec = ToolSpec(
        name="task_complete",
        description=(
            "Say that the whole task is done. Call it only when nothing is left to do: no open question, no "
            "unresolved error, no remaining step. Not together with other calls."
        ),
        short=ShortForm("Say that the whole task is done.", ("summary",)),
        needs="change",
        parameters=parameters(
            required=("summary",),
            summary={"type": "string", "description": "What was done, in one to three sentences."},
        ),
        read_only=True,
        idempotent=True,
        summary_argument="summary",
    )

    async def run(self, invocation: Invocation) -> Outcome:
        summary = str(invocation.arguments["summary"])
        return Outcome("The task is recorded as complete.", summary="task complete", facts=(TaskComplete(summary),))


class UpdatePlan(ReadOnlyTool):
    spec = ToolSpec(
        name="update_plan",
        description=(
            "Show the user your plan, or update it: the whole list of steps each time, replacing the last one. "
            "At most one step is in_progress. For work of several steps only."
        ),
        dispensable=True,
        parameters=parameters(
            required=("steps",),
            steps={
                "type": "array",
                "maxItems": 50,
                "items": parameters(
                    required=("text", "status"),
                    text={"type": "string", "minLength": 1},
                    status={"type": "string", "enum": ["pending", "in_progress", "done"]},
                ),
            },
        ),
        read_only=True,
        idempotent=True,
    )

    async def run(self, invocation: Invocation) -> Outcome:
        raw_steps: list[dict[str, Any]] = invocation.arguments["steps"]
        steps = tuple(PlanStep(str(step["text"]), str(step["status"])) for step in raw_steps)
        done_count = sum(step.status == "done" for step in steps)
        words = f"{done_count} of {len(steps)} steps done"
        return Outcome(f"The plan is updated: {words}.", summary=words, facts=(PlanUpdated(steps),))
