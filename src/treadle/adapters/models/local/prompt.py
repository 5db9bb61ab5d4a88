"""What a small model reads and what it may write. Pure.

A request as the messages of a chat template, shortened to fit a small window. A tool takes one line, because the
grammar has its schema and reading the prompt is the main cost on a small machine. Long old results are cut first; then
the oldest entries are dropped, a few at a time so that the beginning stays the same for some turns; then any text that
is still too long is cut. The task stays.

The answers are one JSON schema built from the tools: a call with valid arguments, or a text reply; the engine's grammar
allows nothing else (M-15). The engine silently drops its grammar if a schema uses a feature that it does not support,
so only supported features are kept: that makes the grammar looser, never wrong, and arguments are checked again before
a tool runs. Output that is not a JSON object of the expected shape is text."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, groupby
from typing import Any, assert_never

import msgspec

from treadle.adapters.models.text_calls.reader import read
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, ToolRequest, UserEntry
from treadle.protocol.deltas import CallDelta, Delta, TextDelta
from treadle.protocol.tools import WORDS, ToolSpec

REPLY = "reply"
# Without these a small model fills its answer with blanks.
_GUIDANCE = {"lenient": True, "whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_ANYTHING: dict[str, Any] = {}
_KEPT = ("type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "const")
_COUNTS = {"minLength": 200, "maxLength": 2_000, "minItems": 200, "maxItems": 1_000}
"""Beyond these the grammar becomes too large."""
_REF = re.compile(r"#/(\$defs|definitions)/([^/]+)")
_HARD_PATTERN = re.compile(r"\(\?|\\[bB0-9kpP]|.\^|\$.", re.S)  # look-around, back-references and anchors in the middle


def choose_reply_name(tools: Iterable[ToolSpec]) -> str:
    """The word for a reply; another one where a tool is called so."""
    tool_names = {tool.name for tool in tools}
    name = REPLY
    while name in tool_names:
        name += "_"
    return name


def build_answer_schema(tools: Sequence[ToolSpec], withheld: Collection[str] = ()) -> dict[str, Any]:
    """The schema of one answer, without those `withheld`. With the name, the model decides whether to speak or act."""
    shared: dict[str, Any] = {}
    text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    reply = _build_choice(choose_reply_name(tools), {**text, "additionalProperties": False})
    callable_now = [tool for tool in tools if tool.name not in withheld]
    choices = [] if callable_now and WORDS in withheld else [reply]
    for number, tool in enumerate(callable_now):
        cleaner = _Cleaner(f"t{number}_")
        choices.append(_build_choice(tool.name, cleaner.clean_arguments(tool.parameters)))
        shared |= cleaner.shared
    schema: dict[str, Any] = {"anyOf": choices, "x-guidance": _GUIDANCE}
    return {**schema, "$defs": shared} if shared else schema


def _build_choice(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


class _Cleaner:
    """One tool's schema without what the engine cannot do. Definitions of all tools end up side by side, so each
    tool's have a prefix of their own."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.shared: dict[str, Any] = {}

    def clean_arguments(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        for key in ("$defs", "definitions"):
            for name, schema in _as_mapping(parameters.get(key)).items():
                self.shared[self._make_shared_name(name)] = self.clean(schema)
        cleaned = self.clean(parameters)
        if cleaned.get("type") != "object" and not {"$ref", "anyOf", "allOf"} & cleaned.keys():
            return {"type": "object"}
        return cleaned

    def _make_shared_name(self, name: str) -> str:
        return self._prefix + re.sub(r"\W", "_", name)

    def clean(self, schema: Any) -> dict[str, Any]:
        if not isinstance(schema, Mapping):
            return dict(_ANYTHING)
        if "$ref" in schema:
            match = _REF.fullmatch(schema["$ref"]) if isinstance(schema["$ref"], str) else None
            if match is None:
                return dict(_ANYTHING)
            self.shared.setdefault(name := self._make_shared_name(match[2]), dict(_ANYTHING))
            return {"$ref": f"#/$defs/{name}"}
        cleaned = {key: schema[key] for key in _KEPT if key in schema}
        for key, most in _COUNTS.items():
            count = schema.get(key)
            if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= most:
                cleaned[key] = count
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            cleaned["enum"] = schema["enum"]
        if isinstance(pattern := schema.get("pattern"), str) and not _HARD_PATTERN.search(pattern):
            with suppress(re.error):
                cleaned["pattern"] = re.compile(pattern).pattern
        for key, word in (("anyOf", "anyOf"), ("oneOf", "anyOf"), ("allOf", "allOf")):
            if isinstance(schema.get(key), list) and schema[key]:
                cleaned[word] = [self.clean(part) for part in schema[key]]
        if "items" in schema and schema["items"] is not False:
            cleaned["items"] = self.clean(schema["items"])
        return cleaned | self._clean_object(schema)

    def _clean_object(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        declared = _as_mapping(schema.get("properties"))
        required = _list_required(schema)
        additional = schema.get("additionalProperties", not (declared or required))
        cleaned: dict[str, Any] = {}
        if declared or required:
            properties = {name: self.clean(inner) for name, inner in declared.items() if inner is not False}
            cleaned["properties"] = properties | {name: dict(_ANYTHING) for name in required if name not in properties}
            cleaned["required"] = required
            cleaned["additionalProperties"] = additional if isinstance(additional, bool) else self.clean(additional)
        elif isinstance(additional, Mapping):
            cleaned["additionalProperties"] = self.clean(additional)
        elif additional is False and schema.get("type") == "object":
            cleaned["additionalProperties"] = False
        return cleaned


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list_required(schema: Mapping[str, Any]) -> list[str]:
    """In schemas of old drafts `required` is no list but stands, as true, in each property."""
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list | tuple) else []


_ARGUMENTS = re.compile(r'"arguments"\s*:\s*')
_CLOSING = "} \t\r\n"


class GrammarReader:
    """Without a `reply`, all of the answer is text."""

    def __init__(self, reply: str) -> None:
        self._reply = reply
        self._written = ""
        self._text = ""
        self._sent = 0
        self._plain = not reply
        self.has_calls = False

    def feed(self, piece: str) -> list[Delta]:
        self._written += piece
        if self._plain:
            return [TextDelta(piece)] if piece else []
        if self.has_calls:
            return self._take_arguments(len(self._written.rstrip(_CLOSING)))
        begin = len(self._written) - len(self._written.lstrip())
        if begin == len(self._written):
            return []
        if self._written[begin] != "{":
            return self._as_words()
        parsed = read(self._written, begin, final=False)
        is_readable = parsed.state in ("whole", "cut") and not self._written[parsed.end :].strip()
        if not is_readable or not isinstance(parsed.value, dict):
            return self._as_words()
        name, arguments = parsed.value.get("name"), parsed.value.get("arguments")
        if not isinstance(arguments, dict):
            return []  # until the arguments have begun, the name may be half of one
        if name != self._reply:
            match = _ARGUMENTS.search(self._written)
            if not isinstance(name, str) or match is None:
                return self._as_words()
            self.has_calls = True
            self._sent = match.end()
            return [CallDelta(index=0, name=name), *self._take_arguments(len(self._written.rstrip(_CLOSING)))]
        text = arguments.get("text", "")
        if not isinstance(text, str) or not text.startswith(self._text):
            return []
        new, self._text = text[len(self._text) :], text
        return [TextDelta(new)] if new else []

    def _take_arguments(self, upto: int) -> list[Delta]:
        """The arguments as far as it is sure that they are no closing bracket of the whole."""
        new, self._sent = self._written[self._sent : upto], max(self._sent, upto)
        return [CallDelta(index=0, arguments=new)] if new else []

    def _as_words(self) -> list[Delta]:
        self._plain = not self._text  # half a reply stays what it is
        return [TextDelta(self._written)] if self._plain else []

    def end(self) -> list[Delta]:
        """Return the held text. A truncated call stays truncated: its caller sees that it is not valid JSON."""
        if not self.has_calls:
            return []
        stripped = self._written.rstrip()
        try:
            msgspec.json.decode(stripped)
        except msgspec.DecodeError:
            return self._take_arguments(len(self._written))
        return self._take_arguments(len(stripped) - 1)


OLD_RESULT_CHARS = 400
STEP = 4  # entries are left out by so many at a time
SYSTEM_SHARE = 0.5  # the most of the room that the system text may take
_HEADER = re.compile(r".* \(\d[\d,]* lines?(; [^)]*)?\)(, lines \d+ to \d+)?")
_NUMBERED = re.compile(r"\d+\t")
LEFT_OUT = "[Earlier parts of this conversation are left out.]"
_HOW = (
    'Answer with one JSON object, {{"name": …, "arguments": {{…}}}}: either call a tool, or speak to the user with '
    "{reply}. Call tools until the task is done, then use {reply}.\n\nTools:\n"
)
_SPEAK = 'No tool can be called any more. Speak to the user: {{"name": "{reply}", "arguments": {{"text": …}}}}'


class TemplateMessage(msgspec.Struct, frozen=True):
    role: str
    content: str


class Prompt(msgspec.Struct, frozen=True):
    messages: tuple[TemplateMessage, ...]
    shortened: bool = False

    @property
    def chars(self) -> int:
        return sum(len(message.content) for message in self.messages)


def is_formal(entries: Sequence[Entry], tools: Sequence[ToolSpec]) -> bool:
    """True if the answer is written under the grammar. Also after earlier calls, even if no tool is offered now,
    because a small model would continue to write text that looks like a call."""
    return bool(tools) or any(isinstance(entry, AssistantEntry) and entry.calls for entry in entries)


def build(system: str, entries: Sequence[Entry], tools: Sequence[ToolSpec], room: int) -> Prompt:
    formal = is_formal(entries, tools)
    head = _cut_middle(system, int(room * SYSTEM_SHARE)) + (_describe(tools) if formal else "")
    room = max(room - len(head), room // 4)
    reply = choose_reply_name(tools) if formal else ""
    groups: list[list[Entry]] = []  # entries that stay together: an answer and the results of its calls
    for entry in entries:
        if isinstance(entry, ResultsEntry) and groups:
            groups[-1].append(entry)
        else:
            groups.append([entry])
    message_groups = [[_build_message(entry, reply) for entry in group] for group in groups]
    fitted_groups = (
        message_groups if _measure_size(message_groups) <= room else _shorten(message_groups, groups, reply, room)
    )
    messages = [TemplateMessage("system", head)] if head else []
    # The roles alternate, as many templates need it.
    for role, same_role in groupby(chain.from_iterable(fitted_groups), lambda message: message.role):
        messages.append(TemplateMessage(role, "\n\n".join(message.content for message in same_role)))
    return Prompt(tuple(messages), shortened=fitted_groups is not message_groups)


def _shorten(
    message_groups: list[list[TemplateMessage]], groups: list[list[Entry]], reply: str, room: int
) -> list[list[TemplateMessage]]:
    shortened = [[_build_message(entry, reply, OLD_RESULT_CHARS) for entry in group] for group in groups[:-1]]
    message_groups = shortened + message_groups[-1:]
    if _measure_size(message_groups) <= room:
        return message_groups
    heads = [group[0] for group in groups]
    tasks = (at for at, head in enumerate(heads) if isinstance(head, UserEntry) and head.source == "person")
    task = max(tasks, default=0)
    for start in range(STEP, len(message_groups) + STEP, STEP):
        start = min(start, len(message_groups) - 1)
        opening = [[TemplateMessage("user", LEFT_OUT)]] if start else []
        fitted_groups = [*opening, *([message_groups[task]] if task < start else []), *message_groups[start:]]
        if _measure_size(fitted_groups) <= room:
            return fitted_groups
    share = room // max(1, sum(len(messages) for messages in fitted_groups))
    return [
        [TemplateMessage(message.role, _cut_middle(message.content, share)) for message in messages]
        for messages in fitted_groups
    ]


def _build_message(entry: Entry, reply: str, result_chars: int = 0) -> TemplateMessage:
    match entry:
        case UserEntry(text=text, images=images):
            return TemplateMessage("user", text + "\n[A picture that this model cannot see.]" * len(images))
        case AssistantEntry(text=text, calls=calls):
            words = [_format_object(reply, {"text": text}) if reply else text] if text else []
            return TemplateMessage("assistant", "\n".join([*words, *map(_format_call, calls)]))
        case ResultsEntry(results=results):
            plain = [_strip_line_numbers(result.text) for result in results]
            texts = [_cut_middle(text, result_chars) if result_chars else text for text in plain]
            return TemplateMessage("user", "\n".join(f"<tool_response>\n{text}\n</tool_response>" for text in texts))
        case _ as never:
            assert_never(never)


def _strip_line_numbers(text: str) -> str:
    """Return the content of a file that was read, without line numbers. The header stays only if it says that this is a
    part of the file, or names its encoding or line ends. A small model would copy them into the file."""
    head, _, body = text.partition("\n")
    lines, header_match = body.split("\n"), _HEADER.fullmatch(head)
    if header_match is None or not all(_NUMBERED.match(line) for line in lines):
        return text
    header = [head] if any(header_match.groups()) else []
    return "\n".join([*header, *(_NUMBERED.sub("", line, count=1) for line in lines)])


def _format_call(call: ToolRequest) -> str:
    try:
        return _format_object(call.name, json.loads(call.arguments))
    except ValueError:
        return _format_object(call.name, {})


def _format_object(name: str, arguments: Any) -> str:
    """In the very form that the grammar makes."""
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)


def _describe(tools: Sequence[ToolSpec]) -> str:
    reply = choose_reply_name(tools)
    if not tools:
        return "\n\n" + _SPEAK.format(reply=reply)
    lines = [f"{reply}(text: string): Speak to the user.", *map(_format_line, tools)]
    return "\n\n" + _HOW.format(reply=reply) + "\n".join(lines)


def _format_line(tool: ToolSpec) -> str:
    properties = _as_mapping(tool.parameters.get("properties"))
    untold = tool.short.untold if tool.short is not None else ()
    required = _list_required(tool.parameters)
    shown_properties = {name: inner for name, inner in properties.items() if name not in untold}
    arguments = (
        f"{name}{'' if name in required else '?'}: {_format_type(inner)}" for name, inner in shown_properties.items()
    )
    first = " ".join(tool.description.split()).partition(". ")[0]  # the first sentence says what a tool is for
    sentence = _cut_middle(first.rstrip(".") + ".", 160) if first else ""
    return f"{tool.name}({', '.join(arguments)}): {sentence}"


def _format_type(schema: Any) -> str:
    kind = schema.get("type", "any") if isinstance(schema, dict) else "any"
    return kind if isinstance(kind, str) else "|".join(map(str, kind))


def _cut_middle(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    head = max(0, most) * 2 // 3
    tail = max(0, most) - head
    return f"{text[:head]}\n[… {len(text) - head - tail} characters left out …]\n{text[len(text) - tail :]}"


def _measure_size(message_groups: Sequence[Sequence[TemplateMessage]]) -> int:
    return sum(len(message.content) for messages in message_groups for message in messages)
