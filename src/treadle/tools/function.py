"""A tool is a Python function (T-10). `@tool` reads its signature once, at decoration, and refuses what no model
could call; the docstring is read when someone first asks for the spec. Knows nothing of chats or of the loop."""

import asyncio
import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Annotated, Any, get_args, get_origin, get_type_hints, overload

import msgspec

from treadle.errors import InvalidInput, ToolError
from treadle.ports.toolset import Invocation, Outcome, Rehearsal, Settlement
from treadle.protocol.content import JsonSchema
from treadle.protocol.tools import ToolSpec
from treadle.tools.client import require_name

AnyFunction = Callable[..., Any]


class FunctionTool:
    """A function as a tool. Calling it calls the function, so a decorated one can still be used and tested."""

    def __init__(
        self,
        function: AnyFunction,
        *,
        name: str = "",
        read_only: bool = False,
        idempotent: bool = False,
        timeout: float = 120.0,
        needs_approval: bool = False,
    ) -> None:
        self.function = function
        self._name = name or getattr(function, "__name__", "")
        require_name(self._name)
        if not timeout > 0:
            raise InvalidInput(f"The tool {self._name} has a timeout of {timeout} s; it must be more than 0.")
        self._signature = _Signature(function, self._name)
        self._base = ToolSpec(
            self._name, read_only=read_only, idempotent=idempotent, needs_approval=needs_approval, timeout_s=timeout
        )
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - a callable object whose __call__ is async
        )
        self.__doc__ = function.__doc__
        self.__name__ = self._name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @cached_property
    def spec(self) -> ToolSpec:
        description, parameters = _documented(inspect.getdoc(self.function) or "", self._signature.schema)
        properties = parameters["properties"]
        return msgspec.structs.replace(
            self._base,
            description=description,
            parameters=parameters,
            summary_argument="path" if "path" in properties else next(iter(properties), ""),
        )

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        return None

    async def run(self, invocation: Invocation) -> Outcome:
        """A sync function runs in a thread, which nothing can stop: when the call is cancelled or times out, the
        function runs to its end unseen."""
        args, kwargs = self._signature.bind(invocation)
        try:
            if self._is_async:
                value = await self.function(*args, **kwargs)
            else:
                value = await asyncio.to_thread(self.function, *args, **kwargs)
            if inspect.isawaitable(value):  # a sync function around an async one
                value = await value
        except ToolError:
            raise
        except Exception as error:
            raise ToolError(_failure(self._name, error)) from error
        return _outcome(self._name, value)

    async def preview(self, invocation: Invocation) -> str:
        return ""

    async def rehearse(self, invocation: Invocation) -> Rehearsal | None:
        return None

    async def stop(self, invocation: Invocation) -> Outcome | None:
        return None

    async def settle(self, invocation: Invocation) -> Settlement:
        return "run_again" if self._base.read_only or self._base.idempotent else "unknown"


@overload
def tool(function: AnyFunction, /) -> FunctionTool: ...


@overload
def tool(
    *,
    name: str = "",
    read_only: bool = False,
    idempotent: bool = False,
    timeout: float = 120.0,
    needs_approval: bool = False,
) -> Callable[[AnyFunction], FunctionTool]: ...


def tool(
    function: AnyFunction | None = None,
    /,
    *,
    name: str = "",
    read_only: bool = False,
    idempotent: bool = False,
    timeout: float = 120.0,
    needs_approval: bool = False,
) -> FunctionTool | Callable[[AnyFunction], FunctionTool]:
    """Make a function a tool: `@tool`, or `@tool(read_only=True, timeout=10)`."""

    def decorate(function: AnyFunction) -> FunctionTool:
        return FunctionTool(
            function,
            name=name,
            read_only=read_only,
            idempotent=idempotent,
            timeout=timeout,
            needs_approval=needs_approval,
        )

    return decorate if function is None else decorate(function)


class _Signature:
    """What a function takes: its schema, and how to turn checked arguments into Python values."""

    def __init__(self, function: AnyFunction, name: str) -> None:
        self._name = name
        self._parameters = _parameters(function, name)
        hints = _hints(function, name)
        self._types = {p.name: _type(p, hints) for p in self._parameters if hints.get(p.name) is not Invocation}
        fields = [
            (p.name, self._types[p.name], _default(p)) if p.default is not p.empty else (p.name, self._types[p.name])
            for p in self._parameters
            if p.name in self._types
        ]
        try:
            self._struct = msgspec.defstruct("arguments", fields, kw_only=True, forbid_unknown_fields=True)
            self.schema = _schema(self._struct)
        except (TypeError, ValueError, NameError) as error:
            reason = str(error).split("\n")[-1]
            raise InvalidInput(f"The tool {name} has a parameter that no JSON Schema can describe: {reason}") from error
        for parameter in self._parameters:
            self._note(parameter)

    def _note(self, parameter: inspect.Parameter) -> None:
        """What msgspec leaves out of the schema: the default, and a description given as Annotated text."""
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

    def bind(self, invocation: Invocation) -> tuple[list[Any], dict[str, Any]]:
        values = self._convert(invocation.arguments)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter in self._parameters:
            if parameter.name not in self._types:
                value: Any = invocation
            elif parameter.name in invocation.arguments:
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


def _parameters(function: AnyFunction, name: str) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"The tool {name} has no signature that can be read: {error}") from error
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            raise InvalidInput(f"The tool {name} takes {stars}{parameter.name}; name every parameter instead.")
    return parameters


def _hints(function: AnyFunction, name: str) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    try:
        return get_type_hints(target, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidInput(
            f"The type hints of the tool {name} cannot be read ({error}); its types must be known where it is defined."
        ) from error


def _type(parameter: inspect.Parameter, hints: dict[str, Any]) -> Any:
    hint = hints.get(parameter.name, Any)
    return hint | None if parameter.default is None and hint is not Any else hint


def _default(parameter: inspect.Parameter) -> Any:
    return msgspec.field(default_factory=lambda: parameter.default)


def _schema(struct: type[msgspec.Struct]) -> JsonSchema:
    """One schema without references, so that every provider takes it; only a type that contains itself keeps its
    `$defs`."""
    (top,), parts = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    recursive: set[str] = set()
    schema: JsonSchema = _inlined(top, parts, (), recursive)
    schema.pop("title", None)
    schema.setdefault("properties", {})
    if recursive:
        schema["$defs"] = {name: _inlined(parts[name], parts, (name,), recursive) for name in sorted(recursive)}
    return schema


def _inlined(schema: Any, parts: dict[str, Any], above: tuple[str, ...], recursive: set[str]) -> Any:
    if isinstance(schema, list):
        return [_inlined(item, parts, above, recursive) for item in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        name = reference.removeprefix("#/$defs/")
        if name in above:
            recursive.add(name)
            return dict(schema)
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return _inlined(parts[name], parts, (*above, name), recursive) | rest
    return {key: _inlined(value, parts, above, recursive) for key, value in schema.items()}


def _documented(doc: str, schema: JsonSchema) -> tuple[str, JsonSchema]:
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


def _failure(name: str, error: Exception) -> str:
    kind = type(error).__name__
    text = str(error).strip()
    return f"{name} failed with {kind}: {text}" if text else f"{name} failed with {kind}."


def _outcome(name: str, value: object) -> Outcome:
    if isinstance(value, Outcome):
        return value
    if isinstance(value, str):
        return Outcome(value)
    try:
        return Outcome(msgspec.json.encode(value).decode())
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ToolError(f"{name} ran, but what it returned cannot be written as JSON: {error}") from error
