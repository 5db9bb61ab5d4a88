"""The names that models bring along for the arguments of the file tools (T-09, T-03)."""

from typing import Any

import msgspec
import pytest

from tests.unit.adapters.tools.contexts import context_with
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin import make_builtin_tools
from treadle.adapters.tools.registry import Tools
from treadle.protocol.options import ChatOptions
from treadle.protocol.tools import ToolSpec

TOOLS = Tools(make_builtin_tools(context_with(MemoryStore())))


@pytest.mark.parametrize(
    ("name", "arguments", "read"),
    [
        ("read_file", {"filePath": "a", "startLine": "2", "endLine": 3}, {"path": "a", "start_line": 2, "end_line": 3}),
        ("create_file", {"path": "a", "file_text": "x"}, {"path": "a", "content": "x"}),
        (
            "str_replace",
            {"file_path": "a", "old_string": "x", "new_string": "y"},
            {"path": "a", "old_str": "x", "new_str": "y"},
        ),
        (
            "edit_file",
            {"path": "a", "search": "x", "replace": "y", "replaceAll": "true"},
            {"path": "a", "old_str": "x", "new_str": "y", "replace_all": True},
        ),
        ("edit_file", {"path": "a", "contents": "x"}, {"path": "a", "content": "x"}),
        ("apply_patch", {"input": "*** Begin Patch"}, {"patch": "*** Begin Patch"}),
    ],
)
def test_other_names_are_understood(name: str, arguments: dict[str, Any], read: dict[str, Any]) -> None:
    tool = TOOLS.find(name, ChatOptions())
    assert tool is not None
    assert not isinstance(tool, ToolSpec)
    assert TOOLS.parse_arguments(tool.spec, msgspec.json.encode(arguments).decode()) == read
