"""Tools by entry point (T-10)."""

import sys
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from treadle import tool
from treadle.tools.function import GROUP, load_tools


@tool(read_only=True)
def weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("some_package")
    monkeypatch.setitem(sys.modules, "some_package", module)
    return module


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, GROUP)


def test_tools_are_found_alone_and_in_lists(package: ModuleType) -> None:
    package.one = weather  # type: ignore[attr-defined]
    package.many = [weather]  # type: ignore[attr-defined]
    tools, warnings = load_tools([point("b", "some_package:one"), point("a", "some_package:many")])
    assert [found.spec.name for found in tools] == ["weather", "weather"]
    assert not warnings


def test_a_broken_package_is_a_warning(package: ModuleType) -> None:
    package.one = weather  # type: ignore[attr-defined]
    package.text = "no tool"  # type: ignore[attr-defined]
    points = [point("a", "no_such_package:x"), point("b", "some_package:text"), point("c", "some_package:one")]
    tools, warnings = load_tools(points)
    assert [found.spec.name for found in tools] == ["weather"]
    assert "no_such_package" in warnings[0]
    assert "no tool" in warnings[1]


def test_what_is_installed_is_looked_at() -> None:
    tools, warnings = load_tools()
    assert isinstance(tools, list)
    assert not warnings
