"""Synchronous façades: an event loop in its own thread, and methods that run a coroutine there and wait for it."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from treadle.errors import InvalidInput

P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W")
_CLOSED = "this is closed; make a new one"


class _Closable(Protocol):
    def close(self) -> Coroutine[Any, Any, None]: ...


C = TypeVar("C", bound=_Closable)


class LoopThread:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # A coroutine is either submitted before the loop is told to stop, or refused. The lock is reentrant because
        # Python may collect an abandoned `each` at any moment, which calls `run`.
        self._lock = threading.RLock()
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="treadle-sync", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and return its result, or raise its exception. Ctrl-C here cancels it."""
        with self._lock:
            if self._closing:
                work.close()
                raise InvalidInput(_CLOSED)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException as error:
            future.cancel()
            if self._closing and isinstance(error, CancelledError):  # another thread closed the loop meanwhile
                raise InvalidInput(_CLOSED) from error
            raise

    def iterate(self, iterator: AsyncIterator[T]) -> Iterator[T]:
        """Yield the items of an async iterator, and close it when the iteration ends."""
        try:
            while (one := self.run(_read_next(iterator))) is not None:
                yield one
        finally:
            with suppress(InvalidInput):  # the loop was closed first, and its readers with it
                self.run(_close(iterator))

    def close(self) -> None:
        """End the loop and its thread. A `run` of another thread that is under way raises InvalidInput."""
        with self._lock:
            if not self._closing:
                self._closing = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        self._loop.run_forever()
        try:
            self._loop.run_until_complete(_cancel_tasks(self._loop))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()


class Facade(Generic[W]):
    """The base of classes without `async`: each stands before another object, whose coroutines run in the loop."""

    def __init__(self, loop: LoopThread, wrapped: W) -> None:
        self._loop, self._wrapped = loop, wrapped


class LoopOwner(Facade[C]):
    """A façade with a loop of its own. Close it, or use it in a `with` block."""

    def __init__(self, wrapped: C) -> None:
        super().__init__(LoopThread(), wrapped)

    def close(self) -> None:
        """Close what it stands before, and end the thread. May be called twice."""
        try:
            with suppress(InvalidInput):
                self._loop.run(self._wrapped.close())
        finally:
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def make_blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """A method of a façade: the same one of the wrapped object, with the same parameters, waited for."""

    @wraps(method)
    def call(facade: Facade[Any], /, *args: P.args, **keywords: P.kwargs) -> T:
        return facade._loop.run(method(facade._wrapped, *args, **keywords))

    return call


def make_wrapping(
    method: Callable[Concatenate[Any, P], W], kind: Callable[[LoopThread, W], T]
) -> Callable[Concatenate[Any, P], T]:
    """A method of a façade: the same one of the wrapped object, whose result gets a façade of this kind."""

    @wraps(method)
    def call(facade: Facade[Any], /, *args: P.args, **keywords: P.kwargs) -> T:
        return kind(facade._loop, method(facade._wrapped, *args, **keywords))

    return call


def copy_parameters(of: Callable[P, object]) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Give the `__init__` of a façade the parameters of the class that it wraps."""

    def wrap(init: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        @wraps(of.__init__)
        def call(facade: Any, /, *args: P.args, **keywords: P.kwargs) -> None:
            init(facade, *args, **keywords)

        return call

    return wrap


async def _cancel_tasks(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop) - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _read_next(iterator: AsyncIterator[T]) -> T | None:
    return await anext(iterator, None)


async def _close(iterator: AsyncIterator[Any]) -> None:
    if isinstance(iterator, AsyncGenerator):
        await iterator.aclose()
