"""The policy: what passes, what is asked for, what is denied, by the chat's mode, by how dangerous a command is, by
which files are sensitive, and by standing rules (S-05 to S-07). Says why in words for the person or for the model.

The order: a read-only chat denies whatever writes or executes · a rule denies · a critical command asks, whatever else
is allowed · a rule asks · the mode lets it pass · a rule allows it · it asks. Where nobody is there to be asked, what
would ask is denied.
"""

import shlex
from collections.abc import Callable, Sequence

import msgspec

from treadle.errors import ConfigError
from treadle.inert import printable
from treadle.policy import offers, rules
from treadle.policy.acts import Act, act_of
from treadle.policy.rule_book import RuleBook, live
from treadle.policy.sensitive_files import Sensitive, names
from treadle.policy.shell.model import Part
from treadle.policy.showing import shown
from treadle.ports.policy import Verdict
from treadle.ports.toolset import Invocation
from treadle.protocol.options import ChatOptions
from treadle.protocol.permissions import Offer, Rule, RuleEffect
from treadle.protocol.tools import EDIT_TOOL, ToolSpec
from treadle.types import SystemClock


class Need(msgspec.Struct, frozen=True):
    """Why a call cannot simply pass, and what would answer that once and for all."""

    reason: str
    offers: tuple[Offer, ...] = ()
    way_out: str = ""
    """What a person could set beforehand, where nobody is there to be asked."""


class StandardPolicy:
    """Implements `treadle.ports.policy.Policy`. Without a book only the chat's own rules hold."""

    def __init__(self, book: RuleBook | None = None, now_ms: Callable[[], int] | None = None) -> None:
        self._book = book
        self._now_ms = now_ms or SystemClock().now_ms

    async def review(self, spec: ToolSpec, invocation: Invocation, options: ChatOptions) -> Verdict:
        if spec.kind != "function":
            return Verdict("allow")
        if options.mode == "read-only" and not spec.read_only:
            return Verdict("deny", _READ_ONLY.format(spec.name))
        try:
            found = self._rules(invocation.root, options)
        except ConfigError as error:
            return Verdict("deny", f"The user's rules cannot be read, so nothing is allowed: {error}")
        if spec.read_only and not spec.needs_approval and not any(rule.tool == spec.name for rule in found):
            return Verdict("allow")
        return _judge(spec, invocation, options, found)

    def _rules(self, root: str, options: ChatOptions) -> tuple[Rule, ...]:
        kept = self._book.of(root) if self._book is not None and root else ()
        return (*live(options.rules, self._now_ms()), *kept)


_READ_ONLY = (
    "{} changes or executes something, and this chat is read-only. Do without it: use tools that only read, and "
    "describe the change instead of making it."
)


def _judge(spec: ToolSpec, invocation: Invocation, options: ChatOptions, found: tuple[Rule, ...]) -> Verdict:
    act = act_of(spec, invocation)
    if (denied := _stopped(act, invocation, found, "deny")) is not None:
        return Verdict("deny", f"The user does not allow this: {rules.in_words(denied)}. Do without it.")
    if act.finding.severity == "critical":
        return _ask(act, invocation, options, Need(_rated(act), way_out="No rule and no setting lets it pass."))
    if (asked := _stopped(act, invocation, found, "ask")) is not None:
        return _ask(act, invocation, options, Need(f"{rules.in_words(asked)} says so", way_out=_REVOKE))
    sensitive = act.sensitive(invocation.root, options.sensitive)
    match act.kind:
        case "command":
            need, passed = _command(act, invocation, options, found, sensitive)
        case "edit":
            need, passed = _edit(act, invocation, options, found, sensitive)
        case "read" | "other" | "free":
            need, passed = _other(spec, act, options, found)
    if need is None:
        return Verdict("allow", passed)
    verdict = _ask(act, invocation, options, need)
    return _review(act, invocation, need, verdict) if act.kind == "command" and options.mode == "review" else verdict


_REVOKE = "A person can take the rule away (treadle rules)."


def _stopped(act: Act, invocation: Invocation, found: Sequence[Rule], effect: RuleEffect) -> Rule | None:
    """The rule that denies or asks for the call, by its commands or by its files."""
    chosen = [rule for rule in found if rule.effect == effect]
    if not chosen:
        return None
    if act.kind == "command" and (rule := rules.stops_command(chosen, effect, invocation.name, act.parts)) is not None:
        return rule
    edits = act.kind in ("command", "edit")
    for known in act.names(invocation.root):
        tool = EDIT_TOOL if act.kind == "command" else invocation.name  # to write into a file is to edit it
        pool = [rule for rule in chosen if rule.pattern] if act.kind == "command" else chosen
        if (rule := rules.about_file(pool, effect, tool, known, edits=edits)) is not None:
            return rule
    return rules.about_tool(chosen, effect, invocation.name)


Judged = tuple[Need | None, str]
"""What is needed, or why it passes (empty: as a matter of course)."""


def _command(
    act: Act, invocation: Invocation, options: ChatOptions, found: Sequence[Rule], sensitive: Sequence[Sensitive]
) -> Judged:
    by_hand = options.mode in ("ask", "review")
    auto = options.auto_approve_commands or options.mode == "autopilot"
    if (need := _written(act, invocation, options, found, sensitive, auto)) is not None:
        return need, ""
    if auto:
        how = "auto_approve_commands" if options.auto_approve_commands else "mode autopilot"
        return None, f"auto-approved ({how}; {_rated(act)})"
    open_parts = [part for part in act.parts if rules.needs_answer(part, by_hand)]
    if act.finding.severity == "none" and not by_hand:
        return None, f"auto-approved ({_rated(act)})"
    allowed = [rules.allows_part(found, part) for part in open_parts]
    if allowed and all(allowed):
        named = dict.fromkeys(rules.in_words(rule) for rule in allowed if rule is not None)
        return None, f"allowed by {', '.join(named)}"
    left = [part for part, rule in zip(open_parts, allowed, strict=True) if rule is None]
    return _command_need(act, invocation, options, left), ""


def _command_need(act: Act, invocation: Invocation, options: ChatOptions, left: Sequence[Part]) -> Need:
    offered = offers.for_command(left, invocation.name)
    ways = ["start it with --mode autopilot", "set auto_approve_commands"]
    if offered:
        ways.insert(0, f"allow it with: treadle rules add --allow {shlex.quote(offered[0].rule.pattern)}")
    reason = _rated(act)
    if act.finding.severity == "none":
        reason = f"in mode {options.mode} every command is asked for ({reason})"
    return Need(reason, offered, f"A person can {', or '.join(ways)}.")


def _written(
    act: Act,
    invocation: Invocation,
    options: ChatOptions,
    found: Sequence[Rule],
    sensitive: Sequence[Sensitive],
    auto: bool,
) -> Need | None:
    """A command that writes into a sensitive file edits it."""
    if options.auto_approve_sensitive_edits:
        return None
    if act.hidden_target and not auto:
        return Need("it writes a file whose name cannot be known beforehand", way_out=_SENSITIVE_WAY)
    open_files = [each for each in sensitive if not _file_allowed(each, invocation.root, EDIT_TOOL, found)]
    if not open_files:
        return None
    return Need(f"it writes {_listed(open_files)}", way_out=_SENSITIVE_WAY)


_SENSITIVE_WAY = (
    "A person can allow the file in the setting `sensitive`, or set auto_approve_sensitive_edits; otherwise leave it."
)


def _edit(
    act: Act, invocation: Invocation, options: ChatOptions, found: Sequence[Rule], sensitive: Sequence[Sensitive]
) -> Judged:
    if act.hidden_target:
        return Need("which files it changes cannot be told beforehand", way_out="Send one change for each file."), ""
    open_files = [each for each in sensitive if not _file_allowed(each, invocation.root, invocation.name, found)]
    if open_files and not options.auto_approve_sensitive_edits:
        offered = offers.for_files([each.path for each in open_files], invocation.name, sensitive=True)
        return Need(f"it changes {_listed(open_files)}", offered, _SENSITIVE_WAY), ""
    if options.mode == "ask":
        left = [
            known
            for known in act.names(invocation.root)
            if rules.allows_file(found, invocation.name, known, sensitive=bool(sensitive)) is None
        ]
        if left:
            offered = offers.for_files([known[-1] for known in left], invocation.name, sensitive=bool(sensitive))
            return Need("in mode ask every change is asked for", offered, _MODE_WAY), ""
        return None, "allowed by a rule for these files"
    if not sensitive:
        return None, ""
    how = "auto_approve_sensitive_edits" if options.auto_approve_sensitive_edits else "a rule for these files"
    return None, f"auto-approved ({how}: {_listed(sensitive)})"


_MODE_WAY = "A person can start it in mode auto-edit, or allow it by a rule (treadle rules add)."


def _file_allowed(file: Sensitive, root: str, tool: str, found: Sequence[Rule]) -> bool:
    return rules.allows_file(found, tool, names(root, file.path), sensitive=True) is not None


def _other(spec: ToolSpec, act: Act, options: ChatOptions, found: Sequence[Rule]) -> Judged:
    if spec.needs_approval:
        reason = "this tool always asks"
    elif act.kind == "other" and options.mode == "ask":
        reason = "in mode ask everything that writes or executes is asked for"
    else:
        return None, ""
    if (rule := rules.about_tool(found, "allow", spec.name)) is not None:
        return None, f"allowed by {rules.in_words(rule)}"
    way = f"A person can allow it with: treadle rules add --allow --tool {spec.name}."
    return Need(reason, offers.for_tool(spec.name), way), ""


def _ask(act: Act, invocation: Invocation, options: ChatOptions, need: Need) -> Verdict:
    if not options.interactive:
        return Verdict(
            "deny",
            f"{invocation.name} needs a person's approval ({need.reason}), and nobody is here to give it. It was not "
            f"run; go on without it, or say in your answer what should be done by hand. {need.way_out}".rstrip(),
            act.finding.severity,
        )
    return Verdict("ask", need.reason, act.finding.severity, shown(invocation), need.offers)


def _review(act: Act, invocation: Invocation, need: Need, asked: Verdict) -> Verdict:
    """In mode review the effect is asked for, not the words: nothing is asked for where nothing would change (W-09)."""
    refusal = asked.reason if asked.decision == "deny" else ""
    return Verdict("review", need.reason, act.finding.severity, shown(invocation), need.offers, refusal)


def _rated(act: Act) -> str:
    reasons = "; ".join(dict.fromkeys(act.finding.reasons))
    return printable(f"rated {act.finding.severity}" + (f": {reasons}" if reasons else ""))


def _listed(files: Sequence[Sensitive]) -> str:
    first = files[0]
    more = f" and {len(files) - 1} more sensitive files" if len(files) > 1 else ""
    return printable(f"{first.path}{more}, which is sensitive: {first.why} (pattern {first.pattern})")
