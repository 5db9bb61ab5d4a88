"""use_skill: the instructions of a skill, when they are needed (E-03). Only the content at the beginning of the chat is
read: a file that has changed since is refused, because its new content may not be trusted (S-09)."""

import hashlib
import os
from pathlib import Path, PurePosixPath

from treadle.adapters.tools.builtin.base import MAX_BYTES, in_thread, parameters, truncate_utf8
from treadle.adapters.tools.builtin.context import WithContext
from treadle.base.inert import inert, inert_line
from treadle.errors import ToolError
from treadle.ports.toolset import Invocation, Outcome, ReadOnlyTool
from treadle.protocol.options import Skill
from treadle.protocol.tools import ToolSpec

SKILL_TOOL = "use_skill"
_MOST_FILES = 50


class UseSkill(WithContext, ReadOnlyTool):
    spec = ToolSpec(
        name=SKILL_TOOL,
        description=(
            "Get the instructions of a skill by its name, before you do what it is for. With file you get another file "
            "of the skill's folder, as its instructions name it."
        ),
        parameters=parameters(required=("name",), name={"type": "string"}, file={"type": "string"}),
        read_only=True,
        idempotent=True,
        summary_argument="name",
    )

    async def run(self, invocation: Invocation) -> Outcome:
        skills_by_name = {skill.name: skill for skill in invocation.options.skills}
        name = str(invocation.arguments["name"])
        if name not in skills_by_name:
            names = ", ".join(skills_by_name) or "none"
            raise ToolError(f"There is no skill {inert_line(name, 80)!r}; there is: {names}.")
        file_name = str(invocation.arguments.get("file") or "")
        text = await in_thread(self._read, invocation, skills_by_name[name], file_name)
        return Outcome(truncate_utf8(text, MAX_BYTES), summary=file_name or "instructions")

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
                    f"{inert_line(file_name, 200)} lies outside the skill's folder; read it with read_file."
                )
            return inert(workspace.read_bytes(path, MAX_BYTES * 8).decode(errors="replace"))
        names = [child.name for child in workspace.listdir(folder)]
        return _instructions(data, skill, f"It lies in {folder} of the project; run its scripts from there.", names)


def _read_user_skill(path: Path, skill: Skill, file_name: str) -> str:
    """A skill of the user's, which lies outside the project."""
    folder = path.parent.resolve()
    try:
        data = path.read_bytes()
        _require_unchanged(skill, data)
        if not file_name:
            names = sorted(child.name for child in folder.iterdir())
            place = f"It lies in {folder}, outside the project: commands see it only if the user lets them."
            return _instructions(data, skill, place, names)
        file_path = (folder / file_name).resolve()
        if not file_path.is_relative_to(folder) or not file_path.is_file() or file_path.stat().st_size > MAX_BYTES * 8:
            raise ToolError(f"There is no file {inert_line(file_name, 200)} in the skill {skill.name}.")
        return inert(file_path.read_bytes().decode(errors="replace"))
    except OSError as error:
        raise ToolError(f"The skill {skill.name} cannot be read: {error.strerror or error}.") from error


def _require_unchanged(skill: Skill, data: bytes) -> None:
    if hashlib.sha256(data).hexdigest() != skill.sha256:
        raise ToolError(
            f"The skill {skill.name} has changed since this chat began, so it is not used; it counts in a new chat, "
            "once the user has trusted it."
        )


def _instructions(data: bytes, skill: Skill, place: str, names: list[str]) -> str:
    text = data.decode(errors="replace")
    other_files = ", ".join(inert_line(name, 80) for name in names[:_MOST_FILES] if name != "SKILL.md")
    file_list = f" Other files: {other_files}." if other_files else ""
    return f"{inert(text).strip()}\n\n[The skill {skill.name}. {place}{file_list}]"
