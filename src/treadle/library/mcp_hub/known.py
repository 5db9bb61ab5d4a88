"""The stored listings of servers' tools in Treadle's home, and the tool names that models and rules use."""

import hashlib
import re

import msgspec

from treadle.adapters.mcp.listing import ListedTool, Listing
from treadle.base.inert import printable
from treadle.protocol.tools import ANY_OBJECT, ToolSpec

FILE_NAME = "mcp-tools.json"
_MAX_NAME = 64
_MAX_DESCRIPTION = 2_000
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")


class ListingsFile(msgspec.Struct, frozen=True):
    """The last known listing of each server, by the mark of its declaration."""

    servers: dict[str, Listing] = {}


KEPT = 64


def remember(book: ListingsFile, mark: str, listing: Listing) -> ListingsFile:
    other_entries = [(each, entry_listing) for each, entry_listing in book.servers.items() if each != mark]
    return ListingsFile(dict([*other_entries[-(KEPT - 1) :], (mark, listing)]))


def tool_name(server: str, tool: str) -> str:
    """Return `server__tool` as every provider accepts it. A changed name gets a hash, so it stays unique."""
    name = f"{server}__{tool}"
    plain = _NO_NAME.sub("_", name)
    if plain == name and len(name) <= _MAX_NAME:
        return name
    return f"{plain[: _MAX_NAME - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def spec_of(server: str, tool: ListedTool, timeout_s: float, *, accept_hints: bool) -> ToolSpec:
    """The tool as the model and the rules see it. Its hints count only where the user accepts them."""
    schema = tool.schema if isinstance(tool.schema.get("properties", {}), dict) else {}
    properties = schema.get("properties", {})
    return ToolSpec(
        tool_name(server, tool.name),
        printable(tool.description)[:_MAX_DESCRIPTION],
        dict(ANY_OBJECT) | schema,
        read_only=accept_hints and tool.read_only,
        idempotent=accept_hints and tool.idempotent,
        timeout_s=timeout_s,
        summary_argument=next(
            (key for key in ("path", "command", "query", "url", *properties) if key in properties), ""
        ),
        server=server,
    )
