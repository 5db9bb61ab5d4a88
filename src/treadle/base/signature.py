"""The signature of a Python function, from its type hints and docstring: the JSON Schema that a model is shown, and the
conversion of its arguments to Python values (T-10, A-09). Knows nothing of tools, chats or clients."""

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from treadle.errors import InvalidInput, ToolError

AnyFunction = Callable[..., Any]
JsonSchema = dict[str, Any]


def is_async(function: AnyFunction) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - a callable object whose __call__ is async
    )


class Signature:
    """The parameters of a function. The schema leaves out one of the type `context_type`, which the caller fills in."""

    def __init__(self, function: AnyFunction, name: str, context_type: type | None = None) -> None:
        self._name = name
        self._parameters = _read_parameters(function, name)
        hints = _read_hints(function, name)
        self._types = {
            p.name: _compute_type(p, hints)
            for p in self._parameters
            if context_type is None or hints.get(p.name) is not context_type
        }
        fields = [
            (p.name, self._types[p.name], _make_default(p))
            if p.default is not p.empty
            else (p.name, self._types[p.name])
            for p in self._parameters
            if p.name in self._types
        ]
        try:
            self._struct = msgspec.defstruct("arguments", fields, kw_only=True, forbid_unknown_fields=True)
            self.schema = _build_schema(self._struct)
        except (TypeError, ValueError, NameError) as error:
            reason = str(error).split("\n")[-1]
            raise InvalidInput(f"The tool {name} has a parameter that no JSON Schema can describe: {reason}") from error
        for parameter in self._parameters:
            self._complete_schema(parameter)

    def _complete_schema(self, parameter: inspect.Parameter) -> None:
        """Add to the schema what msgspec leaves out: the default, and a description given as Annotated text."""
        sub = self.schema["properties"].get(parameter.name)
        if sub is None:
            return
        sub.pop("default", None)
        if parameter.default is not parameter.empty and parameter.default is not None:
            with suppress(TypeError, ValueError):  # a default that is no JSON is the function's own business
                sub["default"] = msgspec.to_builtins(parameter.default)
        hint = self._types[parameter.name]
        texts = [text for text in get_args(hint)[1:] if isinstance(text, str)] if get_origin(hint) is Annotated else []
        if texts:
            sub["description"] = texts[0]

    def bind(self, arguments: dict[str, Any], context: object = None) -> tuple[list[Any], dict[str, Any]]:
        """Arguments as the function takes them. ToolError says what does not fit."""
        values = self._convert(arguments)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter in self._parameters:
            if parameter.name not in self._types:
                value: Any = context
            elif parameter.name in arguments:
                value = getattr(values, parameter.name)
            else:
                value = parameter.default
            if parameter.kind is parameter.POSITIONAL_ONLY:
                args.append(value)
            else:
                kwargs[parameter.name] = value
        return args, kwargs

    def _convert(self, arguments: dict[str, Any]) -> object:
        try:
            return msgspec.convert(arguments, self._struct)
        except msgspec.ValidationError:
            pass
        try:  # JSON knows no difference between 5 and 5.0; lax, because strict refuses the latter for an int
            return msgspec.convert(arguments, self._struct, strict=False)
        except (msgspec.ValidationError, ValueError, OverflowError) as error:
            raise ToolError(f"The arguments of {self._name} do not fit: {error}") from error


def _read_parameters(function: AnyFunction, name: str) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"The tool {name} has no signature that can be read: {error}") from error
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            raise InvalidInput(f"The tool {name} takes {stars}{parameter.name}; name every parameter instead.")
    return parameters


def _read_hints(function: AnyFunction, name: str) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    try:
        return get_type_hints(target, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidInput(
            f"The type hints of the tool {name} cannot be read ({error}); its types must be known where it is defined."
        ) from error


def _compute_type(parameter: inspect.Parameter, hints: dict[str, Any]) -> Any:
    hint = hints.get(parameter.name, Any)
    return hint | None if parameter.default is None and hint is not Any else hint


def _make_default(parameter: inspect.Parameter) -> Any:
    return msgspec.field(default_factory=lambda: parameter.default)


def _build_schema(struct: type[msgspec.Struct]) -> JsonSchema:
    """One schema without references, so that every provider takes it; a type that contains itself keeps its `$defs`."""
    (top,), parts = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    recursive: set[str] = set()
    schema: JsonSchema = _inline_parts(top, parts, (), recursive)
    schema.pop("title", None)
    schema.setdefault("properties", {})
    if recursive:
        schema["$defs"] = {name: _inline_parts(parts[name], parts, (name,), recursive) for name in sorted(recursive)}
    return schema


def _inline_parts(schema: Any, parts: dict[str, Any], above: tuple[str, ...], recursive: set[str]) -> Any:
    if isinstance(schema, list):
        return [_inline_parts(item, parts, above, recursive) for item in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        name = reference.removeprefix("#/$defs/")
        if name in above:
            recursive.add(name)
            return dict(schema)
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        return _inline_parts(parts[name], parts, (*above, name), recursive) | siblings
    return {key: _inline_parts(value, parts, above, recursive) for key, value in schema.items()}


def apply_docstring(doc: str, schema: JsonSchema) -> tuple[str, JsonSchema]:
    """The description of the tool, and the schema with those of its parameters: Google, NumPy or reST style."""
    if "\n" not in doc:
        return doc, schema
    import docstring_parser  # lazily: most docstrings of tools have one line

    parsed = docstring_parser.parse(doc)
    properties = {name: dict(sub) if isinstance(sub, dict) else sub for name, sub in schema["properties"].items()}
    for parameter in parsed.params:
        sub = properties.get(parameter.arg_name)
        if isinstance(sub, dict) and parameter.description:
            sub.setdefault("description", " ".join(parameter.description.split()))
    parts = [parsed.short_description, parsed.long_description]
    if parsed.returns and parsed.returns.description:
        parts.append(f"Returns: {parsed.returns.description}")
    return "\n".join(part for part in parts if part), schema | {"properties": properties}
