"""A request as the messages of a chat template, shortened to fit a small window. Pure.

A tool takes one line, because the grammar has its schema and reading the prompt is the main cost on a small machine.
Shortening goes in this order: long old results are cut; then the oldest entries are dropped, a few at a time so that
the beginning stays the same for some turns; then any text that is still too long is cut. The task stays.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, assert_never

import msgspec

from treadle.adapters.models.local.answer import reply_name
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, ToolRequest, UserEntry
from treadle.protocol.tools import ToolSpec

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
    """`room`: how many characters the whole may have."""
    formal = is_formal(entries, tools)
    head = _cut_middle(system, int(room * SYSTEM_SHARE)) + (_describe(tools) if formal else "")
    room = max(room - len(head), room // 4)
    reply = reply_name(tools) if formal else ""
    groups: list[list[Entry]] = []  # entries that stay together: an answer and the results of its calls
    for entry in entries:
        if isinstance(entry, ResultsEntry) and groups:
            groups[-1].append(entry)
        else:
            groups.append([entry])
    message_groups = [[_message(entry, reply) for entry in group] for group in groups]
    fitted_groups = message_groups if _size(message_groups) <= room else _fitted(message_groups, groups, reply, room)
    start = [TemplateMessage("system", head)] if head else []
    return Prompt((*start, *_merged(fitted_groups)), shortened=fitted_groups is not message_groups)


def _fitted(
    message_groups: list[list[TemplateMessage]], groups: list[list[Entry]], reply: str, room: int
) -> list[list[TemplateMessage]]:
    shortened = [[_message(entry, reply, OLD_RESULT_CHARS) for entry in group] for group in groups[:-1]]
    message_groups = shortened + message_groups[-1:]
    if _size(message_groups) <= room:
        return message_groups
    heads = [group[0] for group in groups]
    tasks = (at for at, head in enumerate(heads) if isinstance(head, UserEntry) and head.source == "person")
    task = max(tasks, default=0)
    for start in range(STEP, len(message_groups) + STEP, STEP):
        start = min(start, len(message_groups) - 1)
        opening = [[TemplateMessage("user", LEFT_OUT)]] if start else []
        fitted_groups = [*opening, *([message_groups[task]] if task < start else []), *message_groups[start:]]
        if _size(fitted_groups) <= room:
            return fitted_groups
    share = room // max(1, sum(len(messages) for messages in fitted_groups))
    return [
        [TemplateMessage(message.role, _cut_middle(message.content, share)) for message in messages]
        for messages in fitted_groups
    ]


def _message(entry: Entry, reply: str, result_chars: int = 0) -> TemplateMessage:
    """An entry in the words of the template. `reply` is empty where the model speaks freely."""
    match entry:
        case UserEntry(text=text, images=images):
            return TemplateMessage("user", text + "\n[A picture that this model cannot see.]" * len(images))
        case AssistantEntry(text=text, calls=calls):
            words = [_object(reply, {"text": text}) if reply else text] if text else []
            return TemplateMessage("assistant", "\n".join([*words, *map(_call, calls)]))
        case ResultsEntry(results=results):
            plain = [_unnumbered(result.text) for result in results]
            texts = [_cut_middle(text, result_chars) if result_chars else text for text in plain]
            return TemplateMessage("user", "\n".join(f"<tool_response>\n{text}\n</tool_response>" for text in texts))
        case _ as never:
            assert_never(never)


def _unnumbered(text: str) -> str:
    """Return the content of a file that was read, without line numbers. The header stays only if it says that this is a
    part of the file, or names its encoding or line ends. A small model would copy them into the file."""
    head, _, body = text.partition("\n")
    lines, header_match = body.split("\n"), _HEADER.fullmatch(head)
    if header_match is None or not all(_NUMBERED.match(line) for line in lines):
        return text
    header = [head] if any(header_match.groups()) else []
    return "\n".join([*header, *(_NUMBERED.sub("", line, count=1) for line in lines)])


def _call(call: ToolRequest) -> str:
    try:
        return _object(call.name, json.loads(call.arguments))
    except ValueError:
        return _object(call.name, {})


def _object(name: str, arguments: Any) -> str:
    """In the very form that the grammar makes."""
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)


def _merged(groups: Sequence[Sequence[TemplateMessage]]) -> list[TemplateMessage]:
    """Roles that alternate, as many templates need it."""
    merged: list[TemplateMessage] = []
    for message in (message for group in groups for message in group):
        if merged and merged[-1].role == message.role:
            merged[-1] = TemplateMessage(message.role, f"{merged[-1].content}\n\n{message.content}")
        else:
            merged.append(message)
    return merged


def _describe(tools: Sequence[ToolSpec]) -> str:
    reply = reply_name(tools)
    if not tools:
        return "\n\n" + _SPEAK.format(reply=reply)
    lines = [f"{reply}(text: string): Speak to the user.", *map(_line, tools)]
    return "\n\n" + _HOW.format(reply=reply) + "\n".join(lines)


def _line(tool: ToolSpec) -> str:
    properties = tool.parameters.get("properties") or {}
    untold = tool.short.untold if tool.short is not None else ()
    required = tool.parameters.get("required") or ()
    shown_properties = {name: inner for name, inner in properties.items() if name not in untold}
    arguments = (f"{name}{'' if name in required else '?'}: {_type(inner)}" for name, inner in shown_properties.items())
    first = " ".join(tool.description.split()).partition(". ")[0]  # the first sentence says what a tool is for
    sentence = _cut_middle(first.rstrip(".") + ".", 160) if first else ""
    return f"{tool.name}({', '.join(arguments)}): {sentence}"


def _type(schema: Any) -> str:
    kind = schema.get("type", "any") if isinstance(schema, dict) else "any"
    return kind if isinstance(kind, str) else "|".join(map(str, kind))


def _cut_middle(text: str, most: int) -> str:
    """The text without its middle, if it is too long."""
    if len(text) <= most:
        return text
    head = max(0, most) * 2 // 3
    tail = max(0, most) - head
    return f"{text[:head]}\n[… {len(text) - head - tail} characters left out …]\n{text[len(text) - tail :]}"


def _size(message_groups: Sequence[Sequence[TemplateMessage]]) -> int:
    return sum(len(message.content) for messages in message_groups for message in messages)
