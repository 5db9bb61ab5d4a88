"""Tools beside the work itself: a question to a person, the end of a task, the plan (T-07); `delegate` and, for people,
`race`, which `treadle.library.subagents` carries out (L-22, L-23); and use_skill, with the content at the chat's start
(E-03)."""

import hashlib
import os
from pathlib import Path, PurePosixPath
from typing import Any

from treadle.adapters.tools.builtin.base import MAX_BYTES, WithContext, build_parameters, run_in_thread, truncate_utf8
from treadle.base.inert import make_inert, make_inert_line
from treadle.errors import ToolError
from treadle.ports.toolset import Invocation, Outcome, PlainTool, ReadOnlyTool, Settlement, Subagents
from treadle.protocol.content import JsonSchema, PlanStep
from treadle.protocol.events import PlanUpdated, TaskComplete
from treadle.protocol.options import Skill
from treadle.protocol.tools import DELEGATE_TOOL, RACE_TOOL, ShortForm, ToolSpec

ASK_USER = ToolSpec(
    name="ask_user",
    description=(
        "Ask the user one question and wait for the answer. Only for what you can neither find out nor decide "
        "yourself. Give options where the answer is a choice; the user may still answer freely."
    ),
    short=ShortForm("Ask the user a question that you cannot answer yourself.", ("question",), ("options",)),
    parameters=build_parameters(
        required=("question",),
        question={"type": "string", "minLength": 1, "description": "The question, complete in itself."},
        options={"type": "array", "items": {"type": "string"}, "maxItems": 10, "description": "Possible answers."},
    ),
    kind="question",
    read_only=True,
    summary_argument="question",
)


class CompleteTask(ReadOnlyTool):
    spec = ToolSpec(
        name="task_complete",
        description=(
            "Say that the whole task is done. Call it only when nothing is left to do: no open question, no "
            "unresolved error, no remaining step. Not together with other calls."
        ),
        short=ShortForm("Say that the whole task is done.", ("summary",)),
        needs="change",
        parameters=build_parameters(
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
        parameters=build_parameters(
            required=("steps",),
            steps={
                "type": "array",
                "maxItems": 50,
                "items": build_parameters(
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


MOST_TASKS = 16
_TASK: JsonSchema = build_parameters(
    required=("task",),
    task={"type": "string", "minLength": 1, "description": "All that it must know: it sees nothing of this chat."},
    title={"type": "string", "description": "A few words."},
    agent={"type": "string", "description": "The custom agent to work as."},
    read_only={"type": "boolean", "default": False, "description": "It only looks, and changes nothing."},
)


class _Begins(WithContext, PlainTool):
    """After a crash it is run again, and finds what it had begun."""

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        return await self._require_subagents().plan(invocation)

    async def settle(self, invocation: Invocation) -> Settlement:
        return "run_again"

    async def stop(self, invocation: Invocation) -> Outcome | None:
        return await self._require_subagents().stop(invocation)

    def _require_subagents(self) -> Subagents:
        if self._context.subagents is None:
            raise ToolError("This Treadle has no sub-agents.")
        return self._context.subagents()


class Delegate(_Begins):
    spec = ToolSpec(
        name=DELEGATE_TOOL,
        description=(
            "Give parts of the work to sub-agents, which do them at the same time, each in a copy of the project. You "
            "get their reports, and what they changed is in the project then. For parts that do not touch the same "
            "files, and for long searches whose answer is short."
        ),
        dispensable=True,
        parameters=build_parameters(
            required=("tasks",), tasks={"type": "array", "minItems": 1, "maxItems": MOST_TASKS, "items": _TASK}
        ),
        idempotent=True,
        parallel=True,
        effect="none",
        timeout_s=0.0,
    )

    async def run(self, invocation: Invocation) -> Outcome:
        return await self._require_subagents().delegate(invocation)


class RunRace(_Begins):
    spec = ToolSpec(
        name=RACE_TOOL,
        description="Let several attempts at a task run at once, and keep the best.",
        parameters=build_parameters(
            required=("task", "models"),
            task={"type": "string", "minLength": 1},
            models={"type": "array", "minItems": 1, "maxItems": MOST_TASKS, "items": {"type": "string"}},
            check={"type": "string"},
            judge={"type": "string"},
            all={"type": "boolean"},
        ),
        idempotent=True,
        effect="none",
        timeout_s=0.0,
        summary_argument="task",
    )

    async def run(self, invocation: Invocation) -> Outcome:
        if not invocation.by_person:
            raise ToolError("Only people begin races. Use delegate, or do it yourself.")
        return await self._require_subagents().race(invocation)


SKILL_TOOL = "use_skill"
_MOST_FILES = 50


class UseSkill(WithContext, ReadOnlyTool):
    spec = ToolSpec(
        name=SKILL_TOOL,
        description=(
            "Get the instructions of a skill by its name, before you do what it is for. With file you get another file "
            "of the skill's folder, as its instructions name it."
        ),
        parameters=build_parameters(required=("name",), name={"type": "string"}, file={"type": "string"}),
        read_only=True,
        idempotent=True,
        summary_argument="name",
    )

    async def run(self, invocation: Invocation) -> Outcome:
        skills_by_name = {skill.name: skill for skill in invocation.options.skills}
        name = str(invocation.arguments["name"])
        if name not in skills_by_name:
            names = ", ".join(skills_by_name) or "none"
            raise ToolError(f"There is no skill {make_inert_line(name, 80)!r}; there is: {names}.")
        file_name = str(invocation.arguments.get("file") or "")
        text = await run_in_thread(self._read, invocation, skills_by_name[name], file_name)
        return Outcome(truncate_utf8(text), summary=file_name or "instructions")

    def _read(self, invocation: Invocation, skill: Skill, file_name: str) -> str:
        if os.path.isabs(skill.path):
            return _read_user_skill(Path(skill.path), skill, file_name)
        workspace = self._context.workspace_of(*invocation.project)
        folder = str(PurePosixPath(skill.path).parent)
        data = workspace.read_bytes(skill.path, MAX_BYTES * 8)
        _require_unchanged(skill, data)
        if file_name:
            path = os.path.normpath(f"{folder}/{file_name}")
            if not path.startswith(f"{folder}/"):
                raise ToolError(
                    f"{make_inert_line(file_name, 200)} lies outside the skill's folder; read it with read_file."
                )
            return make_inert(workspace.read_bytes(path, MAX_BYTES * 8).decode(errors="replace"))
        names = [child.name for child in workspace.listdir(folder)]
        return _format_instructions(
            data, skill, f"It lies in {folder} of the project; run its scripts from there.", names
        )


def _read_user_skill(path: Path, skill: Skill, file_name: str) -> str:
    folder = path.parent.resolve()
    try:
        data = path.read_bytes()
        _require_unchanged(skill, data)
        if not file_name:
            names = sorted(child.name for child in folder.iterdir())
            place = f"It lies in {folder}, outside the project: commands see it only if the user lets them."
            return _format_instructions(data, skill, place, names)
        file_path = (folder / file_name).resolve()
        if not file_path.is_relative_to(folder) or not file_path.is_file() or file_path.stat().st_size > MAX_BYTES * 8:
            raise ToolError(f"There is no file {make_inert_line(file_name, 200)} in the skill {skill.name}.")
        return make_inert(file_path.read_bytes().decode(errors="replace"))
    except OSError as error:
        raise ToolError(f"The skill {skill.name} cannot be read: {error.strerror or error}.") from error


def _require_unchanged(skill: Skill, data: bytes) -> None:
    if hashlib.sha256(data).hexdigest() != skill.sha256:
        raise ToolError(
            f"The skill {skill.name} has changed since this chat began, so it is not used; it counts in a new chat, "
            "once the user has trusted it."
        )


def _format_instructions(data: bytes, skill: Skill, place: str, names: list[str]) -> str:
    text = data.decode(errors="replace")
    other_files = ", ".join(make_inert_line(name, 80) for name in names[:_MOST_FILES] if name != "SKILL.md")
    file_list = f" Other files: {other_files}." if other_files else ""
    return f"{make_inert(text).strip()}\n\n[The skill {skill.name}. {place}{file_list}]"
