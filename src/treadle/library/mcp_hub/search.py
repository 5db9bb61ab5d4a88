"""The names of servers' tools, and many tools at little cost: the model sees their names, looks for what it needs, and
calls what it found by one and the same tool, so that what it is sent stays the same from turn to turn (L-21)."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

import msgspec

from treadle.adapters.mcp.listing import ListedTool
from treadle.adapters.mcp.tool import ServerTool
from treadle.adapters.tools.builtin.base import build_parameters
from treadle.base.inert import escape_unprintable
from treadle.errors import ToolError
from treadle.ports.toolset import Invocation, Outcome, ReadOnlyTool
from treadle.protocol.options import ChatOptions
from treadle.protocol.tools import ANY_OBJECT, ToolSpec

FIND = "find_tools"
CALL = "call_tool"
DEFER_CHARS = 20_000  # of schemas, about 5,000 tokens: from there on, tools are looked for instead of listed
NAMES_CHARS = 5_600
_FOUND = 8
_MAX_NAME = 64
_MAX_DESCRIPTION = 2_000
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_WORD = re.compile(r"[a-z0-9]+")

Available = Callable[[ChatOptions], Mapping[str, ServerTool]]
Starting = Callable[[ChatOptions], Sequence[str]]  # The servers of which no tool is known before they have started


def make_tool_name(server: str, tool: str) -> str:
    """Return `server__tool` as every provider accepts it. A changed name gets a hash, so it stays unique."""
    name = f"{server}__{tool}"
    plain = _NO_NAME.sub("_", name)
    if plain == name and len(name) <= _MAX_NAME:
        return name
    return f"{plain[: _MAX_NAME - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def make_spec(server: str, tool: ListedTool, timeout_s: float, *, accept_hints: bool) -> ToolSpec:
    """The tool as the model and the rules see it. Its hints count only where the user accepts them."""
    schema = tool.schema if isinstance(tool.schema.get("properties", {}), dict) else {}
    properties = schema.get("properties", {})
    names = ("path", "command", "query", "url", *properties)
    return ToolSpec(
        make_tool_name(server, tool.name),
        escape_unprintable(tool.description)[:_MAX_DESCRIPTION],
        dict(ANY_OBJECT) | schema,
        read_only=accept_hints and tool.read_only,
        idempotent=accept_hints and tool.idempotent,
        timeout_s=timeout_s,
        summary_argument=next((name for name in names if name in properties), ""),
        server=server,
    )


def needs_deferral(tools: Sequence[ServerTool]) -> bool:
    return sum(len(msgspec.json.encode(tool.spec)) for tool in tools) > DEFER_CHARS


def format_names(tools: Sequence[ServerTool]) -> str:
    """Return the tool names by server, as many as fit; the others are counted."""
    by_server: dict[str, list[str]] = {}
    for spec in (tool.spec for tool in tools):
        by_server.setdefault(spec.server, []).append(spec.name.removeprefix(f"{spec.server}__"))
    room = NAMES_CHARS // max(1, len(by_server))
    lines: list[str] = []
    for server, names in by_server.items():
        sizes = accumulate(len(name) + 1 for name in names)
        shown_names = [name for name, size in zip(names, sizes, strict=True) if size - 1 <= room]
        more = f" and {len(names) - len(shown_names)} more" if len(shown_names) < len(names) else ""
        lines.append(f"{server}__: {' '.join(shown_names)}{more}")
    return "\n".join(lines)


class FindTools(ReadOnlyTool):
    """`deferred`: tools that are not listed, of which the names are told here."""

    def __init__(self, available: Available, starting: Starting, deferred: Sequence[ServerTool]) -> None:
        self._available, self._starting = available, starting
        names = f"\nTools that are only found this way:\n{format_names(deferred)}" if deferred else ""
        self.spec = ToolSpec(
            FIND,
            "Look for tools of the connected MCP servers, by name or by what they do; gives their schemas. Call what "
            f"was found by its name, or with {CALL}.{names}",
            build_parameters(
                ("query",), query={"type": "string", "description": "Words, or a name. Empty lists all names."}
            ),
            read_only=True,
            idempotent=True,
            summary_argument="query",
        )

    async def run(self, invocation: Invocation) -> Outcome:
        tools = self._available(invocation.options)
        query = str(invocation.arguments.get("query", "")).strip()
        starting = "".join(
            f"\nThe MCP server {name} is still starting: its tools can be found in a moment."
            for name in self._starting(invocation.options)
        )
        if not tools:
            return Outcome(starting.strip() or "No MCP server is connected at present.")
        if not query:
            return Outcome("\n".join(tools) + starting, f"{len(tools)} tools")
        matches = rank_tools(query, list(tools.values()))
        if not matches:
            text = f"None of {len(tools)} tools fits {query!r}; other words may, or an empty query for all names."
            return Outcome(text + starting)
        specs = [tool.spec for tool in matches[:_FOUND]]
        texts = [f"{s.name}: {s.description}\n{msgspec.json.encode(s.parameters).decode()}" for s in specs]
        more = [tool.spec.name for tool in matches[_FOUND : _FOUND + 20]]
        return Outcome("\n\n".join(texts + ([f"Also: {', '.join(more)}"] if more else [])), f"{len(matches)} tools")


class CallTool(ReadOnlyTool):
    """Stands for the tool that a call names; the toolset sees through it, and runs here only what it cannot resolve."""

    spec = ToolSpec(
        CALL,
        f"Call a tool that {FIND} found and that is not listed itself.",
        build_parameters(
            ("name",),
            name={"type": "string", "minLength": 1},
            arguments={"type": "object", "description": "As its schema says."},
        ),
        read_only=True,
        idempotent=True,
        summary_argument="name",
    )

    async def run(self, invocation: Invocation) -> Outcome:
        raise ToolError(f"There is no tool {invocation.arguments.get('name')!r} of an MCP server; look with {FIND}.")


def rank_tools(query: str, tools: Sequence[ServerTool]) -> list[ServerTool]:
    """Best first: the very name, then by how many of the words the name and the description have."""
    query_words = set(_WORD.findall(query.lower()))
    scores: list[tuple[float, int, ServerTool]] = []
    for place, tool in enumerate(tools):
        name = tool.spec.name.lower()
        score = 100.0 if query.lower() in (name, tool.listed.name.lower()) else 0.0
        in_name = set(_WORD.findall(name.replace("_", " ")))
        in_text = set(_WORD.findall(tool.spec.description.lower()))
        for word in query_words:
            is_partial_match = any(word in each or each in word for each in in_name if len(each) > 2)
            score += 3 if word in in_name else 1.5 if is_partial_match else 1 if word in in_text else 0
        if score:
            scores.append((-score, place, tool))
    return [tool for _, _, tool in sorted(scores, key=lambda each: each[:2])]
