"""Tools that a client declares for one chat and runs itself (A-01). Checks them; runs nothing."""

from collections.abc import Collection, Sequence

from treadle.adapters.tools.validate import schema_problem
from treadle.errors import InvalidInput
from treadle.protocol.tools import ANY_OBJECT, DynamicTool, ToolSpec, require_name

MAX_DYNAMIC_TOOLS = 250


def declare(tools: Sequence[DynamicTool], builtin_names: Collection[str]) -> tuple[list[ToolSpec], list[str]]:
    """The specs of a client's tools in their order, and warnings. InvalidInput for what cannot be accepted."""
    if len(tools) > MAX_DYNAMIC_TOOLS:
        raise InvalidInput(f"{len(tools)} dynamic tools are declared; at most {MAX_DYNAMIC_TOOLS} are allowed.")
    names: set[str] = set()
    specs: list[ToolSpec] = []
    warnings: list[str] = []
    for tool in tools:
        require_name(tool.name)
        if tool.name in names:
            raise InvalidInput(f"The dynamic tool {tool.name!r} is declared twice; names must be unique.")
        names.add(tool.name)
        if tool.name in builtin_names:
            warnings.append(f"The dynamic tool {tool.name!r} is ignored: a built-in tool has that name.")
            continue
        schema = tool.input_schema
        if wrong := schema_problem(schema):
            warnings.append(f"The input_schema of {tool.name!r} is ignored, its arguments are not checked: {wrong}")
            schema = dict(ANY_OBJECT)
        specs.append(ToolSpec(tool.name, tool.description, {"type": "object"} | schema, kind="client"))
    return specs, warnings
