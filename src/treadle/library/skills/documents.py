"""The skills, own commands and custom agents that there are for a project, in the order in which they count."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.library.skills.places import (
    OF_USER,
    Document,
    Kind,
    Trusted,
    read_folder_documents,
    read_project_documents,
)
from treadle.protocol.options import Project, Skill

if TYPE_CHECKING:
    from treadle.library.skills.reading import CustomAgent, OwnCommand


class Documents:
    """Those of a user and of the projects that they trust. `more`: folders of plugins."""

    def __init__(self, home: Path, env: Mapping[str, str], trusted: Trusted, more: Sequence[str] = ()) -> None:
        user_folders = (Path(env["HOME"], each) for each in OF_USER if env.get("HOME"))
        self._folders = (home, *user_folders, *map(Path, more))
        self._trusted = trusted

    def read_all(self, kind: Kind, project: Project, *, include_own: bool = True) -> list[Document]:
        """All of a kind, trusted or not. The user's own come first: of several with one name the first counts."""
        documents: list[Document] = []
        if include_own:
            documents = [each for folder in self._folders for each in read_folder_documents(kind, folder / kind)]
        return documents + (list(read_project_documents(kind, project, self._trusted)) if project.root else [])

    def read_skills(self, project: Project, *, include_own: bool = True) -> tuple[Skill, ...]:
        documents = self.read_all("skills", project, include_own=include_own)
        if not documents:  # most projects have none, and nothing is to be loaded for them
            return ()
        from treadle.library.skills.reading import parse_skills

        return parse_skills(documents)

    def read_commands(self, project: Project, *, include_own: bool = True) -> "dict[str, OwnCommand]":
        from treadle.library.skills.reading import parse_commands

        return parse_commands(self.read_all("commands", project, include_own=include_own))

    def read_agents(self, project: Project, *, include_own: bool = True) -> "dict[str, CustomAgent]":
        from treadle.library.skills.reading import parse_agents

        return parse_agents(self.read_all("agents", project, include_own=include_own))
