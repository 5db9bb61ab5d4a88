"""Which rules a person is offered when asked (S-07), each with what it would cover and what not. Never one that would
let through an interpreter or a wrapper as a whole, nor more than one kind of command."""

import shlex
from collections.abc import Sequence

from treadle.adapters.policy.command_rules import ANY, allows_part, is_interpreter, never_allowed, place_words
from treadle.adapters.policy.globs import literal
from treadle.adapters.policy.shell.model import Part
from treadle.adapters.policy.tool_pins import pin_of
from treadle.protocol.permissions import STANDING, Offer, Rule
from treadle.protocol.tools import MCP_PREFIX, ToolSpec

_FAMILIES = frozenset(
    {("pytest",), ("mypy",), ("pyright",), ("tsc",), ("eslint",), ("jest",), ("vitest",)}
    | {("npm", "test"), ("yarn", "test"), ("pnpm", "test"), ("bun", "test")}
    | {("cargo", word) for word in ("build", "check", "clippy", "fmt", "test")}
    | {("go", word) for word in ("build", "fmt", "test", "vet")}
    | {("git", word) for word in ("add", "commit", "fetch", "restore", "stash", "switch")}
    | {("ruff", word) for word in ("check", "format")}
    | {("gradle", "test"), ("mvn", "test"), ("dotnet", "build"), ("dotnet", "test"), ("swift", "test")}
)
"""Commands that stay what they are with any further words."""
_INLINE = frozenset({"-c", "-e", "-E", "-p", "--eval", "--command", "-"})
_LONGEST = 200

LEAVES = "the same with other words, with its output into a file, with variables set for it, or run by another command"
LEAVES_FAMILY = "other commands of the same program, the same with its output into a file, or run by another command"


def for_command(parts: Sequence[Part], tool: str, folder: str | None) -> tuple[Offer, ...]:
    """For the simple commands that need an answer, in their folder. One rule answers for one of them; for several there
    is none."""
    if len({part.words for part in parts}) != 1 or not parts[0].words:
        return ()
    part = parts[0]
    words = place_words(part.words, folder)
    if words is None or ANY in "".join(words) or never_allowed(words):
        return ()
    if is_interpreter(words[0]) and _INLINE.intersection(words):  # an interpreter with a program among its words
        return ()
    pattern = shlex.join(words)
    exact = Rule("allow", tool, pattern)
    if len(pattern) > _LONGEST or any(allows_part((exact,), each, folder) is None for each in parts):
        return ()
    offer = Offer(exact, f"`{pattern}`, word for word", LEAVES, STANDING)
    family = next((family for family in (part.words[:2], part.words[:1]) if family in _FAMILIES), None)
    if family is None:
        return (offer,)
    name = shlex.join(family)
    return offer, Offer(Rule("allow", tool, f"{name} {ANY}"), f"`{name}` with any words", LEAVES_FAMILY, STANDING)


def for_files(files: Sequence[str], tool: str, *, sensitive: bool) -> tuple[Offer, ...]:
    """For the files that need an answer, by their names relative to the root."""
    if len(set(files)) != 1:
        return ()
    (file,) = set(files)
    exact = Offer(Rule("allow", tool, literal(file)), f"every change of {file}", "every other file", STANDING)
    folder = file.rpartition("/")[0]
    if sensitive or not folder:
        return (exact,)
    wide = Rule("allow", tool, f"{literal(folder).removeprefix('/')}/**")
    return (exact, Offer(wide, f"every change below {folder}/", "sensitive files in it, and all others", STANDING))


def for_tool(spec: ToolSpec, *, has_changed: bool) -> tuple[Offer, ...]:
    """`changed`: a rule names the tool, and the tool has changed since. Then it alone is offered."""
    tool, server = spec.name, spec.server
    calls = f"every call of {tool}, with any arguments"
    if not server:
        return (Offer(Rule("allow", tool), calls, "every other tool", STANDING),)
    leaves = "every other tool, and this one when its description or schema changes"
    exact = Offer(Rule("allow", tool, pin=pin_of(spec)), calls, leaves, STANDING)
    if has_changed:
        return (exact,)
    wide = Rule("allow", f"{MCP_PREFIX}{server}__*")
    covers = f"every tool of the MCP server {server}, also one that it adds later, as each is when it is first called"
    return exact, Offer(wide, covers, "every other server, and a tool that changes", STANDING)
