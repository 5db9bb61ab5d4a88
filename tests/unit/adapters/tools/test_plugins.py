"""Tools by entry point (T-10)."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from treadle import tool
from treadle.adapters.tools.function import GROUP, load_tools


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
    assert [loaded_tool.spec.name for loaded_tool in tools] == ["weather", "weather"]
    assert not warnings


def test_a_broken_package_is_a_warning(package: ModuleType) -> None:
    package.one = weather  # type: ignore[attr-defined]
    package.text = "no tool"  # type: ignore[attr-defined]
    points = [point("a", "no_such_package:x"), point("b", "some_package:text"), point("c", "some_package:one")]
    tools, warnings = load_tools(points)
    assert [loaded_tool.spec.name for loaded_tool in tools] == ["weather"]
    assert "no_such_package" in warnings[0]
    assert "no tool" in warnings[1]


def test_what_is_installed_is_looked_at() -> None:
    tools, warnings = load_tools()
    assert isinstance(tools, list)
    assert not warnings


@pytest.mark.parametrize("folder", ["site/acme-1.0.dist-info", "site/acme.egg-info", "acme-1.0.egg/EGG-INFO"])
def test_a_package_on_the_path_is_found(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described = tmp_path / folder
    described.mkdir(parents=True)
    for name in ("METADATA", "PKG-INFO"):
        (described / name).write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(f"[{GROUP}]\nweather = acme_weather:weather\n")
    (described.parent / "acme_weather.py").write_text(
        "from treadle import tool\n\n@tool\ndef weather(city: str) -> str:\n    return city\n"
    )
    monkeypatch.syspath_prepend(str(described.parent))
    monkeypatch.delitem(sys.modules, "acme_weather", raising=False)
    tools, warnings = load_tools()
    assert [loaded_tool.spec.name for loaded_tool in tools] == ["weather"]
    assert not warnings


def test_without_such_a_package_nothing_is_loaded_to_look_for_one() -> None:
    code = "from treadle.adapters.tools.function import load_tools; load_tools()"
    code += "; import sys; print('importlib.metadata' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "False"
