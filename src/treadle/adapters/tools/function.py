"""A tool is a Python function (T-10). `@tool` reads its signature once, at decoration, and refuses what no model
could call; the docstring is read when someone first asks for the spec. Other installed packages bring such tools by the
entry point group `treadle.tools`. Knows nothing of chats or of the loop."""

import asyncio
import inspect
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, overload

import msgspec

from treadle.base.signature import AnyFunction, Signature, apply_docstring, is_async
from treadle.errors import InvalidInput, ToolError
from treadle.ports.toolset import Invocation, Outcome, PlainTool, Settlement, Tool
from treadle.protocol.tools import ToolSpec, require_name

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "treadle.tools"


class FunctionTool(PlainTool):
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
        description, parameters = apply_docstring(inspect.getdoc(self.function) or "", self._signature.schema)
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
        """A sync function runs in a thread, which nothing can stop: after a cancellation it runs to its end unseen."""
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
            text = str(error).strip()
            reason = f": {text}" if text else "."
            raise ToolError(f"{self._name} failed with {type(error).__name__}{reason}") from error
        if isinstance(value, Outcome):
            return value
        try:
            return Outcome(value if isinstance(value, str) else msgspec.json.encode(value).decode())
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ToolError(f"{self._name} ran, but what it returned cannot be written as JSON: {error}") from error

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

    decorate = partial(
        FunctionTool,
        name=name,
        read_only=read_only,
        idempotent=idempotent,
        timeout=timeout,
        needs_approval=needs_approval,
    )
    return decorate if function is None else decorate(function)


def load_tools(points: "Iterable[EntryPoint] | None" = None) -> tuple[list[Tool], list[str]]:
    """Tools of other packages by their entry points (a tool made with `@tool`, or a list), by name; and warnings about
    broken ones, which keep no others from working."""
    tools: list[Tool] = []
    warnings: list[str] = []
    if points is None and any(map(_can_have_tools, sys.path)):
        from importlib.metadata import entry_points  # takes longer to load than the rest of a start

        points = entry_points(group=GROUP)
    for point in sorted(points or (), key=lambda point: point.name):
        try:
            loaded = point.load()
        except Exception as error:
            warnings.append(f"The tools of {point.value} cannot be loaded: {type(error).__name__}: {error}")
            continue
        for item in loaded if isinstance(loaded, list | tuple) else [loaded]:
            if isinstance(getattr(item, "spec", None), ToolSpec):
                tools.append(item)
            else:
                warnings.append(f"{point.value} is no tool; make it one with @treadle.tool.")
    return tools, warnings


def _can_have_tools(place: str) -> bool:
    """True if a place on the path has a package that names the group. A place that is not a folder may have one."""
    try:
        names = [name for name in os.listdir(place or ".") if name.lower().endswith(("dist-info", "egg-info"))]
    except FileNotFoundError:
        return False
    except OSError:
        return True
    for name in names:
        with suppress(OSError), open(os.path.join(place, name, "entry_points.txt"), "rb") as file:
            if GROUP.encode() in file.read():
                return True
    return False
