"""One tool of a server, as the loop sees it. Knows nothing of how a server is reached."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from treadle.adapters.mcp.listing import ListedTool
from treadle.ports.toolset import Invocation, Outcome, Question, ReadOnlyTool, Settlement
from treadle.protocol.content import Image
from treadle.protocol.tools import ToolSpec

if TYPE_CHECKING:
    from treadle.adapters.mcp.calls import Calls
    from treadle.adapters.mcp.connection import McpConnection

MAX_LINES = 2_000
MAX_BYTES = 50_000  # The size limit of one result for the model (T-11)


class Blobs(Protocol):
    async def put_blob(self, data: bytes) -> str: ...


Meta = Callable[[Invocation, str, str], "Awaitable[dict[str, Any] | None]"]
"""(call, server, tool) → what the server is told beside the arguments."""


class ResultHandling(msgspec.Struct):
    """Where large content goes, what takes secrets out of it (S-11), and what a front end adds to calls."""

    blobs: Blobs
    redact: Callable[[str], str] = str
    meta: Meta | None = None


Announce = Callable[[Invocation], str]  # New tools of the chat's servers, as a text behind the result of a call
Connected = Callable[[], "Awaitable[tuple[McpConnection, Calls]]"]


class ServerTool(ReadOnlyTool):
    """Implements `treadle.ports.toolset.Tool`."""

    def __init__(
        self, spec: ToolSpec, listed: ListedTool, connected: Connected, keeping: "ResultHandling", announce: Announce
    ) -> None:
        self.listed, self.spec, self._connected, self._keeping = listed, spec, connected, keeping
        self._announce = announce

    async def preview(self, invocation: Invocation) -> str:
        """Describe the tool's hints. They are claims of the server and are not verified."""
        if self.listed.read_only:
            return "The server says that this only reads; nothing makes sure of that."
        return "The server calls this destructive." if self.listed.destructive else ""

    async def settle(self, invocation: Invocation) -> Settlement:
        """Only what the user believes to be idempotent is done again."""
        return "run_again" if self.spec.idempotent or self.spec.read_only else "unknown"

    async def run(self, invocation: Invocation) -> Outcome:
        from treadle.adapters.mcp.calls import render_content

        connection, calls = await self._connected()
        build_meta = self._keeping.meta
        meta = await build_meta(invocation, connection.name, self.listed.name) if build_meta is not None else None
        result = await calls.carry_on(connection, self.listed.name, invocation, meta)
        if isinstance(result, Question):
            return Outcome("", question=result)
        rendered = render_content(result.content, result.structured_content)
        blobs = self._keeping.blobs
        images = tuple([Image(kind, await blobs.put_blob(data)) for kind, data in rendered.pictures])
        text = self._keeping.redact(rendered.text)
        excerpt = shorten_result(text, invocation.call)
        output_blob = await blobs.put_blob(text.encode(errors="replace")) if excerpt != text else ""
        nothing = "It failed and said nothing." if result.is_error else "It is done; the server said nothing."
        shown_text = (excerpt or nothing) + self._announce(invocation)
        return Outcome(shown_text, success=not result.is_error, output=output_blob, images=images)


def shorten_result(text: str, handle: str) -> str:
    """As much of a result as a model gets, and how it gets the rest (T-11)."""
    lines = text.split("\n")
    excerpt = "\n".join(lines[:MAX_LINES])
    data = excerpt.encode(errors="replace")
    if len(lines) <= MAX_LINES and len(data) <= MAX_BYTES:
        return text
    excerpt = data[:MAX_BYTES].decode(errors="ignore")
    truncated_bytes = len(text.encode(errors="replace")) - len(excerpt.encode(errors="replace"))
    return f'{excerpt}\n[{truncated_bytes:,} bytes truncated; the whole output: read_output handle="{handle}"]'
