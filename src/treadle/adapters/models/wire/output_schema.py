"""The schema of an answer in the formats of providers. Keywords that a provider does not accept are dropped:
`treadle.library.structured` checks every answer anyway."""

from collections.abc import Mapping
from typing import Any

from treadle.ports.model import ModelRequest

NAME = "answer"


def json_schema_format(request: ModelRequest) -> dict[str, Any] | None:
    """As OpenAI's protocols have it; None if any text will do."""
    schema = request.output_schema
    return None if schema is None else {"name": NAME, "schema": schema, "strict": is_strict(schema)}


def without_tools(request: ModelRequest) -> dict[str, Any] | None:
    """For servers whose constraint would forbid calls of tools, too."""
    return None if request.tools else request.output_schema


def is_strict(schema: Mapping[str, Any]) -> bool:
    """True if a schema is in the subset that OpenAI's strict mode accepts: every object is closed, and all its fields
    are required."""
    if schema.get("type") != "object":
        return False
    layer: list[Any] = [schema]
    while layer:
        part = layer.pop()
        if isinstance(part, list):
            layer += part
        if not isinstance(part, dict):
            continue
        if "properties" in part or part.get("type") == "object":
            fields = part.get("properties", {})
            if part.get("additionalProperties") is not False or set(part.get("required", ())) != set(fields):
                return False
        layer += part.values()
    return True
