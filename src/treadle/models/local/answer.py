"""What a small model may answer, as one JSON schema made of its tools: either a call with arguments that fit, or a
reply in words. The engine lets it write nothing else (M-15). Reads it while it is written: words as text, a call as a
call; what is no JSON object of the expected shape is text. Pure.

The engine gives up its grammar without a word when a schema has something that it cannot do; so only what it can is
let through. What is left out makes the grammar looser, never wrong: arguments are checked again before a tool runs.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from treadle.models.text_calls.reader import read
from treadle.protocol.deltas import CallDelta, Delta, TextDelta
from treadle.protocol.tools import WORDS, ToolSpec

REPLY = "reply"
_GUIDANCE = {"lenient": True, "whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""Without them a small model fills its answer with blanks."""
_ANYTHING: dict[str, Any] = {}
_KEPT = ("type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "const")
_COUNTS = {"minLength": 200, "maxLength": 2_000, "minItems": 200, "maxItems": 1_000}
"""Beyond these the grammar becomes too large."""
_REF = re.compile(r"#/(\$defs|definitions)/([^/]+)")
_HARD_PATTERN = re.compile(r"\(\?|\\[bB0-9kpP]|.\^|\$.", re.S)
"""Look-around, back-references and anchors in the middle."""


def reply_name(tools: Iterable[ToolSpec]) -> str:
    """The word for a reply; another one where a tool is called so."""
    taken = {tool.name for tool in tools}
    name = REPLY
    while name in taken:
        name += "_"
    return name


def answer_schema(tools: Sequence[ToolSpec], withheld: Collection[str] = ()) -> dict[str, Any]:
    """The schema of one answer, which is none of those `withheld`. The name comes first: with it the model decides
    whether to speak or to act."""
    shared: dict[str, Any] = {}
    text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    reply = _choice(reply_name(tools), {**text, "additionalProperties": False})
    callable_now = [tool for tool in tools if tool.name not in withheld]
    choices = [] if callable_now and WORDS in withheld else [reply]
    for number, tool in enumerate(callable_now):
        cleaner = _Cleaner(f"t{number}_")
        choices.append(_choice(tool.name, cleaner.arguments(tool.parameters)))
        shared |= cleaner.shared
    schema: dict[str, Any] = {"anyOf": choices, "x-guidance": _GUIDANCE}
    return {**schema, "$defs": shared} if shared else schema


def _choice(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
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

    def arguments(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        for key in ("$defs", "definitions"):
            for name, schema in _mapping(parameters.get(key)).items():
                self.shared[self._shared_name(name)] = self.clean(schema)
        cleaned = self.clean(parameters)
        if cleaned.get("type") != "object" and not {"$ref", "anyOf", "allOf"} & cleaned.keys():
            return {"type": "object"}
        return cleaned

    def _shared_name(self, name: str) -> str:
        return self._prefix + re.sub(r"\W", "_", name)

    def clean(self, schema: Any) -> dict[str, Any]:
        if not isinstance(schema, Mapping):
            return dict(_ANYTHING)
        if "$ref" in schema:
            return self._reference(schema["$ref"])
        kept = {key: schema[key] for key in _KEPT if key in schema}
        kept |= {key: schema[key] for key, most in _COUNTS.items() if _is_count(schema.get(key), most)}
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            kept["enum"] = schema["enum"]
        if isinstance(pattern := schema.get("pattern"), str) and _is_easy(pattern):
            kept["pattern"] = pattern
        for key, word in (("anyOf", "anyOf"), ("oneOf", "anyOf"), ("allOf", "allOf")):
            if isinstance(schema.get(key), list) and schema[key]:
                kept[word] = [self.clean(part) for part in schema[key]]
        if "items" in schema and schema["items"] is not False:
            kept["items"] = self.clean(schema["items"])
        return kept | self._object(schema)

    def _object(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        known = _mapping(schema.get("properties"))
        required = [name for name in schema.get("required") or () if isinstance(name, str)]
        rest = schema.get("additionalProperties", not (known or required))
        kept: dict[str, Any] = {}
        if known or required:
            properties = {name: self.clean(inner) for name, inner in known.items() if inner is not False}
            kept["properties"] = properties | {name: dict(_ANYTHING) for name in required if name not in properties}
            kept["required"] = required
            kept["additionalProperties"] = rest if isinstance(rest, bool) else self.clean(rest)
        elif isinstance(rest, Mapping):
            kept["additionalProperties"] = self.clean(rest)
        elif rest is False and schema.get("type") == "object":
            kept["additionalProperties"] = False
        return kept

    def _reference(self, target: object) -> dict[str, Any]:
        found = _REF.fullmatch(target) if isinstance(target, str) else None
        if found is None:
            return dict(_ANYTHING)
        name = self._shared_name(found[2])
        self.shared.setdefault(name, dict(_ANYTHING))
        return {"$ref": f"#/$defs/{name}"}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_count(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _is_easy(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return _HARD_PATTERN.search(pattern) is None


_ARGUMENTS = re.compile(r'"arguments"\s*:\s*')
_CLOSING = "} \t\r\n"


class PlainReader:
    """An answer without a grammar: all of it is text."""

    called = False

    def feed(self, written: str) -> list[Delta]:
        return [TextDelta(written)] if written else []

    def end(self) -> list[Delta]:
        return []


class GrammarReader:
    """An answer of the shape `{"name": …, "arguments": {…}}`."""

    def __init__(self, reply: str) -> None:
        self._reply = reply
        self._written = ""
        self._text = ""
        self._sent = 0
        self._plain = False
        self.called = False

    def feed(self, written: str) -> list[Delta]:
        self._written += written
        if self._plain:
            return [TextDelta(written)] if written else []
        if self.called:
            return self._arguments(len(self._written.rstrip(_CLOSING)))
        return self._look()

    def _look(self) -> list[Delta]:
        begin = len(self._written) - len(self._written.lstrip())
        if begin == len(self._written):
            return []
        got = read(self._written, begin, final=False) if self._written[begin] == "{" else None
        known = got is not None and got.state in ("whole", "cut") and not self._written[got.end :].strip()
        if got is None or not known or not isinstance(got.value, dict):
            return self._as_words()
        name, arguments = got.value.get("name"), got.value.get("arguments")
        if not isinstance(arguments, dict):
            return []  # until the arguments have begun, the name may be half of one
        if name != self._reply:
            return self._begin(name)
        text = arguments.get("text", "")
        if not isinstance(text, str) or not text.startswith(self._text):
            return []
        new, self._text = text[len(self._text) :], text
        return [TextDelta(new)] if new else []

    def _begin(self, name: object) -> list[Delta]:
        found = _ARGUMENTS.search(self._written)
        if not isinstance(name, str) or found is None:
            return self._as_words()
        self.called = True
        self._sent = found.end()
        return [CallDelta(index=0, name=name), *self._arguments(len(self._written.rstrip(_CLOSING)))]

    def _arguments(self, upto: int) -> list[Delta]:
        """The arguments as far as it is sure that they are no closing bracket of the whole."""
        new, self._sent = self._written[self._sent : upto], max(self._sent, upto)
        return [CallDelta(index=0, arguments=new)] if new else []

    def _as_words(self) -> list[Delta]:
        self._plain = not self._text  # half a reply stays what it is
        return [TextDelta(self._written)] if self._plain else []

    def end(self) -> list[Delta]:
        """What was held back. A call that was cut off stays so: whoever runs it sees that it is no JSON."""
        if not self.called:
            return []
        whole = self._written.rstrip()
        try:
            msgspec.json.decode(whole)
        except msgspec.DecodeError:
            return self._arguments(len(self._written))
        return self._arguments(len(whole) - 1)
