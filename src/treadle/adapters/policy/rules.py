"""Standing answers (S-07): the parts of a rule, and the files and tools that it covers; commands: `command_rules`.
Pure: `rule_book` keeps the rules, `standard` asks."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from treadle.adapters.policy.command_rules import check_command_pattern
from treadle.adapters.policy.globs import is_literal, matches
from treadle.base.host_patterns import ALL
from treadle.base.host_patterns import check as check_host
from treadle.errors import InvalidInput
from treadle.protocol.permissions import NETWORK_TOOL, Rule, RuleEffect, check_standing
from treadle.protocol.tools import COMMAND_TOOL, EDIT_TOOL, EDIT_TOOLS, INPUT_TOOL, MCP_PREFIX, ToolSpec


def check(rule: Rule) -> None:
    """InvalidInput for a rule that says nothing, cannot be read, or would let through everything."""
    if not rule.tool:
        raise InvalidInput("a rule needs the name of a tool")
    check_standing(rule)
    if rule.tool == NETWORK_TOOL:
        if rule.pattern != ALL:
            check_host(rule.pattern)
    elif rule.tool == COMMAND_TOOL and rule.pattern:
        check_command_pattern(rule.pattern, rule.effect)
    elif rule.tool in (COMMAND_TOOL, INPUT_TOOL) and rule.effect == "allow":
        raise InvalidInput(
            "a rule cannot allow every command; to let commands pass set auto_approve_commands, or name the "
            "command: --allow 'make test'"
        )
    elif rule.tool.startswith(MCP_PREFIX):
        server, mark, tool = rule.tool.removeprefix(MCP_PREFIX).partition("__")
        if rule.pattern:
            raise InvalidInput("a rule about the tools of MCP servers has no pattern for their arguments")
        if rule.effect == "allow" and (not mark or not tool or not is_literal(server)):
            raise InvalidInput("name the server whose tools may be called: --allow --tool 'mcp:SERVER__*'")
    elif rule.tool in EDIT_TOOLS and rule.effect == "allow" and not rule.pattern:
        raise InvalidInput(f"name the files that may be changed: --allow 'docs/**' --tool {EDIT_TOOL}")


# -- coverage of a rule -----------------------------------------------------------------------------------------------


def about_file(
    rules: Iterable[Rule], effect: RuleEffect, tool: str, names: Iterable[str], *, edits: bool
) -> Rule | None:
    """The rule about a call that touches a file, by any of the file's names. One for a file holds for every call that
    `edits` it; one without a pattern for its own tool."""
    names = tuple(names)
    for rule in rules:
        covers_tool = rule.tool == tool or (rule.pattern and rule.tool in EDIT_TOOLS and edits)
        covers_file = not rule.pattern or any(matches(rule.pattern, name) for name in names)
        if rule.effect == effect and covers_tool and covers_file:
            return rule
    return None


def allows_file(rules: Iterable[Rule], tool: str, names: Sequence[str], *, sensitive: bool) -> Rule | None:
    """The rule that allows a change of this file under each of its names. For a sensitive one it must name the file."""
    usable = [rule for rule in rules if rule.pattern and (is_literal(rule.pattern) or not sensitive)]
    allowing_rule: Rule | None = None
    for name in names:
        allowing_rule = about_file(usable, "allow", tool, (name,), edits=True)
        if allowing_rule is None:
            return None
    return allowing_rule


def about_tool(rules: Iterable[Rule], effect: RuleEffect, spec: ToolSpec) -> Rule | None:
    """The rule about a tool of which nothing more is known than its name."""
    return next((rule for rule in rules if rule.effect == effect and names(rule, spec) and not rule.pattern), None)


def names(rule: Rule, spec: ToolSpec) -> bool:
    """True if the rule applies to this tool: by its name, or by a pattern of the tools of MCP servers."""
    return rule.tool == spec.name or (rule.tool.startswith(MCP_PREFIX) and fnmatchcase(spec.rule_name, rule.tool))


def in_words(rule: Rule) -> str:
    """A rule as it is named in reasons."""
    subject = f"{rule.tool} {rule.pattern}" if rule.pattern and rule.tool != COMMAND_TOOL else rule.pattern
    return f"the {rule.scope} rule `{rule.effect} {subject or rule.tool}`"
