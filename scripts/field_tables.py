"""The fields of a struct as a table of a reference page."""

import ast
import inspect
import json
from types import ModuleType
from typing import get_type_hints

import msgspec

from scripts.golden import type_text
from treadle.library import command_stream
from treadle.ports import toolset
from treadle.protocol import (
    content,
    events,
    files,
    live_events,
    options,
    subagent_events,
    tool_events,
    tools,
    workspace_events,
)


def field_docs(module: ModuleType) -> dict[tuple[str, str], str]:
    """(class, field) → the text that stands under the field in the source."""
    found: dict[tuple[str, str], str] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for field, after in zip(node.body, node.body[1:], strict=False):
            match field, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[node.name, name] = " ".join(text.split())
    return found


MODULES = (
    *(content, events, tool_events, subagent_events, workspace_events, live_events, files, options, tools),
    *(command_stream, toolset),
)
DOCUMENTED = {key: text for module in MODULES for key, text in field_docs(module).items()}


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def field_table(kind: type[msgspec.Struct]) -> list[str]:
    hints = get_type_hints(kind)
    rows = ["| field | type | default | what |", "|---|---|---|---|"]
    for field in msgspec.structs.fields(kind):
        about = next(
            (
                DOCUMENTED[base.__name__, field.name]
                for base in kind.__mro__
                if (base.__name__, field.name) in DOCUMENTED
            ),
            "",
        )
        shown = cell(type_text(hints[field.name]))
        rows.append(f"| `{field.encode_name}` | {shown} | {cell(_default(field))} | {cell(about)} |")
    return rows


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    value = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
    if callable(value):
        return "a function"
    plain = msgspec.to_builtins(value)
    return f"`{json.dumps(plain, ensure_ascii=False)}`" if plain not in ("", (), [], {}, None) else "empty"
