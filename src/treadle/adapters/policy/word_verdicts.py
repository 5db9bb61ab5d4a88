"""Judges a call by its text and arguments alone (S-04 to S-07): the reasons to stop it before it runs, and the verdict
where its changes cannot be determined. Gives reasons as text for the person or the model."""

import os
import shlex
import stat
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from treadle.adapters.policy import command_rules, rules, secret_files
from treadle.adapters.policy.changes import (
    Act,
    Concern,
    find_start_folder,
    is_run_from_cache,
    render_call,
    render_sensitive,
)
from treadle.adapters.policy.command_rules import ANY
from treadle.adapters.policy.rules import ToolPins, make_pin
from treadle.adapters.policy.sensitive_files import Sensitive, escape_path, resolve_names
from treadle.adapters.policy.shell.model import Part
from treadle.base.file_system import is_below
from treadle.base.inert import escape_unprintable
from treadle.errors import ConfigError
from treadle.ports.policy import Verdict
from treadle.ports.toolset import Invocation
from treadle.protocol.options import ChatOptions
from treadle.protocol.permissions import STANDING, Offer, Rule, RuleEffect
from treadle.protocol.tools import COMMAND_TOOL, EDIT_TOOL, MCP_PREFIX, ToolSpec


class Case(msgspec.Struct, frozen=True):
    spec: ToolSpec
    invocation: Invocation
    options: ChatOptions
    rules: tuple[Rule, ...]  # those that hold for it
    act: Act
    pins: ToolPins
    every: bool = False  # true if read-only commands are asked about too, unless a rule allows them

    @property
    def root(self) -> str:
        return self.invocation.root

    @property
    def sensitive(self) -> tuple[Sensitive, ...]:
        return self.act.find_sensitive(self.root, self.options.sensitive)


class Need(msgspec.Struct, frozen=True):
    """Why a call cannot simply pass, and what would answer that once and for all."""

    reason: str
    offers: tuple[Offer, ...] = ()
    way_out: str = ""  # the setting that a person could change beforehand, for non-interactive chats
    details: str = ""  # the text that a person sees below the call


class Approved(msgspec.Struct, frozen=True):
    """The reasons of a question about the words of a command that its changes may raise again."""

    rule: Rule | None = None
    paths: frozenset[str] = frozenset()  # sensitive files
    written_paths: frozenset[str] = frozenset()  # files and folders that the words write or remove
    confirmed: bool = False  # the change as such: mode `confirm` asked about the words, or the person edited them

    def covers(self, concern: Concern) -> bool:
        """True if the person who approved the words has seen this reason."""
        if concern.kind == "unrecoverable":
            return all(any(is_below(path, each) for each in self.written_paths) for path in concern.paths)
        return concern.kind == "sensitive" and self.paths.issuperset(concern.paths)


NOT_RUN = (
    "{} needs a person's approval ({}), and no person is here to give it. It was not run; go on without it, or say in "
    "your answer what should be done by hand."
)
SENSITIVE_WAY = (
    "A person can allow the file in the setting `sensitive`, or set auto_approve_sensitive_edits; otherwise leave it."
)
_MODE_WAY = "A person can start it in mode ask or auto-edit, or allow it by a rule (treadle rules add)."
_REVOKE = "A person can take the rule away (treadle rules)."


def find_stopping_verdict(case: Case) -> Verdict | None:
    """The verdict that stops a call before it runs, whatever it changes: by a rule, or as critical (S-05)."""
    denied = _find_stopping_rule(case, "deny")
    if denied is not None and denied[1] == "yes":
        return deny_by_rule(denied[0])
    if case.act.finding.severity == "critical":
        return ask_or_deny(case, Need(render_rating(case.act), way_out="No rule and no setting lets it pass."))
    rule, match = denied or _find_stopping_rule(case, "ask") or (None, "no")
    if rule is None:
        return None
    reason = "says so" if match == "yes" else "may cover it: its words do not say which command runs"
    return ask_or_deny(case, Need(f"{rules.describe_rule(rule)} {reason}", way_out=_REVOKE))


def find_approved_reasons(case: Case) -> Approved:
    rule, _ = _find_stopping_rule(case, "deny") or _find_stopping_rule(case, "ask") or (None, "no")
    confirms = case.options.mode == "confirm"
    written_names = frozenset(name for names in case.act.iterate_names(case.root) for name in names)
    sensitive = frozenset(each.path for each in case.sensitive)
    if case.invocation.edited:
        return Approved(rule, sensitive, written_names, confirmed=True)
    if rule is not None or case.act.finding.severity == "critical":
        return Approved(rule, written_paths=written_names, confirmed=confirms)
    if not confirms or judge_by_words(case).decision == "allow":
        return Approved()
    return Approved(None, sensitive, written_names, confirmed=True)


def ask_about_secret(case: Case) -> Verdict | None:
    """The question about a call that names a secret file (S-18). Not about a trusted command, which cannot see the
    file; nor about an approved one, which may; nor twice about an edit, whose question shows the change (S-16)."""
    act, invocation, root = case.act, case.invocation, case.root
    if invocation.by_person or not root or (act.kind == "command" and (invocation.approved or find_allow_reason(case))):
        return None
    command = case.spec.find_command(invocation.arguments)
    words = act.files if command is None else secret_files.split_words(command)
    secrets = secret_files.find_named_secrets(root, "." if command is None else find_start_folder(invocation), words)
    paths = [*secret_files.select_hidden(root, secrets, case.rules, invocation.known_files)]
    return ask_or_deny(case, Need(*secret_files.explain(paths))) if paths else None


def deny_by_rule(rule: Rule) -> Verdict:
    return Verdict("deny", f"The user does not allow this: {rules.describe_rule(rule)}. Do without it.")


def judge_by_words(case: Case) -> Verdict:
    """By the approval that is needed, or the reason why the call passes (empty: nothing requires an approval)."""
    judgement = {"command": _judge_command, "edit": _edit}.get(case.act.kind, _judge_other_tool)(case)
    return Verdict("allow", judgement) if isinstance(judgement, str) else ask_or_deny(case, judgement)


def ask_or_deny(case: Case, need: Need) -> Verdict:
    severity = case.act.finding.severity
    if case.options.interactive:
        text = render_call(case.invocation, case.act) + (f"\n\n{need.details}" if need.details else "")
        return Verdict("ask", need.reason, severity, text, need.offers)
    text = NOT_RUN.format(case.invocation.name, need.reason)
    return Verdict("deny", f"{text} {need.way_out}".rstrip(), severity, unasked=True)


def render_rating(act: Act) -> str:
    reasons = "; ".join(dict.fromkeys(act.finding.reasons))
    return escape_unprintable(f"rated {act.finding.severity}" + (f": {reasons}" if reasons else ""))


def _find_stopping_rule(case: Case, effect: RuleEffect) -> tuple[Rule, command_rules.Match] | None:
    """The rule that denies or asks for the call, by its commands or by its files, and whether it surely covers it."""
    act, tool = case.act, case.invocation.name
    effect_rules = [rule for rule in case.rules if rule.effect == effect]
    if not effect_rules:
        return None
    command, by_words = act.kind == "command", None
    if command or case.spec.input_argument:
        from treadle.adapters.policy.command_severity import (
            parse_expanded_parts,
            parse_parts,
        )  # late: for commands alone
    if command:
        line = case.spec.find_command(case.invocation.arguments)
        more_parts = parse_expanded_parts(line) if line is not None and "$" in line else ()
        by_words = command_rules.find_rule_stopping_command(effect_rules, effect, tool, (*act.parts, *more_parts))
    if case.spec.input_argument and by_words is None:  # typed into a program: in case that is a shell
        text = str(case.invocation.arguments.get(case.spec.input_argument) or "")
        text_parts = (*parse_parts(text), *parse_expanded_parts(text))
        by_input = command_rules.find_rule_stopping_command(effect_rules, effect, COMMAND_TOOL, text_parts)
        by_words = by_input if by_input is not None and by_input[1] == "yes" else None
    if by_words is not None and by_words[1] == "yes":
        return by_words
    for file_names in act.iterate_names(case.root):
        as_tool = EDIT_TOOL if command else tool  # to write into a file is to edit it
        pool = [rule for rule in effect_rules if rule.pattern] if command else effect_rules
        edits = act.kind in ("command", "edit")
        if (rule := rules.find_file_rule(pool, effect, as_tool, file_names, edits=edits)) is not None:
            return rule, "yes"
    if (rule := rules.find_tool_rule(effect_rules, effect, case.spec)) is not None:
        return rule, "yes"
    return by_words


# -- commands ---------------------------------------------------------------------------------------------------------
def find_allow_reason(case: Case) -> str:
    """Why a command passes by its text with any but sensitive changes: a setting, or rules for all its parts."""
    if case.options.auto_approve_commands:
        return f"auto-approved (auto_approve_commands; {render_rating(case.act)})"
    if case.options.mode == "autopilot":
        return f"auto-approved (mode autopilot; {render_rating(case.act)})"
    parts, allowed = _match_parts(case)
    if not parts or not all(allowed):
        return ""
    rule_names = dict.fromkeys(rules.describe_rule(rule) for rule in allowed if rule is not None)
    return f"allowed by {', '.join(rule_names)}"


def _match_parts(case: Case) -> tuple[list[Part], list[Rule | None]]:
    """The parts that need an answer, and the rule that gives it for each. Where all are read-only, all of them do."""
    parts = [part for part in case.act.parts if not command_rules.is_read_only(part)]
    parts = parts or [part for part in case.act.parts if not command_rules.is_quiet_wrapper(part)]
    return parts, [command_rules.find_rule_allowing_part(case.rules, part, _find_folder(case)) for part in parts]


def _find_folder(case: Case) -> str | None:
    return command_rules.find_folder(case.root, case.act.folder, case.act.parts)


def _judge_command(case: Case) -> Need | str:
    options = case.options
    if not options.auto_approve_sensitive_edits:  # a command that writes into a sensitive file edits it
        if case.act.hidden_target and not (options.auto_approve_commands or options.mode == "autopilot"):
            return Need("it writes a file whose name cannot be known beforehand", way_out=SENSITIVE_WAY)
        if open_files := [each for each in case.sensitive if not _is_file_allowed(case, each, EDIT_TOOL)]:
            return Need(f"it writes {render_sensitive(open_files)}", way_out=SENSITIVE_WAY)
    if allow_reason := find_allow_reason(case):
        return allow_reason
    if run_paths := [path for path in case.act.files if is_run_from_cache(path)]:
        return find_command_need(
            case, f"it writes {escape_unprintable(run_paths[0])}, which programs run by themselves"
        )
    if existing_path := _find_existing_target(case):
        return find_command_need(case, f"it writes {escape_unprintable(existing_path)}, which is there already")
    if case.act.files and options.mode == "confirm":
        return find_command_need(case, "it writes files")
    if case.act.finding.severity != "none":
        return find_command_need(case, render_rating(case.act))
    if case.every:
        return find_command_need(case, "every command is asked for")
    return f"auto-approved ({render_rating(case.act)})"


def _find_existing_target(case: Case) -> str:
    """The first file that the words write with content that this run has not made; empty in mode auto-edit."""
    if case.options.mode == "auto-edit" or not case.root:
        return ""
    for *_, path in case.act.iterate_names(case.root):
        with suppress(OSError, ValueError):
            status = os.stat(os.path.join(case.root, path))
            has_content = stat.S_ISREG(status.st_mode) and status.st_size > 0
            if has_content and path not in case.invocation.changed_paths:
                return path
    return ""


def find_command_need(case: Case, reason: str) -> Need:
    """With the rule that would have answered, if there is one."""
    parts, allowed = _match_parts(case)
    open_parts = [part for part, rule in zip(parts, allowed, strict=True) if rule is None]
    rule_offers = _make_command_offers(open_parts, case.invocation.name, _find_folder(case))
    ways = ["start it with --mode autopilot", "set auto_approve_commands"]
    if rule_offers:
        ways.insert(0, f"allow it with: treadle rules add --allow {shlex.quote(rule_offers[0].rule.pattern)}")
    return Need(reason, rule_offers, f"A person can {', or '.join(ways)}.")


# -- files and other tools --------------------------------------------------------------------------------------------
def _edit(case: Case) -> Need | str:
    tool, sensitive = case.invocation.name, case.sensitive
    if case.act.hidden_target:
        return Need("which files it changes cannot be told beforehand", way_out="Send one change for each file.")
    open_files = [each for each in sensitive if not _is_file_allowed(case, each, tool)]
    if open_files and not case.options.auto_approve_sensitive_edits:
        return make_sensitive_need(
            [each.path for each in open_files], f"it changes {render_sensitive(open_files)}", tool
        )
    if case.options.mode in ("confirm", "review"):
        open_paths = [
            file_names[-1]
            for file_names in case.act.iterate_names(case.root)
            if rules.find_rule_allowing_file(case.rules, tool, file_names, sensitive=bool(sensitive)) is None
        ]
        return find_edit_need(case, open_paths) if open_paths else "allowed by a rule for these files"
    return explain_sensitive_pass(case)


def explain_sensitive_pass(case: Case) -> str:
    if not (sensitive_files := case.sensitive):
        return ""
    by_setting = case.options.auto_approve_sensitive_edits
    permission = "auto_approve_sensitive_edits" if by_setting else "a rule for these files"
    return f"auto-approved ({permission}: {render_sensitive(sensitive_files)})"


def find_edit_need(case: Case, paths: Sequence[str]) -> Need:
    rule_offers = _make_file_offers(paths, case.invocation.name, sensitive=bool(case.sensitive))
    return Need(f"in mode {case.options.mode} every change is asked for", rule_offers, _MODE_WAY)


def make_sensitive_need(paths: Sequence[str], reason: str, tool: str) -> Need:
    return Need(reason, _make_file_offers(paths, tool, sensitive=True), SENSITIVE_WAY)


def _is_file_allowed(case: Case, file: Sensitive, tool: str) -> bool:
    return (
        rules.find_rule_allowing_file(case.rules, tool, resolve_names(case.root, file.path), sensitive=True) is not None
    )


def _judge_other_tool(case: Case) -> Need | str:
    name, mode = case.spec.name, case.options.mode
    if case.spec.needs_approval:
        reason = "this tool always asks"
    elif case.act.kind == "other" and case.spec.server and mode != "autopilot":
        reason = f"the MCP server {case.spec.server} runs it, and its effect is not known beforehand"
    elif case.act.kind == "other" and mode in ("confirm", "ask"):
        reason = f"in mode {mode} a tool whose effect is not known beforehand is asked for"
    else:
        return ""
    naming = [rule for rule in case.rules if rules.find_tool_rule((rule,), "allow", case.spec) is not None]
    change = ""
    try:
        if (holding := case.pins.find_holding(naming, case.spec)) is not None:
            return f"allowed by {rules.describe_rule(holding)}"
        case.pins.keep_text(case.spec)
        change = case.pins.render_difference(naming[-1], case.spec) if naming else ""
    except ConfigError as error:
        change = f"It is not known if the tool has changed: {error}"
    way = f"A person can allow it with: treadle rules add --allow --tool {name}."
    if naming:
        reason = f"its description or schema is not the one for which {rules.describe_rule(naming[-1])} was made"
    return Need(reason, _make_tool_offers(case.spec, has_changed=bool(naming)), way, escape_unprintable(change))


# -- rules that a person is offered when asked (S-07), each with what it would cover and what not. Never one that would
# let through an interpreter or a wrapper as a whole, nor more than one kind of command.
_FAMILIES = frozenset(
    {("pytest",), ("mypy",), ("pyright",), ("tsc",), ("eslint",), ("jest",), ("vitest",)}
    | {("npm", "test"), ("yarn", "test"), ("pnpm", "test"), ("bun", "test")}
    | {("cargo", word) for word in ("build", "check", "clippy", "fmt", "test")}
    | {("go", word) for word in ("build", "fmt", "test", "vet")}
    | {("git", word) for word in ("add", "commit", "fetch", "restore", "stash", "switch")}
    | {("ruff", word) for word in ("check", "format")}
    | {("gradle", "test"), ("mvn", "test"), ("dotnet", "build"), ("dotnet", "test"), ("swift", "test")}
)  # commands that stay what they are with any further words
_INLINE = frozenset({"-c", "-e", "-E", "-p", "--eval", "--command", "-"})
_LONGEST_PATTERN = 200
_LEAVES = "the same with other words, with its output into a file, with variables set for it, or run by another command"
_LEAVES_FAMILY = "other commands of the same program, the same with its output into a file, or run by another command"


def _make_command_offers(parts: Sequence[Part], tool: str, folder: str | None) -> tuple[Offer, ...]:
    """For the simple commands that need an answer, in their folder. One rule answers for one; for several is none."""
    if len({part.words for part in parts}) != 1 or not parts[0].words:
        return ()
    part = parts[0]
    words = command_rules.place_words(part.words, folder)
    if words is None or ANY in "".join(words) or command_rules.find_refusal(words):
        return ()
    if command_rules.is_interpreter(words[0]) and _INLINE.intersection(words):  # it has a program among its words
        return ()
    pattern = shlex.join(words)
    exact = Rule("allow", tool, pattern)
    is_allowed = all(command_rules.find_rule_allowing_part((exact,), each, folder) for each in parts)
    if len(pattern) > _LONGEST_PATTERN or not is_allowed:
        return ()
    offer = Offer(exact, f"`{pattern}`, word for word", _LEAVES, STANDING)
    family = next((family for family in (part.words[:2], part.words[:1]) if family in _FAMILIES), None)
    if family is None:
        return (offer,)
    name = shlex.join(family)
    return offer, Offer(Rule("allow", tool, f"{name} {ANY}"), f"`{name}` with any words", _LEAVES_FAMILY, STANDING)


def _make_file_offers(files: Sequence[str], tool: str, *, sensitive: bool) -> tuple[Offer, ...]:
    if len(set(files)) != 1:
        return ()
    (file,) = set(files)
    exact = Offer(Rule("allow", tool, escape_path(file)), f"every change of {file}", "every other file", STANDING)
    folder = file.rpartition("/")[0]
    if sensitive or not folder:
        return (exact,)
    wide = Rule("allow", tool, f"{escape_path(folder).removeprefix('/')}/**")
    return (exact, Offer(wide, f"every change below {folder}/", "sensitive files in it, and all others", STANDING))


def _make_tool_offers(spec: ToolSpec, *, has_changed: bool) -> tuple[Offer, ...]:
    """`changed`: a rule names the tool, and the tool has changed since. Then it alone is offered."""
    tool, server = spec.name, spec.server
    calls = f"every call of {tool}, with any arguments"
    if not server:
        return (Offer(Rule("allow", tool), calls, "every other tool", STANDING),)
    leaves = "every other tool, and this one when its description or schema changes"
    exact = Offer(Rule("allow", tool, pin=make_pin(spec)), calls, leaves, STANDING)
    if has_changed:
        return (exact,)
    wide = Rule("allow", f"{MCP_PREFIX}{server}__*")
    covers = f"every tool of the MCP server {server}, also one that it adds later, as each is when it is first called"
    return exact, Offer(wide, covers, "every other server, and a tool that changes", STANDING)
