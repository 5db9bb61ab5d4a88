"""The policy: which calls pass, are asked about, or are denied (S-05 to S-07). A command is judged like an edit, by the
changes it would make. Its text decides only if it is stopped before it runs, or if its changes are unknown.

The order: a rule denies · a critical command asks, even if rules allow it · a rule asks · the call is rehearsed, and
its changes are judged by the chat's mode:

- `read-only`: a command runs, and none of its changes is committed; edits are denied.
- `confirm`: asks, by the text, before every command that does more than read, and before every edit.
- `review`: asks about every set of changes that is not empty.
- `ask`: asks if the changes raise a concern (`changes`).
- `auto-edit`, `autopilot`: ask only if the changes are sensitive, or a rule says so.

If a command cannot be rehearsed, its text decides in every mode. In a non-interactive chat, an edit that would be asked
about is denied, and the changes of a command are discarded."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from treadle.adapters.policy import changes, rules, word_verdicts
from treadle.adapters.policy.changes import ALWAYS_ASKED, ChangeSet, Concern, find_concerns
from treadle.adapters.policy.rules import RuleBook, ToolPins, collect_rules
from treadle.adapters.policy.sensitive_files import find_linked
from treadle.adapters.policy.shell.model import Part
from treadle.adapters.policy.word_verdicts import Approved, Case, Need
from treadle.base.host_patterns import (
    ALL,
    READY,
    check_pattern,
    exclude_hosts,
    expand,
    get_host_family,
    is_within,
    join_choices,
    make_choice,
)
from treadle.base.types import SystemClock
from treadle.diff.changes import is_folder
from treadle.errors import ConfigError, InvalidInput
from treadle.ports.policy import Verdict
from treadle.ports.toolset import Invocation, Rehearsal
from treadle.protocol.files import decode_path
from treadle.protocol.options import ChatOptions, NetworkChoice
from treadle.protocol.permissions import NETWORK_TOOL, STANDING, Offer, Rule, RuleScope
from treadle.protocol.tools import COMMAND_TOOL, DELEGATE_TOOL, ToolSpec

HARMLESS = "auto-approved (it changes nothing in the project)"
UNREHEARSED = "its changes cannot be found out beforehand"
WRITES_UNSEEN = (
    "no copy-on-write view works here, so a command in the background or with a terminal writes to the project directly"
)
_READ_ONLY = (
    "{} changes or executes something, and this chat is read-only. Do without it: use tools that only read, and "
    "describe the change instead of making it."
)
_NO_TEXT = (
    "The arguments contain half of a character (a lone surrogate), which no file name and no command can hold. Send "
    "the call again without it."
)
_BY_PERSON = "a person commits what the background command changed"
_DISCARDED = "this chat is read-only, so nothing of what the command changed was kept"
_UNASKED = (
    "it needs a person's approval ({}), and no person is here to give it, so nothing of what the command changed "
    "was kept; go on without it, or say in your answer what should be done by hand"
)


class StandardPolicy:
    """Implements `treadle.ports.policy.Policy`. Without a book only the chat's own rules hold."""

    def __init__(self, book: RuleBook | None = None, now_ms: Callable[[], int] | None = None) -> None:
        self._book = book
        self._pins = ToolPins() if book is None else book.pins
        self._now_ms = now_ms or SystemClock().now_ms
        self.every_command: Callable[[ChatOptions], bool] = lambda _options: False
        """Returns True if a chat in mode `confirm` also asks about read-only commands."""

    async def review(self, spec: ToolSpec, invocation: Invocation, options: ChatOptions) -> Verdict:
        verdict = self._review(spec, invocation, options)
        self._note_use(invocation.root, options, verdict)
        return verdict

    def _review(self, spec: ToolSpec, invocation: Invocation, options: ChatOptions) -> Verdict:
        if spec.kind != "function":
            return Verdict("allow")
        try:
            msgspec.json.encode(invocation.arguments)
        except UnicodeEncodeError:
            return Verdict("deny", _NO_TEXT)
        # The actions of sub-agents are judged in their own chats, which have this chat's mode.
        delegates = spec.name == DELEGATE_TOOL and spec.effect == "none"
        is_closed = options.mode == "read-only" and not spec.read_only and not delegates and not spec.job_argument
        if is_closed and spec.find_command(invocation.arguments) is None:
            return Verdict("deny", _READ_ONLY.format(spec.name))
        try:
            applicable_rules = collect_rules(self._book, invocation.root, options, self._now_ms())
        except ConfigError as error:
            return Verdict("deny", f"The user's rules cannot be read, so nothing is allowed: {error}")
        act = changes.find_act(spec, invocation)
        has_rule = any(rules.matches_tool(rule, spec) for rule in applicable_rules)
        if spec.read_only and not spec.needs_approval and not has_rule and not act.files:
            return Verdict("allow")
        case = Case(spec, invocation, options, applicable_rules, act, self._pins, self.every_command(options))
        stopped = _stop_by_network(case) or _stop_by_words(case)
        if is_closed and stopped is not None and stopped.decision != "deny":
            return Verdict("deny", _READ_ONLY.format(spec.name))
        return _add_standing_network(case, stopped or _judge_beforehand(case))

    async def judge(
        self,
        spec: ToolSpec,
        invocation: Invocation,
        options: ChatOptions,
        rehearsal: Rehearsal | None,
        verdict: Verdict,
    ) -> Verdict:
        judged = self._judge(spec, invocation, options, rehearsal)
        self._note_use(invocation.root, options, judged)
        return judged

    def _judge(
        self, spec: ToolSpec, invocation: Invocation, options: ChatOptions, rehearsal: Rehearsal | None
    ) -> Verdict:
        applicable_rules = collect_rules(self._book, invocation.root, options, self._now_ms())
        case = Case(spec, invocation, options, applicable_rules, changes.find_act(spec, invocation), self._pins)
        if rehearsal is None:
            return word_verdicts.judge_by_words(case) if case.act.kind == "job" else _judge_unrehearsed(case)
        if rehearsal.command:
            # A call that commits the changes of a background command is judged as that command, in the folder and with
            # the variables that it was started with.
            shell = case.invocation.shell if rehearsal.shell is None else rehearsal.shell
            arguments = {"command": rehearsal.command, "background": True}
            command_call = replace(invocation, name=COMMAND_TOOL, arguments=arguments, shell=shell)
            case = replace(case, invocation=command_call, act=changes.find_command_act(rehearsal.command, command_call))
        if (denied := changes.find_stopping_rule(rehearsal.files, "deny", case.rules)) is not None:
            return word_verdicts.deny_by_rule(denied)
        if case.spec.job_argument and invocation.by_person:
            return Verdict("allow", _BY_PERSON)
        if (question := _ask_after_failure(case, rehearsal)) is not None:
            return question
        if rehearsal.empty:
            return Verdict("allow", HARMLESS if case.act.kind == "command" else "")
        if options.mode == "read-only":
            return Verdict("discard", _DISCARDED, case.act.finding.severity)
        return _judge_by_changes(case, rehearsal)

    def _note_use(self, root: str, options: ChatOptions, verdict: Verdict) -> None:
        """A rule was used if the verdict names it, or lets the call reach its hosts."""
        if self._book is None or not (verdict.reason or verdict.network):
            return
        with suppress(ConfigError):
            applicable_rules = collect_rules(self._book, root, options, self._now_ms())
            reason, network = verdict.reason, verdict.network
            self._book.note_use(
                r for r in applicable_rules if rules.describe_rule(r) in reason or _allows_network(r, network)
            )


def _stop_by_words(case: Case) -> Verdict | None:
    """The refusal, or one question with all reasons. An approved text is not asked about again (decision 0010)."""
    stopped, secret = word_verdicts.find_stopping_verdict(case), word_verdicts.ask_about_secret(case)
    if stopped is None or stopped.decision == "deny":
        return stopped or secret
    if _has_approved_words(case):
        return None
    if secret is None or secret.decision == "deny":
        return stopped
    return replace(stopped, reason=f"{stopped.reason}; {secret.reason}", offers=(*stopped.offers, *secret.offers))


def _has_approved_words(case: Case) -> bool:
    """True if a person approved this command. A call that commits the changes of a job was approved by its effect."""
    is_command = case.act.kind == "command" and not case.spec.job_argument
    return is_command and case.invocation.approved and _can_be_rehearsed(case)


def _judge_beforehand(case: Case) -> Verdict:
    act, mode, allow_reason = case.act, case.options.mode, ""
    if not _can_be_rehearsed(case) or (act.kind == "edit" and mode == "confirm"):
        return word_verdicts.judge_by_words(case)
    if act.kind == "command" and mode != "read-only":
        if mode == "confirm" and not _has_approved_words(case):
            by_words = word_verdicts.judge_by_words(case)
            if by_words.decision != "allow":
                return by_words
            allow_reason = by_words.reason
        wants = _find_missing_hosts(case)
        if wants and not word_verdicts.find_allow_reason(case):  # a trusted command is tried without them
            return _ask_for_network(case, wants)
    return Verdict("review", allow_reason, act.finding.severity, changes.render_call(case.invocation, act))


def _can_be_rehearsed(case: Case) -> bool:
    """True if a rehearsal is worth trying; the tool may still report that it cannot."""
    if case.act.kind == "command":
        return not case.spec.input_argument
    return case.act.kind == "job" or (case.act.kind == "edit" and not case.spec.needs_approval)


def _judge_unrehearsed(case: Case) -> Verdict:
    if case.options.mode == "read-only":
        return Verdict("deny", _READ_ONLY.format(case.spec.name))
    by_words = word_verdicts.judge_by_words(case)
    arguments = case.invocation.arguments
    outlives_call = case.act.kind == "command" and (arguments.get("background") or arguments.get("pty"))
    if by_words.decision == "allow" and case.options.mode != "autopilot" and outlives_call:
        need = Need(WRITES_UNSEEN, way_out="A person can start it with --mode autopilot.")
        return word_verdicts.ask_or_deny(case, need)
    if by_words.decision != "ask" or case.act.kind != "command":
        return by_words
    return replace(by_words, reason=f"{by_words.reason}; {UNREHEARSED}")


# -- verdicts by the changes ------------------------------------------------------------------------------------------
def _judge_by_changes(case: Case, rehearsal: Rehearsal) -> Verdict:
    edit = case.act.kind == "edit"
    paths = (decode_path(file.path) for file in rehearsal.files if not is_folder(file))
    spelled = case.sensitive if edit else tuple(find_linked(case.root, paths, case.options.sensitive))
    change_set = ChangeSet(rehearsal.files, rehearsal.unrecoverable, rehearsal.history, spelled)
    approved = word_verdicts.find_approved_reasons(case) if _has_approved_words(case) else Approved()
    passed_kinds = {"sensitive"} if case.options.auto_approve_sensitive_edits else set()
    if case.invocation.reaches:  # the person who let it reach a registry let it install
        passed_kinds.add("installed")
    allow_reason = "" if edit else word_verdicts.find_allow_reason(case)
    trusting = bool(allow_reason) or case.options.mode in ("auto-edit", "autopilot")
    raised = tuple(
        each
        for each in find_concerns(
            change_set, case.options.sensitive, [rule for rule in case.rules if rule != approved.rule]
        )
        if not approved.covers(each) and each.kind not in passed_kinds
        if not trusting or each.kind in ALWAYS_ASKED
    )
    every = case.options.mode in ("review", "confirm") and not approved.confirmed
    need = _find_need(case, rehearsal, raised, every=every and not trusting)
    if need is None:
        by_changes = f"auto-approved (what it changes raises no concern; {word_verdicts.render_rating(case.act)})"
        return Verdict("allow", allow_reason or (word_verdicts.explain_sensitive_pass(case) if edit else by_changes))
    if edit:
        return word_verdicts.ask_or_deny(case, need)
    if case.options.interactive:
        question = word_verdicts.ask_or_deny(case, need)
        return replace(question, approval_text=f"{question.approval_text}\n\n{rehearsal.diff_text}")
    return Verdict("discard", _UNASKED.format(need.reason), case.act.finding.severity, unasked=True)


def _find_need(case: Case, rehearsal: Rehearsal, raised: Sequence[Concern], *, every: bool) -> Need | None:
    """Return what a person must be asked: the concerns, and with `every` all changes that no rule allows."""
    edit, tool = case.act.kind == "edit", case.invocation.name
    if raised:
        reason = "; ".join(each.reason for each in raised)
        if edit and all(each.kind == "sensitive" for each in raised):
            return word_verdicts.make_sensitive_need([path for each in raised for path in each.paths], reason, tool)
        if edit or any(each.kind in ALWAYS_ASKED for each in raised):
            return Need(reason, way_out=word_verdicts.SENSITIVE_WAY)
        return word_verdicts.find_command_need(case, reason)
    if not every:
        return None
    if not edit:
        return word_verdicts.find_command_need(case, f"in mode {case.options.mode} every change is asked for")
    paths = [decode_path(file.path) for file in rehearsal.files if not is_folder(file)]
    open_paths = [
        path for path in paths if rules.find_rule_allowing_file(case.rules, tool, (path,), sensitive=False) is None
    ]
    return word_verdicts.find_edit_need(case, open_paths) if open_paths else None


# -- the network (S-03): hosts that standing rules allow, and the question if a command needs more. An approval opens
# the named hosts for this call; a rule opens them for the chat, the project or the user.
_ADDRESS = r"(?:https?|git|ssh|ftp)://(?:[^/@\s]*@)?([A-Za-z0-9.-]+)(?::(\d+))?|^[\w.-]+@([A-Za-z0-9.-]+):"
# fmt: off
_FAMILIES = {
    "pip": "pypi", "pip3": "pypi", "uv": "pypi", "poetry": "pypi", "pipx": "pypi", "pdm": "pypi",
    "npm": "npm", "npx": "npm", "yarn": "npm", "pnpm": "npm", "bun": "npm",
    "cargo": "crates", "rustup": "crates", "go": "go", "gem": "rubygems", "bundle": "rubygems",
    "mvn": "maven", "gradle": "maven", "composer": "packagist", "dotnet": "nuget", "nuget": "nuget", "gh": "github",
}
# fmt: on
_MOST_HOSTS = 3
_PIP_OF_PYTHON = ("-m", "pip")


def _stop_by_network(case: Case) -> Verdict | None:
    """Return the refusal of a command whose text needs a denied host, even if other rules allow it (S-07)."""
    if case.act.kind != "command" or not case.act.finding.network:
        return None
    hosts = expand(find_hosts(case.act.parts))
    for rule in (rule for rule in case.rules if rule.tool == NETWORK_TOOL and rule.effect == "deny"):
        if rule.pattern == ALL or any(is_within((host,), (rule.pattern,)) for host in hosts):
            return word_verdicts.deny_by_rule(rule)
    return None


def _add_standing_network(case: Case, verdict: Verdict) -> Verdict:
    """The verdict by words, with the network that standing rules allow; an approval allows what its words need, too."""
    if case.act.kind != "command":
        return verdict
    wants = _find_missing_hosts(case)
    if verdict.decision == "ask" and wants and not verdict.wants:
        reason = (
            f"{verdict.reason}; {_render_network_reason(wants)}" if verdict.reason else _render_network_reason(wants)
        )
        verdict = replace(verdict, reason=reason, offers=(*verdict.offers, *_make_network_offers(wants)), wants=wants)
    return replace(verdict, network=_collect_allowed_hosts(case), barred=tuple(_list_denied_hosts(case)))


def _ask_after_failure(case: Case, rehearsal: Rehearsal) -> Verdict | None:
    """The question about a command that failed without the network. None in modes that ask nothing about commands."""
    options = case.options
    if not rehearsal.wants_network or options.mode == "autopilot" or options.auto_approve_commands:
        return None
    wants = tuple(rehearsal.wants_network.split())
    if wants == (ALL,):
        wants = _find_unreachable_hosts(case, find_hosts(case.act.parts)) or wants
    denied = _list_denied_hosts(case)
    wants = tuple(host for host in wants if host == ALL or not is_within((host,), denied)) if ALL not in denied else ()
    if not options.interactive or not wants:
        return None
    question = _ask_for_network(case, wants)
    return replace(question, approval_text=f"{changes.render_call(case.invocation, case.act)}\n\n{rehearsal.diff_text}")


def find_hosts(parts: Iterable[Part]) -> tuple[str, ...]:
    """The hosts that the words of commands name, as patterns: by addresses, or by a package manager."""
    return tuple(dict.fromkeys(host for part in parts for host in _iterate_hosts(part)))


def _iterate_hosts(part: Part) -> Iterator[str]:
    has_address = False
    for word in part.words[1:]:
        for name, port, login in re.findall(_ADDRESS, word):
            host = get_host_family((name or login).lower())
            try:
                yield check_pattern(f"{host}:{port}" if port and host not in READY else host)
                has_address = True
            except InvalidInput:  # a host of this machine, or none at all
                continue
    program = part.words[0].rpartition("/")[2] if part.words else ""
    if part.words[1:3] == _PIP_OF_PYTHON:
        program = "pip"
    if not has_address and program in _FAMILIES:
        yield _FAMILIES[program]


def _collect_allowed_hosts(case: Case) -> NetworkChoice:
    """By standing rules, without denied ones. As "all hosts" has no exceptions, a denied host voids such a rule."""
    allowed: NetworkChoice = False
    denied = _list_denied_hosts(case)
    for rule in case.rules:
        if rule.tool == NETWORK_TOOL and rule.effect == "allow" and not (denied and rule.pattern == ALL):
            allowed = join_choices(allowed, make_choice((rule.pattern,)))
    return exclude_hosts(allowed, denied)


def _allows_network(rule: Rule, network: NetworkChoice) -> bool:
    if rule.tool != NETWORK_TOOL or rule.effect != "allow":
        return False
    return network and rule.pattern == ALL if isinstance(network, bool) else is_within((rule.pattern,), network)


def _list_denied_hosts(case: Case) -> list[str]:
    return [rule.pattern for rule in case.rules if rule.tool == NETWORK_TOOL and rule.effect == "deny"]


def _find_unreachable_hosts(case: Case, hosts: Sequence[str]) -> tuple[str, ...]:
    reach = _collect_reachable_hosts(case)
    return () if reach is True else tuple(host for host in hosts if not is_within((host,), reach or ()))


def _find_missing_hosts(case: Case) -> tuple[str, ...]:
    if not case.act.finding.network:
        return ()
    hosts = find_hosts(case.act.parts)
    return _find_unreachable_hosts(case, hosts) if hosts else () if _collect_reachable_hosts(case) else (ALL,)


def _collect_reachable_hosts(case: Case) -> NetworkChoice:
    chats, call_reach = (
        exclude_hosts(each, _list_denied_hosts(case)) for each in (case.options.network, case.invocation.network)
    )
    return join_choices(join_choices(chats, call_reach), _collect_allowed_hosts(case))


def _ask_for_network(case: Case, wants: tuple[str, ...]) -> Verdict:
    way_out = f"A person can start it with --network {','.join(wants)}."
    need = Need(_render_network_reason(wants), _make_network_offers(wants), way_out)
    return replace(word_verdicts.ask_or_deny(case, need), wants=wants)


def _render_network_reason(wants: Sequence[str]) -> str:
    return "it needs the network" + ("" if wants == (ALL,) else f": {', '.join(wants)}")


def _make_network_offers(wants: Sequence[str]) -> tuple[Offer, ...]:
    scopes: tuple[RuleScope, ...] = ("once", *STANDING)
    offers = []
    for host in [host for host in wants if host != ALL][:_MOST_HOSTS]:
        hosts = expand((host,))
        covers = f"commands that reach {host}" + (f" ({', '.join(hosts)})" if hosts != (host,) else "")
        offers.append(Offer(Rule("allow", NETWORK_TOOL, host), covers, "every other host", scopes))
    everything = Rule("allow", NETWORK_TOOL, ALL, scope="once")
    return (*offers, Offer(everything, "every host", "effects on other machines are not undone", ("once",)))
