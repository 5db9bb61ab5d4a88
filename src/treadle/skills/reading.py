"""Skills, commands and custom agents, read from their files. What is unusable is left out: a file of somebody else's
tool must not stop anybody."""

import re
from collections.abc import Iterable, Mapping

import msgspec

from treadle.inert import inert, inert_line
from treadle.protocol.options import EFFORTS, Skill
from treadle.skills.front_matter import line, split, words
from treadle.skills.places import Document
from treadle.tools.registry import ALIASES

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

    def expand(self, given: str) -> str:
        """The text with `$ARGUMENTS` (all words) and `$1`, `$2`, … (one each). Words that the text does not ask for
        follow it."""
        arguments = ["".join(match.groups("")) for match in _WORD.finditer(given)]

        def replace_reference(match: re.Match[str]) -> str:
            if match[1] in (None, "ARGUMENTS"):
                return given
            return "".join(arguments[int(match[1]) - 1 : int(match[1])])

        expanded, references = _ARGUMENT.subn(replace_reference, self.text)
        return expanded if references or not given else f"{expanded}\n\n{given}"


class CustomAgent(msgspec.Struct, frozen=True):
    """A way to work under a name: what the model is told, and which tools and model it has."""

    name: str
    description: str
    prompt: str
    tools: tuple[str, ...] | None = None
    model: str = ""
    reasoning_effort: str = ""

    def changes(self) -> dict[str, object]:
        """The options of a chat that works this way."""
        found: dict[str, object] = {"agent": self.name, "agent_prompt": self.prompt}
        if self.tools is not None:
            found["tools"] = self.tools
        if self.model:
            found["model"] = self.model
        if self.reasoning_effort:
            found["reasoning_effort"] = self.reasoning_effort
        return found


def skills(found: Iterable[Document]) -> tuple[Skill, ...]:
    made: dict[str, Skill] = {}
    for document in _counting(found):
        head, _ = split(document.text)
        name = line(head.get("name")) or document.name
        about = inert_line(line(head.get("description")), _DESCRIPTION)
        if _NAME.fullmatch(name) and about and name not in made:
            made[name] = Skill(name, about, document.path, document.sha256)
    return tuple(made.values())[:MOST_SKILLS]


def commands(found: Iterable[Document]) -> dict[str, OwnCommand]:
    made: dict[str, OwnCommand] = {}
    for document in _counting(found):
        head, body = split(document.text)
        if _NAME.fullmatch(document.name) and body.strip():
            about = line(head.get("description")) or body.strip().partition("\n")[0]
            hint = inert_line(line(head.get("argument-hint")), 80)
            made.setdefault(document.name, OwnCommand(document.name, inert_line(about, 200), inert(body.strip()), hint))
    return made


def custom_agents(found: Iterable[Document]) -> dict[str, CustomAgent]:
    made: dict[str, CustomAgent] = {}
    for document in _counting(found):
        head, body = split(document.text)
        name = line(head.get("name")) or document.name.removesuffix(".agent")
        if _NAME.fullmatch(name) and body.strip() and name not in made:
            about = inert_line(line(head.get("description")), 300)
            model = line(head.get("model"))
            tools = _tools(words(head["tools"])) if "tools" in head else None
            # Other agents name models in their own way (`sonnet`, `inherit`): only a whole name is taken.
            effort = next((given for key in _EFFORT_KEYS if (given := line(head.get(key)).lower()) in EFFORTS), "")
            model = model if ":" in model else ""
            made[name] = CustomAgent(name, about, inert(body.strip()), tools, model, effort)
    return made


def _counting(found: Iterable[Document]) -> Iterable[Document]:
    return (document for document in found if document.trusted)


def _tools(named: list[str]) -> tuple[str, ...] | None:
    if "*" in named or "all" in named:
        return None
    own = (_TOOLS.get(name.lower(), ALIASES.get(name, name)) for name in named)
    return tuple(dict.fromkeys(own))
