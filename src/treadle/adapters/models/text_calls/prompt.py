"""The prompt of a model that calls tools in its text: the tools, its earlier calls and their results. The same tools
and entries give the same bytes, so that the prefix of a request stays the same (L-21)."""

from collections.abc import Mapping, Sequence

from treadle.adapters.models.wire.json import encode_json, json_object, tool_name
from treadle.base.types import CallKey
from treadle.protocol.content import ToolRequest, ToolResult
from treadle.protocol.tools import ToolSpec

_TOOLS = """\
# Tools

You can call tools. To call one, write its name and its arguments as one JSON object between two tags, like this:

<tool_call>
{"name": "%(name)s", "arguments": %(arguments)s}
</tool_call>

- Inside the tags stands nothing but valid JSON: double quotes, newlines in strings as \\n, quotes in strings as \\".
- For several calls, write several such blocks, one after the other.
- When you have written your calls, stop. The results come to you in <tool_response> blocks; never write these.
- When no call is needed, answer in plain text without such a block.

The tools are, one a line, with the JSON Schema of their arguments:

<tools>
%(tools)s
</tools>
"""
_END = "</tool_response"


def tools_text(tools: Sequence[ToolSpec]) -> str:
    """The part of the system text that describes the tools."""
    if not tools:
        return ""
    lines = (
        encode_json({"name": tool.name, "description": tool.description, "parameters": tool.parameters}).decode()
        for tool in tools
    )
    first = tools[0]
    example = encode_json(_example(first)).decode()
    return _TOOLS % {"name": first.name, "arguments": example, "tools": "\n".join(lines)}


def _example(tool: ToolSpec) -> dict[str, object]:
    """Arguments that a call of the tool might have: only those that it must have."""
    properties = tool.parameters.get("properties")
    required = tool.parameters.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return {}
    return {name: _value(properties.get(name)) for name in required if isinstance(name, str)}


def _value(schema: object) -> object:
    kind = schema.get("type") if isinstance(schema, dict) else None
    samples: dict[object, object] = {"integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}
    return samples.get(kind, "…") if isinstance(kind, str) else "…"


def calls_text(text: str, calls: Sequence[ToolRequest]) -> str:
    """An earlier answer of the model, with its calls as it should have written them."""
    blocks = (
        f'<tool_call>\n{{"name": "{tool_name(call.name)}", "arguments": {json_object(call.arguments)}}}\n</tool_call>'
        for call in calls
    )
    return "\n".join((text, *blocks) if text else blocks)


def results_text(results: Sequence[ToolResult], names: Mapping[CallKey, str]) -> str:
    """Return all results of a turn as one message. The text of a result cannot end its own block."""
    return "\n".join(_result(result, names.get(result.call, "")) for result in results)


def _result(result: ToolResult, name: str) -> str:
    failed = "" if result.success else ' status="error"'
    text = result.text.replace(_END, "<\\/tool_response") if _END in result.text else result.text
    return f'<tool_response name="{tool_name(name)}"{failed}>\n{text}\n</tool_response>'
