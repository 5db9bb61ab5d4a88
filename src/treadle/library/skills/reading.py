"""Skills, commands and custom agents, read from their files; unusable ones, as of another tool, are skipped. A value of
the front matter that is no valid YAML (`name: see: this`) is plain text; aliases are refused."""

import itertools
import re
from collections.abc import Iterable, Mapping

import msgspec

from treadle.adapters.tools.registry import ALIASES
from treadle.base.inert import make_inert, make_inert_line
from treadle.library.skills.places import Document
from treadle.protocol.options import EFFORTS, Skill

Value = str | list[str]

_FENCE = "---"
_KEY = re.compile(r"[A-Za-z_][\w.-]*\s*:(?=\s|$)", re.ASCII)
MOST_SKILLS = 50
_NAME = re.compile(r"[\w][\w.:-]{0,63}")
_DESCRIPTION = 1_024
_ARGUMENT = re.compile(r"\$(ARGUMENTS\b|[1-9]\d{0,2})|\{\{args\}\}")
_WORD = re.compile(r"\"([^\"]*)\"(?!\S)|'([^']*)'(?!\S)|(\S+)")
"""Quotes group words only around a whole word: an apostrophe inside a word and a backslash are plain characters."""
# Names of tools in files that were written for other agents, in small letters.
_TOOLS: Mapping[str, str] = {
    **{name: ALIASES[name] for name in ("bash", "edit", "glob", "grep", "ls", "read", "search")},
    "multiedit": "edit_file", "todowrite": "update_plan", "write": "write_file", "execute": "run_command",
}  # fmt: skip
_EFFORT_KEYS = ("reasoning_effort", "reasoning-effort", "reasoningEffort", "effort")


class OwnCommand(msgspec.Struct, frozen=True):
    """A prompt under a name: `/name words` says its text, with the words in it."""

    name: str
    description: str
    text: str
    hint: str = ""

    def expand(self, argument_text: str) -> str:
        """The text with `$ARGUMENTS` (all words) and `$1`, `$2`, …; words that it does not ask for follow it."""
        arguments = ["".join(match.groups("")) for match in _WORD.finditer(argument_text)]

        def replace_reference(match: re.Match[str]) -> str:
            if match[1] in (None, "ARGUMENTS"):
                return argument_text
            return "".join(arguments[int(match[1]) - 1 : int(match[1])])

        expanded, references = _ARGUMENT.subn(replace_reference, self.text)
        return expanded if references or not argument_text else f"{expanded}\n\n{argument_text}"


class CustomAgent(msgspec.Struct, frozen=True):
    name: str
    description: str
    prompt: str
    tools: tuple[str, ...] | None = None
    model: str = ""
    reasoning_effort: str = ""

    def changes(self) -> dict[str, object]:
        options: dict[str, object] = {"agent": self.name, "agent_prompt": self.prompt}
        options |= {} if self.tools is None else {"tools": self.tools}
        more = {"model": self.model, "reasoning_effort": self.reasoning_effort}
        return options | {name: value for name, value in more.items() if value}


def parse_skills(documents: Iterable[Document]) -> tuple[Skill, ...]:
    by_name: dict[str, Skill] = {}
    for document, head, _ in _split_trusted(documents):
        name = format_line(head.get("name")) or document.name
        about = make_inert_line(format_line(head.get("description")), _DESCRIPTION)
        if _NAME.fullmatch(name) and about and name not in by_name:
            by_name[name] = Skill(name, about, document.path, document.sha256)
    return tuple(by_name.values())[:MOST_SKILLS]


def parse_commands(documents: Iterable[Document]) -> dict[str, OwnCommand]:
    by_name: dict[str, OwnCommand] = {}
    for document, head, body in _split_trusted(documents):
        if _NAME.fullmatch(document.name) and body.strip():
            about = format_line(head.get("description")) or body.strip().partition("\n")[0]
            hint = make_inert_line(format_line(head.get("argument-hint")), 80)
            command = OwnCommand(document.name, make_inert_line(about, 200), make_inert(body.strip()), hint)
            by_name.setdefault(document.name, command)
    return by_name


def parse_agents(documents: Iterable[Document]) -> dict[str, CustomAgent]:
    by_name: dict[str, CustomAgent] = {}
    for document, head, body in _split_trusted(documents):
        name = format_line(head.get("name")) or document.name.removesuffix(".agent")
        if _NAME.fullmatch(name) and body.strip() and name not in by_name:
            about = make_inert_line(format_line(head.get("description")), 300)
            names = split_words(head.get("tools"))
            tools = (_TOOLS.get(name.lower(), ALIASES.get(name, name)) for name in names)
            takes_all = "tools" not in head or "*" in names or "all" in names
            levels = (format_line(head.get(key)).lower() for key in _EFFORT_KEYS)
            effort = next((level for level in levels if level in EFFORTS), "")
            # Other agents name models in their own way (`sonnet`, `inherit`): only a whole name is taken.
            model = format_line(head.get("model"))
            model = model if ":" in model else ""
            chosen_tools = None if takes_all else tuple(dict.fromkeys(tools))
            by_name[name] = CustomAgent(name, about, make_inert(body.strip()), chosen_tools, model, effort)
    return by_name


def _split_trusted(documents: Iterable[Document]) -> Iterable[tuple[Document, dict[str, Value], str]]:
    """The documents that count, each with its front matter and its body."""
    return ((document, *split_front_matter(document.text)) for document in documents if document.trusted)


def split_front_matter(text: str) -> tuple[dict[str, Value], str]:
    """The front matter by its keys, and the body. Without front matter everything is the body."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() in (_FENCE, "...")), 0)
    if lines[0].rstrip() != _FENCE or not end:
        return {}, text
    body = "\n".join(lines[end + 1 :]).strip("\n")
    if (whole := _load("\n".join(lines[1:end]))) is not None:
        return whole, body
    head: dict[str, Value] = {}
    starts = [number for number in range(1, end) if _KEY.match(lines[number])]
    for start, stop in itertools.pairwise([*starts, end]):  # so that one odd value does not spoil the others
        entry = "\n".join(lines[start:stop])
        key, _, plain = entry.partition(":")
        name, texts = key.strip().lower(), (re.sub(r"\s+#.*", "", line).strip() for line in plain.split("\n"))
        head[name] = (_load(entry) or {}).get(name, " ".join(texts).strip())
    return head, body


def _load(text: str) -> dict[str, Value] | None:
    """The keys and values of YAML; None if it is no valid mapping."""
    import yaml  # most projects have no such file

    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.BaseLoader)):
            return None
        return {
            str(key).strip().lower(): [_flatten(item) for item in value] if isinstance(value, list) else _flatten(value)
            for key, value in yaml.load(text, Loader=yaml.BaseLoader).items()
        }
    except (yaml.YAMLError, AttributeError, ValueError, TypeError, RecursionError):
        return None


def _flatten(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_flatten(each)}" for key, each in value.items())
    return ", ".join(map(_flatten, value)) if isinstance(value, list) else str(value).strip()


def split_words(value: Value | None) -> list[str]:
    """A list, or a text with commas between its parts."""
    parts = value.split(",") if isinstance(value, str) else value or []
    return [part.strip() for part in parts if part.strip()]


def format_line(value: Value | None) -> str:
    text = value if isinstance(value, str) else ", ".join(value or [])
    return " ".join(text.split())
