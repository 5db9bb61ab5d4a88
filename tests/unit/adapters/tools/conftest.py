"""A project in a temporary directory, and calls on it as the loop makes them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from treadle.base.types import CallKey, ChatId
from treadle.ports.toolset import Invocation
from treadle.protocol.options import ChatOptions

Call = Callable[..., Invocation]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    return root


@pytest.fixture
def call(project: Path) -> Call:
    """`call(path="a")` is a call with these arguments; `_plan`, `_emit` and `_known_files` fill the other fields."""

    def make(
        _plan: dict[str, Any] | None = None,
        _emit: Callable[[str], None] = lambda _text: None,
        _known_files: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> Invocation:
        options = ChatOptions(root=str(project))
        return Invocation(
            ChatId("c_1"), CallKey("1.0"), "tool", arguments, _plan, options, known_files=_known_files or {}, emit=_emit
        )

    return make
