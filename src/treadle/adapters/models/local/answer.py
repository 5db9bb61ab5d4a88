"""The answers that a small model may give, as one JSON schema built from its tools: a call with valid arguments, or a
text reply. The engine's grammar allows nothing else (M-15). Parses the answer while it is written: a reply as text, a
call as a call; output that is not a JSON object of the expected shape is text. Pure.

The engine silently drops its grammar if a schema uses a feature that it does not support, so only supported features
are kept. Dropped features make the grammar looser, never wrong: arguments are checked again before a tool runs.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from treadle.adapters.models.text_calls.reader import read
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
_HARD_PATTERN = re.compile(r"\(\?|\\[bB0-9kpP]|.\^|\$.", re.S)  # look-around, back-references and anchors in the middle


def reply_name(tools: Iterable[ToolSpec]) -> str:
    """The word for a reply; another one where a tool is called so."""
    tool_names = {tool.name for tool in tools}
    name = REPLY
    while name in tool_names:
        name += "_"
    return name


def answer_schema(tools: Sequence[ToolSpec], withheld: Collection[str] = ()) -> dict[str, Any]:
    """The schema of one answer, without those `withheld`. With the name, the model decides whether to speak or act."""
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
            match = _REF.fullmatch(schema["$ref"]) if isinstance(schema["$ref"], str) else None
            if match is None:
                return dict(_ANYTHING)
            self.shared.setdefault(name := self._shared_name(match[2]), dict(_ANYTHING))
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
        return cleaned | self._object(schema)

    def _object(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        declared = _mapping(schema.get("properties"))
        required = [name for name in schema.get("required") or () if isinstance(name, str)]
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


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


_ARGUMENTS = re.compile(r'"arguments"\s*:\s*')
_CLOSING = "} \t\r\n"


class GrammarReader:
    """An answer of the shape `{"name": …, "arguments": {…}}`; without a `reply`, all of it is text."""

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
            return self._arguments(len(self._written.rstrip(_CLOSING)))
        return self._look()

    def _look(self) -> list[Delta]:
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
            return [CallDelta(index=0, name=name), *self._arguments(len(self._written.rstrip(_CLOSING)))]
        text = arguments.get("text", "")
        if not isinstance(text, str) or not text.startswith(self._text):
            return []
        new, self._text = text[len(self._text) :], text
        return [TextDelta(new)] if new else []

    def _arguments(self, upto: int) -> list[Delta]:
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
            return self._arguments(len(self._written))
        return self._arguments(len(stripped) - 1)
