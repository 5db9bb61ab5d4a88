"""Standing answers (S-07): what a rule may say, and what it covers. Pure: where rules are kept is the business of
`rule_book`, who is asked that of `standard`.

An allow rule is read narrowly and a deny or ask rule widely. To be allowed, a simple command must be literal, word by
word (or be the very text of the rule), stand alone (no wrapper, no variable set for it, no output into a file) and not
be critical. To be denied it is enough that it would run at all, however it is wrapped.
"""

import shlex
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from treadle.errors import InvalidInput
from treadle.host_patterns import ALL
from treadle.host_patterns import check as check_host
from treadle.policy.globs import is_literal, matches
from treadle.policy.shell.model import Part
from treadle.protocol.permissions import NETWORK_TOOL, Rule, RuleEffect
from treadle.protocol.tools import COMMAND_TOOL, EDIT_TOOL, EDIT_TOOLS, INPUT_TOOL, MCP_PREFIX, ToolSpec

ANY = "*"

# fmt: off
INTERPRETERS = frozenset({
    "ash", "awk", "bash", "bun", "busybox", "cmd", "csh", "dash", "deno", "expect", "fish", "gawk", "groovy", "irb",
    "java", "julia", "ksh", "lua", "mawk", "nawk", "node", "nodejs", "npx", "osascript", "perl", "php", "pnpx",
    "powershell", "pwsh", "pypy", "python", "python2", "python3", "R", "Rscript", "ruby", "scala", "sed", "sh",
    "sqlite3", "ssh", "swift", "tclsh", "tcsh", "ts-node", "tsx", "uvx", "pipx", "psql", "mysql", "vim", "vi",
    "nvim", "ed", "ex", "emacs", "zsh",
})
# fmt: on
"""Programs that run whatever they are given: a rule for all their uses would be one for everything."""
# fmt: off
WRAPPERS = frozenset({
    "builtin", "chroot", "command", "coproc", "doas", "docker", "env", "eval", "exec", "find", "flock", "ionice",
    "kubectl", "nice", "nohup", "nsenter", "numactl", "parallel", "podman", "script", "setarch", "setpriv",
    "setsid", "source", "stdbuf", "strace", "su", "sudo", "systemd-run", "taskset", "time", "timeout", "unshare",
    "watch", "xargs", "xvfb-run", ".",
})
# fmt: on
"""Programs that run others."""
_QUIET_WRAPPERS = frozenset({"time", "timeout", "nice", "ionice", "stdbuf"})
"""Those that change nothing about what runs: an allowed command stays allowed behind them."""
_NOWHERE = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})


def check(rule: Rule) -> None:
    """InvalidInput for a rule that says nothing, cannot be read, or would let through everything."""
    if not rule.tool:
        raise InvalidInput("a rule needs the name of a tool")
    if rule.scope == "once":
        raise InvalidInput("a rule that counts once is none; choose the scope chat, project or user")
    if rule.tool == NETWORK_TOOL:
        if rule.pattern != ALL:
            check_host(rule.pattern)
    elif rule.tool == COMMAND_TOOL and rule.pattern:
        _check_command(rule.pattern, rule.effect)
    elif rule.tool in (COMMAND_TOOL, INPUT_TOOL) and rule.effect == "allow":
        raise InvalidInput(
            "a rule that allows every command is none; to let commands pass set auto_approve_commands, or name the "
            "command: --allow 'make test'"
        )
    elif rule.tool.startswith(MCP_PREFIX):
        _check_server(rule)
    elif rule.tool in EDIT_TOOLS and rule.effect == "allow" and not rule.pattern:
        raise InvalidInput(f"name the files that may be changed: --allow 'docs/**' --tool {EDIT_TOOL}")


def _check_server(rule: Rule) -> None:
    server, mark, tool = rule.tool.removeprefix(MCP_PREFIX).partition("__")
    if rule.pattern:
        raise InvalidInput("a rule about the tools of MCP servers has no pattern for their arguments")
    if rule.effect == "allow" and (not mark or not tool or not is_literal(server)):
        raise InvalidInput("name the server whose tools may be called: --allow --tool 'mcp:SERVER__*'")


def _check_command(pattern: str, effect: RuleEffect) -> None:
    words = split(pattern)
    if any(ANY in word for word in words[:-1]) or (ANY in words[-1] and words[-1] != ANY):
        raise InvalidInput(f"in {pattern!r} a * may stand only as the last word, for any further words")
    if effect != "allow":
        return
    if len(words) == 1 and words[0] == ANY:
        raise InvalidInput("a rule that allows every command is none; to let commands pass set auto_approve_commands")
    if refusal := never_allowed(words):
        raise InvalidInput(f"{pattern!r} cannot be allowed by a rule: {refusal}")


def never_allowed(words: Sequence[str]) -> str:
    """Why no allow rule may have these words (the last may be `*`); empty when it may."""
    program = _name(words[0])
    open_ended = words[-1] == ANY
    before = [word for word in words[1:] if word != ANY]
    if program in WRAPPERS:
        return f"{program} runs other commands, and it would cover them all"
    if program in INTERPRETERS and open_ended and all(word.startswith("-") for word in before):
        return f"{program} runs whatever it is given, and it would cover it all"
    if program == "git" and any(word == "-c" or word.startswith(("--config-env", "--exec-path")) for word in before):
        return "git runs what -c sets"
    if program == "git" and open_ended and not before:
        return "git runs its aliases and hooks; name the git command, as in 'git status *'"
    return ""


def split(pattern: str) -> list[str]:
    """The words of a pattern, quoted as in a shell."""
    try:
        words = shlex.split(pattern)
    except ValueError as error:
        raise InvalidInput(f"{pattern!r} cannot be read as the words of a command: {error}") from error
    if not words:
        raise InvalidInput("the pattern of a command is empty; write its words, as in 'make test'")
    return words


# -- what a rule covers -----------------------------------------------------------------------------------------------


def needs_answer(part: Part) -> bool:
    """Whether a rule must cover this part of a command: if it is rated as anything, or if it is a group with its output
    into a file."""
    return part.severity != "none" or (not part.words and bool(set(part.writes) - _NOWHERE))


def passes_on(part: Part) -> bool:
    """Whether it only runs another part, and changes nothing about it."""
    return _name(part.program) in _QUIET_WRAPPERS


def allows_part(rules: Iterable[Rule], part: Part) -> Rule | None:
    """The rule that allows this simple command, as it stands."""
    if part.assigns or set(part.writes) - _NOWHERE or part.severity == "critical":
        return None
    if set(part.wrapped_by) - _QUIET_WRAPPERS:
        return None
    for rule in rules:
        if rule.effect == "allow" and rule.tool == COMMAND_TOOL and rule.pattern and _covers(rule.pattern, part):
            return rule
    return None


def _covers(pattern: str, part: Part) -> bool:
    """What is not literal is covered by the very same text only."""
    return pattern == part.text if part.unknown else fits(pattern, part.words)


def stops_command(rules: Iterable[Rule], effect: RuleEffect, tool: str, parts: Iterable[Part]) -> Rule | None:
    """The rule that denies (or asks for) a command because of one of the commands in it."""
    chosen = [rule for rule in rules if rule.effect == effect and rule.tool == tool]
    for part in parts:
        bare = (_name(part.words[0]), *part.words[1:]) if part.words else ()
        for rule in chosen:
            if not rule.pattern or fits(rule.pattern, part.words) or fits(rule.pattern, bare):
                return rule
    return None


def fits(pattern: str, words: Sequence[str]) -> bool:
    wanted = split(pattern)
    if wanted[-1] == ANY:
        return tuple(wanted[:-1]) == tuple(words[: len(wanted) - 1]) and bool(words)
    return tuple(wanted) == tuple(words)


def about_file(
    rules: Iterable[Rule], effect: RuleEffect, tool: str, names: Iterable[str], *, edits: bool
) -> Rule | None:
    """The rule about a call that touches a file, by any of the file's names. One for a file holds for every call that
    `edits` it; one without a pattern for its own tool."""
    names = tuple(names)
    for rule in rules:
        same = rule.tool == tool or (rule.pattern and rule.tool in EDIT_TOOLS and edits)
        if rule.effect == effect and same and (not rule.pattern or any(matches(rule.pattern, name) for name in names)):
            return rule
    return None


def allows_file(rules: Iterable[Rule], tool: str, names: Sequence[str], *, sensitive: bool) -> Rule | None:
    """The rule that allows a change of this file under each of its names. A sensitive one must be named: a pattern that
    happens to include it does not count."""
    found: Rule | None = None
    for name in names:
        found = next(
            (
                rule
                for rule in rules
                if rule.pattern
                and about_file((rule,), "allow", tool, (name,), edits=True)
                and (is_literal(rule.pattern) or not sensitive)
            ),
            None,
        )
        if found is None:
            return None
    return found


def about_tool(rules: Iterable[Rule], effect: RuleEffect, spec: ToolSpec) -> Rule | None:
    """The rule about a tool of which nothing more is known than its name."""
    return next((rule for rule in rules if rule.effect == effect and names(rule, spec) and not rule.pattern), None)


def names(rule: Rule, spec: ToolSpec) -> bool:
    """Whether the rule is about this tool: by its name, or by a pattern of the tools of MCP servers."""
    return rule.tool == spec.name or (rule.tool.startswith(MCP_PREFIX) and fnmatchcase(spec.rule_name, rule.tool))


def in_words(rule: Rule) -> str:
    """A rule as it is named in reasons."""
    what = f"{rule.tool} {rule.pattern}" if rule.pattern and rule.tool != COMMAND_TOOL else rule.pattern
    return f"the {rule.scope} rule `{rule.effect} {what or rule.tool}`"


def _name(word: str) -> str:
    return word.rpartition("/")[2] or word
