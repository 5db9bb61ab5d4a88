"""The pages docs/reference/library.md and docs/reference/tools.md, made from the code: what `import treadle` gives, and
the tools that models have."""

import inspect
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

import treadle
from scripts.field_tables import field_table
from treadle.library.command_stream import CommandStream
from treadle.library.files import ChatFiles
from treadle.library.jobs import Job
from treadle.protocol.tools import ToolSpec

NOTE = "<!-- Made by scripts/library_reference.py from the code; do not edit. -->"
LIBRARY_INTRO = """\
What `import treadle` gives, and what hangs on it. How it is used is told in [the guide](../guide/library.md).
Everything is typed. `treadle.sync` has the same names without `async`: what is awaited here is called there, and what
is iterated with `async for` with `for`.
"""
TOOLS_INTRO = """\
The tools that come with Treadle, with the descriptions and arguments that models see, in their order. `run --tools A,B`
and the option `tools` choose among them; the [guide to permissions](../guide/permissions.md) says which calls are asked
for. **effect** says what a call may do: `none`, `read` (such calls of one turn run side by side, and again after a
crash), `edit` (files, judged and undoable), `execute`. Tools of your own: [the library guide](../guide/library.md).
"""
BEYOND: tuple[type, ...] = (CommandStream, ChatFiles, Job)
"""What the public names give back."""


MADE = (treadle.Agent, treadle.ScriptedModel, treadle.SimpleView)
"""What users make themselves; the rest is handed to them."""


def library_page() -> str:
    lines = [NOTE, "# Library", "", LIBRARY_INTRO]
    for name in treadle.__all__:
        if name != "__version__":
            lines += [f"## {name}", "", *_about(name, getattr(treadle, name))]
    for kind in BEYOND:
        lines += [f"## {kind.__name__}", "", *_about(kind.__name__, kind)]
    return "\n".join(lines).rstrip() + "\n"


def _about(name: str, given: Any) -> Iterator[str]:
    if not inspect.isclass(given):
        yield from (*_code(name, given), "", _text(given), "")
        return
    yield from (f"`{given.__module__}.{given.__qualname__}`", "", _text(given), "")
    if issubclass(given, msgspec.Struct):
        yield from (*field_table(given), "")
        return
    if not issubclass(given, Exception):
        if given in MADE:
            yield from (*_code(name, given.__init__), "")
        yield from _methods(given)


def _methods(kind: type) -> Iterator[str]:
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield from (f"### {kind.__name__}.{name}", "", _text(member) or "A property.", "")
        elif inspect.isfunction(member):
            yield from (f"### {kind.__name__}.{name}", "", *_code(name, member), "")
            if text := _text(member):
                yield from (text, "")


def _code(name: str, given: Any) -> list[str]:
    """The signature as it is written, without what nobody passes."""
    signature = inspect.signature(given)
    kept = [each for each in signature.parameters.values() if each.name != "self"]
    words = [_word(each) for each in kept]
    if any(each.kind is each.KEYWORD_ONLY for each in kept) and not any(
        each.kind is each.VAR_POSITIONAL for each in kept
    ):
        first = next(at for at, each in enumerate(kept) if each.kind is each.KEYWORD_ONLY)
        words.insert(first, "*")
    back = "" if signature.return_annotation in (inspect.Signature.empty, None) else _type(signature.return_annotation)
    asynchronous = "async " if inspect.iscoroutinefunction(given) else ""
    joined = ", ".join(words)
    head = f"{asynchronous}{name}({joined})" + (f" -> {back}" if back else "")
    if len(head) > 110:
        inner = "".join(f"    {word},\n" for word in words)
        head = f"{asynchronous}{name}(\n{inner})" + (f" -> {back}" if back else "")
    return ["```python", head, "```"]


def _word(parameter: inspect.Parameter) -> str:
    stars = "*" * (parameter.kind is parameter.VAR_POSITIONAL) + "**" * (parameter.kind is parameter.VAR_KEYWORD)
    kind = "" if parameter.annotation is parameter.empty else f": {_type(parameter.annotation)}"
    default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
    return f"{stars}{parameter.name}{kind}{default}"


def _default(value: object) -> str:
    text = repr(value)
    return "..." if " at 0x" in text or "<" in text else text


def _type(given: object) -> str:
    if isinstance(given, type) and not hasattr(given, "__args__"):
        text = given.__name__
    else:
        text = given if isinstance(given, str) else str(given)
    text = re.sub(r"\*?<class '(?:\w+\.)*(\w+)'>", r"Unpack[\1]", re.sub(r"~(\w)", r"\1", text))
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z]|\w+\[)", "", text).replace("NoneType", "None")


def _text(given: Any) -> str:
    """A docstring as a paragraph; where a class has none of its own, nothing."""
    text = given.__doc__ if inspect.isclass(given) else inspect.getdoc(given)
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(text)) if text else []
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)


# -- tools ------------------------------------------------------------------------------------------------------------


def tools_page() -> str:
    lines = [NOTE, "# Built-in tools", "", TOOLS_INTRO]
    for spec in _specs():
        lines += [*_tool(spec), ""]
    lines += [*_aliases()]
    return "\n".join(lines).rstrip() + "\n"


def _specs() -> list[ToolSpec]:
    from treadle.library.agent import Agent
    from treadle.protocol.options import ChatOptions

    with tempfile.TemporaryDirectory() as home:
        agent = Agent(home=Path(home))
        return list(agent.deps.tools.list_specs(ChatOptions(interactive=True, mode="autopilot")))


def _tool(spec: ToolSpec) -> Iterator[str]:
    yield from (f"## {spec.name}", "", spec.description, "")
    limit = f" · **timeout**: {spec.timeout_s:g} s" if getattr(spec, "timeout_s", 0) else ""
    yield from (f"**effect**: `{spec.effect}`{limit}", "")
    properties: dict[str, dict[str, Any]] = spec.parameters.get("properties", {})
    if not properties:
        yield "No arguments."
        return
    required = spec.parameters.get("required", ())
    yield from ("| argument | type | what |", "|---|---|---|")
    for name, about in properties.items():
        need = ", required" if name in required else ""
        yield f"| `{name}` | {_kind(about)}{need} | {_cell(about)} |"


def _kind(about: dict[str, Any]) -> str:
    if "enum" in about:
        return " or ".join(f"`{json.dumps(each)}`" for each in about["enum"])
    if "anyOf" in about:
        return " or ".join(_kind(each) for each in about["anyOf"])
    kind = about.get("type", "any")
    kind = " or ".join(kind) if isinstance(kind, list) else str(kind)
    return f"{kind} of {_kind(about['items'])}" if kind == "array" and "items" in about else kind


def _cell(about: dict[str, Any]) -> str:
    limits = [f"{word} {about[key]}" for key, word in (("minimum", "at least"), ("maximum", "at most")) if key in about]
    if "default" in about:
        limits.append(f"`{json.dumps(about['default'])}` if not given")
    text = " ".join(str(about.get("description", "")).split())
    return (text + (f" ({', '.join(limits)})" if limits else "")).replace("|", "\\|")


def _aliases() -> Iterator[str]:
    from treadle.adapters.tools.registry import ALIASES

    yield from (
        "## Other names",
        "",
        "Models that learned these names elsewhere are understood; a tool of yours of the same name comes first.",
        "",
        "| name | is taken for |",
        "|---|---|",
    )
    for name, meant in sorted(ALIASES.items()):
        yield f"| `{name}` | `{meant}` |"
