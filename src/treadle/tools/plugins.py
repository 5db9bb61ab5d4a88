"""Tools that other installed packages bring, by the entry point group `treadle.tools` (T-10). An entry point names a
tool made with `@tool`, or a list of them. A broken package is a warning; it never keeps the others from working."""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from treadle.ports.toolset import Tool
from treadle.protocol.tools import ToolSpec

GROUP = "treadle.tools"


def load_tools(points: Iterable[EntryPoint] | None = None) -> tuple[list[Tool], list[str]]:
    """The tools that were found, in the order of their entry points' names, and what went wrong."""
    tools: list[Tool] = []
    warnings: list[str] = []
    for point in sorted(entry_points(group=GROUP) if points is None else points, key=lambda point: point.name):
        try:
            found = point.load()
        except Exception as error:
            warnings.append(f"The tools of {point.value} cannot be loaded: {type(error).__name__}: {error}")
            continue
        for item in found if isinstance(found, list | tuple) else [found]:
            if isinstance(getattr(item, "spec", None), ToolSpec):
                tools.append(item)
            else:
                warnings.append(f"{point.value} is no tool; make it one with @treadle.tool.")
    return tools, warnings
