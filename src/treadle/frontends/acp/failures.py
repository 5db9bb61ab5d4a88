"""Errors of Treadle as errors of the protocol: a code that editors know, and our own sentence."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from acp import RequestError

from treadle.base.inert import inert
from treadle.errors import ConfigError, InvalidInput, NotFound, Refused, TreadleError
from treadle.protocol.events import SessionError

P = ParamSpec("P")
R = TypeVar("R")

AUTH, INVALID_PARAMS, INVALID_REQUEST, NOT_FOUND, INTERNAL = -32000, -32602, -32600, -32002, -32603
_CODES: dict[type[TreadleError], int] = {
    ConfigError: AUTH,  # a key or a model is missing: editors then show how to authenticate
    InvalidInput: INVALID_PARAMS,
    NotFound: NOT_FOUND,
    Refused: INVALID_REQUEST,
}


def report_failures(body: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """A method of the agent whose failures the editor can show."""

    @wraps(body)
    async def method(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await body(*args, **kwargs)
        except TreadleError as error:
            number = next((number for kind, number in _CODES.items() if isinstance(error, kind)), INTERNAL)
            code = error.reason if isinstance(error, Refused) else error.code
            raise RequestError(number, inert(str(error)), {"code": code}) from error

    return method


def failed_run(failure: SessionError | None, reason: str) -> RequestError:
    """Why the run of a prompt ended in an error. The same stands in the session."""
    if failure is None:
        return RequestError(INTERNAL, inert(reason) or "the run ended with an error")
    code = AUTH if failure.error_class == "auth" else INTERNAL
    return RequestError(code, inert(failure.message), {"class": failure.error_class})
