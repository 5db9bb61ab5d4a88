"""Client tools, which run in the client's process: a function, its schema from hints and docstring, a call of it as a
result. Every failure becomes an error result that the model can act on; arguments that do not fit reach no handler."""

import asyncio
import inspect
from typing import Any

import msgspec

from treadle.base.signature import AnyFunction, Signature, documented, is_async
from treadle.base.types import ChatId
from treadle.errors import ToolError
from treadle.protocol.commands import Result
from treadle.protocol.tools import DynamicTool, require_name


class ToolCall(msgspec.Struct, frozen=True):
    """The call that a handler answers; a parameter of this type gets it, and is not shown to the model. `chat` and `id`
    together name the call for ever: a handler whose effect must not happen twice can remember them."""

    chat: ChatId
    id: str
    name: str
    arguments: dict[str, Any]


class ClientTool:
    """A function as a tool. Calling it calls the function."""

    def __init__(self, function: AnyFunction, name: str = "") -> None:
        self.function = function
        self.name = name or getattr(function, "__name__", "")
        require_name(self.name)
        self._signature = Signature(function, self.name, ToolCall)
        self._is_async = is_async(function)
        self.__doc__ = function.__doc__
        self.__name__ = self.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @property
    def spec(self) -> DynamicTool:
        """The description of the tool for the server and the model."""
        description, schema = documented(inspect.getdoc(self.function) or "", self._signature.schema)
        return DynamicTool(self.name, description, schema)

    async def answer(self, call: ToolCall) -> Result:
        """Run the handler; a sync one in a thread."""
        try:
            args, kwargs = self._signature.bind(call.arguments, call)
            if self._is_async:
                value = await self.function(*args, **kwargs)
            else:
                value = await asyncio.to_thread(self.function, *args, **kwargs)
            if inspect.isawaitable(value):
                value = await value
            return Result(call.id, msgspec.to_builtins(value))
        except ToolError as error:
            return failed(call, str(error))
        except Exception as error:
            text = str(error).strip()
            return failed(call, f"{self.name} failed with {type(error).__name__}{': ' if text else ''}{text}.")


def failed(call: ToolCall, text: str) -> Result:
    return Result(call.id, text, is_error=True)
