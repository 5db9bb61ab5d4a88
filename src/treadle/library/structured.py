"""Structured answers: from a type to its JSON Schema, and from a text to a checked value, or an error for the model."""

import itertools
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from json import JSONDecoder
from typing import Any, Generic, TypeVar

import msgspec

from treadle.errors import InvalidInput, RunFailed
from treadle.library.command_stream import Answer

T = TypeVar("T")

REPAIRS = 2  # How often a model is asked again for an answer that does not fit.
AGAIN = "Your answer does not fit what was asked for:\n{problem}\nAnswer again, with nothing but the JSON."
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n[ \t]*```", re.DOTALL | re.IGNORECASE)
_OPENING = re.compile(r"[{\[]")
_MOST_OPENINGS = 1_000  # Bounds the work for a long text of brackets.
_MOST_SHOWN = 5


class Structured(Answer, Generic[T], frozen=True, kw_only=True):
    output: T


class Unfit(Exception):
    """An answer that is no value of the shape; says why, for the model."""


class Shape(Generic[T]):
    """`output`: a msgspec Struct, a dataclass, a pydantic model, any type that msgspec knows, or a JSON Schema."""

    def __init__(self, output: type[T] | Mapping[str, Any]) -> None:
        import jsonschema_rs  # lazily: most chats answer in words

        self._type: Any = None if isinstance(output, Mapping) else output
        self.schema = dict(output) if isinstance(output, Mapping) else _make_schema(output)
        try:
            self._validator = jsonschema_rs.validator_for(self.schema, offline=True)
        except (ValueError, jsonschema_rs.ReferencingError, RecursionError) as error:
            raise InvalidInput(f"The output schema cannot be used: {str(error)[:300]}") from error

    def read(self, text: str) -> T:
        """The value that an answer is: its JSON alone, or in a fence, or in the middle of words. Unfit if none fits."""
        if not (candidates := list(_iterate_candidates(text))):
            raise Unfit("- it holds no JSON")
        problems = ""
        for value in candidates:
            if not (unfit := self._find_problems(value)):
                return self._convert_value(value)
            problems = problems or unfit
        raise Unfit(problems)

    def _find_problems(self, value: Any) -> str:
        errors = [
            f"- {'.'.join(map(str, error.instance_path)) or 'the whole'}: {error.message[:300]}"
            for error in self._validator.iter_errors(value)
        ]
        return "\n".join([*errors[:_MOST_SHOWN], *(["- and more"] if len(errors) > _MOST_SHOWN else [])])

    def _convert_value(self, value: Any) -> T:
        kind = self._type
        try:
            if kind is None:
                return value  # type: ignore[no-any-return]
            instance = kind.model_validate(value) if _is_pydantic(kind) else msgspec.convert(value, kind, str_keys=True)
        except ValueError as error:  # msgspec's and pydantic's are both
            raise Unfit(f"- {str(error)[:500]}") from error
        return instance  # type: ignore[no-any-return]


async def ask_until_valid(
    shape: Shape[T], say: Callable[[str], Awaitable[Answer]], content: str, repairs: int = REPAIRS
) -> Structured[T]:
    """Say it, and say it again as often as the answer does not fit. RunFailed if it never does."""
    for repairs_left in range(repairs, -1, -1):
        answer = await say(content)
        if answer.reason == "action_required":
            raise RunFailed("action_required", "The chat waits for an approval or an answer; there is no result yet.")
        try:
            output = shape.read(answer.text)
        except Unfit as unfit:
            if not repairs_left:
                raise RunFailed("invalid_output", f"The answer does not fit the output schema:\n{unfit}") from unfit
            content = AGAIN.format(problem=unfit)
            continue
        return Structured(answer.text, answer.reason, answer.usage, answer.error, output=output)
    raise AssertionError("unreachable")


def _is_pydantic(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_validate") and hasattr(kind, "model_json_schema")


def _make_schema(kind: Any) -> dict[str, Any]:
    if _is_pydantic(kind):
        schema: dict[str, Any] = kind.model_json_schema()
    else:
        try:
            schema = msgspec.json.schema(kind)
        except TypeError as error:
            raise InvalidInput(f"There is no JSON Schema for {kind!r}: {error}") from error
    parts = schema.get("$defs", {})
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if name not in parts:
        return schema
    # Providers want to see an object at the top, not a reference to one.
    is_recursive = f'"#/$defs/{name}"'.encode() in msgspec.json.encode(parts)
    definitions = {key: part for key, part in parts.items() if key != name or is_recursive}
    return {**parts[name], **({"$defs": definitions} if definitions else {})}


def _iterate_candidates(text: str) -> Iterator[Any]:
    """Values that the text may mean, the likeliest first: all of it, its fenced blocks, JSON values in the prose."""
    sources = [text.strip(), *(match[1] for match in _FENCED.finditer(text)), *_iterate_embedded_values(text)]
    decoder = msgspec.json.Decoder()
    for source in dict.fromkeys(sources):
        with suppress(msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            yield decoder.decode(source)


def _iterate_embedded_values(text: str) -> Iterator[str]:
    """The objects and arrays in the text, each from its opening bracket on. A bracket of the prose opens none."""
    decoder, end = JSONDecoder(), 0
    openings = itertools.islice(_OPENING.finditer(text), _MOST_OPENINGS)
    for opening in (each for each in openings if each.start() >= end):
        try:
            _, end = decoder.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            continue
        yield text[opening.start() : end]
