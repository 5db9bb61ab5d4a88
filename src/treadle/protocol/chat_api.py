"""One chat, as a program or a screen works with it, wherever it runs: `treadle.library.chat.Chat` in this process and
`treadle.client.ClientChat` over HTTP implement all of this. Each has more that only makes sense there."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

from treadle.base.types import ChatId
from treadle.protocol.commands import Result
from treadle.protocol.events import Delivery, OpenAction
from treadle.protocol.permissions import RuleScope
from treadle.protocol.views import ChildView, JobChanges, JobOutput, JobView


class JobApi(Protocol):
    """A background command of a chat. `view` is what was known when it was last asked about."""

    view: JobView

    async def tail(self, offset: int = ...) -> JobOutput: ...

    async def send(self, text: str = "", *, enter: bool = True, end: bool = False) -> object: ...

    async def stop(self) -> JobView: ...

    async def changes(self) -> JobChanges: ...

    async def discard(self) -> JobView: ...


class ChatApi(Protocol):
    """Commands return an awaitable; awaiting it carries the command out."""

    id: ChatId
    warnings: tuple[str, ...]

    def send(self, content: str, *, delivery: Delivery = "queued") -> Awaitable[object]: ...

    def submit(self, results: Sequence[Result]) -> Awaitable[object]: ...

    def approve(
        self,
        action: OpenAction,
        *,
        arguments: Mapping[str, Any] | None = None,
        offer: int | None = None,
        scope: RuleScope = "chat",
    ) -> Awaitable[object]: ...

    def deny(self, action: OpenAction, feedback: str = "") -> Awaitable[object]: ...

    def answer(self, action: OpenAction | str, text: str) -> Awaitable[object]: ...

    async def arguments(self, action: OpenAction) -> dict[str, Any]: ...

    def edit(self, message: int, content: str, *, files: bool = False) -> Awaitable[object]: ...

    def apply(
        self, path: str = "", *, content: str | None = None, block: int = 0, patch: str | None = None
    ) -> Awaitable[object]: ...

    def run_command(self, line: str) -> Awaitable[object]: ...

    def compact(self) -> Awaitable[object]: ...

    def interrupt(self) -> Awaitable[object]: ...

    def edit_queued(self, queued: str, content: str) -> Awaitable[object]: ...

    def delete_queued(self, queued: str) -> Awaitable[object]: ...

    def promote(self, queued: str) -> Awaitable[object]: ...

    def change(self, /, **changes: Any) -> Awaitable[object]: ...

    async def delete(self) -> None: ...

    async def children(self) -> Sequence[ChildView]: ...

    async def jobs(self) -> Sequence[JobApi]: ...
