"""Skills, commands and custom agents, read from their files. An unusable file is skipped: a file of another tool must
not be an error."""

import re
from collections.abc import Iterable, Mapping

import msgspec

from treadle.adapters.tools.registry import ALIASES
from treadle.base.inert import inert, inert_line
from treadle.library.skills.front_matter import line, split, words
from treadle.library.skills.places import Document
from treadle.protocol.options import EFFORTS, Skill

MOST_SKILLS = 50
_NAME = re.compile(r"[\w][\w.:-]{0,63}")
_DESCRIPTION = 1_024
_ARGUMENT = re.compile(r"\$(ARGUMENTS\b|[1-9]\d{0,2})|\{\{args\}\}")
_WORD = re.compile(r"\"([^\"]*)\"(?!\S)|'([^']*)'(?!\S)|(\S+)")
"""Quotes group words only around a whole word: an apostrophe inside a word and a backslash are plain characters."""
_TOOLS: Mapping[str, str] = {
    **{name: ALIASES[name] for name in ("bash", "edit", "glob", "grep", "ls", "read", "search")},
    "multiedit": "edit_file",
    "todowrite": "update_plan",
    "write": "write_file",
    "execute": "run_command",
}
"""Names of tools in files that were written for other agents, in small letters."""
_EFFORT_KEYS = ("reasoning_effort", "reasoning-effort", "reasoningEffort", "effort")


class OwnCommand(msgspec.Struct, frozen=True):
    """A prompt under a name: `/name words` says its text, with the words in it."""

    name: str
    description: str
    text: str
    hint: str = ""

    def expand(self, argument_text: str) -> str:
        """The text with `$ARGUMENTS` (all words) and `$1`, `$2`, … (one each). Words that the text does not ask for
        follow it."""
        arguments = ["".join(match.groups("")) for match in _WORD.finditer(argument_text)]

        def replace_reference(match: re.Match[str]) -> str:
            if match[1] in (None, "ARGUMENTS"):
                return argument_text
            return "".join(arguments[int(match[1]) - 1 : int(match[1])])

        expanded, references = _ARGUMENT.subn(replace_reference, self.text)
        return expanded if references or not argument_text else f"{expanded}\n\n{argument_text}"


class CustomAgent(msgspec.Struct, frozen=True):
    """A custom agent: its name, its prompt, and the tools and the model that it has."""

    name: str
    description: str
    prompt: str
    tools: tuple[str, ...] | None = None
    model: str = ""
    reasoning_effort: str = ""

    def changes(self) -> dict[str, object]:
        """The options of a chat that works this way."""
        options: dict[str, object] = {"agent": self.name, "agent_prompt": self.prompt}
        if self.tools is not None:
            options["tools"] = self.tools
        if self.model:
            options["model"] = self.model
        if self.reasoning_effort:
            options["reasoning_effort"] = self.reasoning_effort
        return options


def skills(documents: Iterable[Document]) -> tuple[Skill, ...]:
    by_name: dict[str, Skill] = {}
    for document in _counting(documents):
        head, _ = split(document.text)
        name = line(head.get("name")) or document.name
        about = inert_line(line(head.get("description")), _DESCRIPTION)
        if _NAME.fullmatch(name) and about and name not in by_name:
            by_name[name] = Skill(name, about, document.path, document.sha256)
    return tuple(by_name.values())[:MOST_SKILLS]


def commands(documents: Iterable[Document]) -> dict[str, OwnCommand]:
    by_name: dict[str, OwnCommand] = {}
    for document in _counting(documents):
        head, body = split(document.text)
        if _NAME.fullmatch(document.name) and body.strip():
            about = line(head.get("description")) or body.strip().partition("\n")[0]
            hint = inert_line(line(head.get("argument-hint")), 80)
            by_name.setdefault(
                document.name, OwnCommand(document.name, inert_line(about, 200), inert(body.strip()), hint)
            )
    return by_name


def custom_agents(documents: Iterable[Document]) -> dict[str, CustomAgent]:
    by_name: dict[str, CustomAgent] = {}
    for document in _counting(documents):
        head, body = split(document.text)
        name = line(head.get("name")) or document.name.removesuffix(".agent")
        if _NAME.fullmatch(name) and body.strip() and name not in by_name:
            about = inert_line(line(head.get("description")), 300)
            model = line(head.get("model"))
            tools = _tools(words(head["tools"])) if "tools" in head else None
            # Other agents name models in their own way (`sonnet`, `inherit`): only a whole name is taken.
            effort = next((level for key in _EFFORT_KEYS if (level := line(head.get(key)).lower()) in EFFORTS), "")
            model = model if ":" in model else ""
            by_name[name] = CustomAgent(name, about, inert(body.strip()), tools, model, effort)
    return by_name


def _counting(documents: Iterable[Document]) -> Iterable[Document]:
    return (document for document in documents if document.trusted)


def _tools(names: list[str]) -> tuple[str, ...] | None:
    if "*" in names or "all" in names:
        return None
    tool_names = (_TOOLS.get(name.lower(), ALIASES.get(name, name)) for name in names)
    return tuple(dict.fromkeys(tool_names))
