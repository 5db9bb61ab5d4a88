"""Shared by the scenarios of sub-agents and races: a model that plays another script for every task, from the
conversation alone, so that any number of chats and processes may use it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from treadle.adapters.models.scripted import ScriptedModel, Step
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.content import UserEntry
from treadle.protocol.deltas import Delta


class ByTask:
    """Plays the script whose key is the longest beginning of the first user message."""

    def __init__(self, scripts: Mapping[str, Sequence[Step]], info: ModelInfo | None = None) -> None:
        self._scripts = {prompt: ScriptedModel(steps, info=info) for prompt, steps in scripts.items()}
        self.info = info or ModelInfo("scripted", "family")

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        prompt = next(entry.text for entry in request.entries if isinstance(entry, UserEntry))
        script = max((each for each in self._scripts if prompt.startswith(each)), key=len)
        async for deltas in self._scripts[script].stream(request):
            yield deltas

    async def close(self) -> None:
        """Nothing is open."""


def project(folder: Path) -> Path:
    project_folder = folder / "project"
    project_folder.mkdir()
    for name in ("a.txt", "b.txt", "c.txt"):
        (project_folder / name).write_text(f"{name}\n")
    return project_folder
