"""A tool is a Python function (T-10). `@tool` reads its signature once, at decoration, and refuses what no model
could call; the docstring is read when someone first asks for the spec. Knows nothing of chats or of the loop."""

import asyncio
import inspect
from collections.abc import Callable
from functools import cached_property
from typing import Any, overload

import msgspec

from treadle.errors import InvalidInput, ToolError
from treadle.ports.toolset import Invocation, Outcome, Rehearsal, Settlement
from treadle.protocol.tools import ToolSpec, require_name
from treadle.signature import AnyFunction, Signature, documented, is_async


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
        self._signature = Signature(function, self._name, Invocation)
        self._base = ToolSpec(
            self._name, read_only=read_only, idempotent=idempotent, needs_approval=needs_approval, timeout_s=timeout
        )
        self._is_async = is_async(function)
        self.__doc__ = function.__doc__
        self.__name__ = self._name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @cached_property
    def spec(self) -> ToolSpec:
        description, parameters = documented(inspect.getdoc(self.function) or "", self._signature.schema)
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
        args, kwargs = self._signature.bind(invocation.arguments, invocation)
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
