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
about is denied, and the changes of a command are discarded.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from treadle.adapters.policy import network, rules, word_verdicts
from treadle.adapters.policy.acts import act_of, command_act, render_call
from treadle.adapters.policy.changes import ALWAYS_ASKED, ChangeSet, Concern, concerns, stopping_rule
from treadle.adapters.policy.rule_book import RuleBook, rules_of
from treadle.adapters.policy.sensitive_files import find_linked
from treadle.adapters.policy.tool_pins import ToolPins
from treadle.adapters.policy.word_verdicts import Approved, Case, Need
from treadle.base.types import SystemClock
from treadle.diff.changes import is_folder
from treadle.errors import ConfigError
from treadle.ports.policy import Verdict
from treadle.ports.toolset import Invocation, Rehearsal
from treadle.protocol.files import decode_path
from treadle.protocol.options import ChatOptions
from treadle.protocol.permissions import Rule
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
        if is_closed and spec.command_in(invocation.arguments) is None:
            return Verdict("deny", _READ_ONLY.format(spec.name))
        try:
            applicable_rules = self._rules(invocation.root, options)
        except ConfigError as error:
            return Verdict("deny", f"The user's rules cannot be read, so nothing is allowed: {error}")
        act = act_of(spec, invocation)
        has_rule = any(rules.names(rule, spec) for rule in applicable_rules)
        if spec.read_only and not spec.needs_approval and not has_rule and not act.files:
            return Verdict("allow")
        case = Case(spec, invocation, options, applicable_rules, act, self._pins, self.every_command(options))
        stopped = network.stopped(case) or _stopped_by_words(case)
        if is_closed and stopped is not None and stopped.decision != "deny":
            return Verdict("deny", _READ_ONLY.format(spec.name))
        return network.standing(case, stopped or _by_words_or_review(case))

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
        applicable_rules = self._rules(invocation.root, options)
        case = Case(spec, invocation, options, applicable_rules, act_of(spec, invocation), self._pins)
        if rehearsal is None:
            return word_verdicts.verdict(case) if case.act.kind == "job" else _unrehearsed(case)
        if rehearsal.command:
            # A call that commits the changes of a background command is judged as that command, in the folder and with
            # the variables that it was started with.
            shell = case.invocation.shell if rehearsal.shell is None else rehearsal.shell
            arguments = {"command": rehearsal.command, "background": True}
            command_call = replace(invocation, name=COMMAND_TOOL, arguments=arguments, shell=shell)
            case = replace(case, invocation=command_call, act=command_act(rehearsal.command, command_call))
        if (denied := stopping_rule(rehearsal.files, "deny", case.rules)) is not None:
            return word_verdicts.refused(denied)
        if case.spec.job_argument and invocation.by_person:
            return Verdict("allow", _BY_PERSON)
        if (question := network.failed(case, rehearsal)) is not None:
            return question
        if rehearsal.empty:
            return Verdict("allow", HARMLESS if case.act.kind == "command" else "")
        if options.mode == "read-only":
            return Verdict("discard", _DISCARDED, case.act.finding.severity)
        return _by_changes(case, rehearsal)

    def _note_use(self, root: str, options: ChatOptions, verdict: Verdict) -> None:
        """A rule was used if the verdict names it, or lets the call reach its hosts."""
        if self._book is None or not (verdict.reason or verdict.network):
            return
        with suppress(ConfigError):
            self._book.note_use(
                rule
                for rule in self._rules(root, options)
                if rules.in_words(rule) in verdict.reason or network.opens(rule, verdict.network)
            )

    def _rules(self, root: str, options: ChatOptions) -> tuple[Rule, ...]:
        return rules_of(self._book, root, options, self._now_ms())


def _stopped_by_words(case: Case) -> Verdict | None:
    """Return the refusal, or one question with every reason that the text of the command gives. A person who approved
    the text is not asked about it again; the changes are still judged (decision 0010)."""
    stopped, secret = word_verdicts.stopped(case), word_verdicts.names_secret(case)
    if stopped is None or stopped.decision == "deny":
        return stopped or secret
    if _words_are_approved(case):
        return None
    if secret is None or secret.decision == "deny":
        return stopped
    return replace(stopped, reason=f"{stopped.reason}; {secret.reason}", offers=(*stopped.offers, *secret.offers))


def _words_are_approved(case: Case) -> bool:
    """True if a person approved this command. A call that commits the changes of a job was approved by its effect."""
    is_command = case.act.kind == "command" and not case.spec.job_argument
    return is_command and case.invocation.approved and _can_be_rehearsed(case)


def _by_words_or_review(case: Case) -> Verdict:
    """Judge the call by its text, or return "review" if its changes must be determined first."""
    act, mode, allow_reason = case.act, case.options.mode, ""
    if not _can_be_rehearsed(case) or (act.kind == "edit" and mode == "confirm"):
        return word_verdicts.verdict(case)
    if act.kind == "command" and mode != "read-only":
        if mode == "confirm" and not _words_are_approved(case):
            by_words = word_verdicts.verdict(case)
            if by_words.decision != "allow":
                return by_words
            allow_reason = by_words.reason
        if (question := network.needed(case)) is not None:
            return question
    return Verdict("review", allow_reason, act.finding.severity, render_call(case.invocation, act))


def _can_be_rehearsed(case: Case) -> bool:
    """True if a rehearsal is worth trying; the tool may still report that it cannot."""
    if case.act.kind == "command":
        return not case.spec.input_argument
    return case.act.kind == "job" or (case.act.kind == "edit" and not case.spec.needs_approval)


def _unrehearsed(case: Case) -> Verdict:
    """Judge by the text, because the changes cannot be determined."""
    if case.options.mode == "read-only":
        return Verdict("deny", _READ_ONLY.format(case.spec.name))
    by_words = word_verdicts.verdict(case)
    arguments = case.invocation.arguments
    outlives_call = case.act.kind == "command" and (arguments.get("background") or arguments.get("pty"))
    if by_words.decision == "allow" and case.options.mode != "autopilot" and outlives_call:
        need = Need(WRITES_UNSEEN, way_out="A person can start it with --mode autopilot.")
        return word_verdicts.ask_or_deny(case, need)
    if by_words.decision != "ask" or case.act.kind != "command":
        return by_words
    return replace(by_words, reason=f"{by_words.reason}; {UNREHEARSED}")


# -- verdicts by the changes ------------------------------------------------------------------------------------------


def _by_changes(case: Case, rehearsal: Rehearsal) -> Verdict:
    edit = case.act.kind == "edit"
    paths = (decode_path(file.path) for file in rehearsal.files if not is_folder(file))
    spelled = case.sensitive if edit else tuple(find_linked(case.root, paths, case.options.sensitive))
    changes = ChangeSet(rehearsal.files, rehearsal.unrecoverable, rehearsal.history, spelled)
    approved = word_verdicts.approved_by_words(case) if _words_are_approved(case) else Approved()
    passed_kinds = {"sensitive"} if case.options.auto_approve_sensitive_edits else set()
    if case.invocation.reaches:  # the person who let it reach a registry let it install
        passed_kinds.add("installed")
    allow_reason = "" if edit else word_verdicts.trusted(case)
    trusting = bool(allow_reason) or case.options.mode in ("auto-edit", "autopilot")
    raised = tuple(
        each
        for each in concerns(changes, case.options.sensitive, [rule for rule in case.rules if rule != approved.rule])
        if not approved.covers(each) and each.kind not in passed_kinds
        if not trusting or each.kind in ALWAYS_ASKED
    )
    every = case.options.mode in ("review", "confirm") and not approved.confirmed
    need = _need(case, rehearsal, raised, every=every and not trusting)
    if need is None:
        by_changes = f"auto-approved (what it changes raises no concern; {word_verdicts.rated(case.act)})"
        return Verdict("allow", allow_reason or (word_verdicts.sensitive_passed(case) if edit else by_changes))
    if edit:
        return word_verdicts.ask_or_deny(case, need)
    if case.options.interactive:
        question = word_verdicts.ask_or_deny(case, need)
        return replace(question, approval_text=f"{question.approval_text}\n\n{rehearsal.diff_text}")
    return Verdict("discard", _UNASKED.format(need.reason), case.act.finding.severity, unasked=True)


def _need(case: Case, rehearsal: Rehearsal, raised: Sequence[Concern], *, every: bool) -> Need | None:
    """Return what a person must be asked: the concerns, and with `every` all changes that no rule allows."""
    edit, tool = case.act.kind == "edit", case.invocation.name
    if raised:
        reason = "; ".join(each.reason for each in raised)
        if edit and all(each.kind == "sensitive" for each in raised):
            return word_verdicts.sensitive_need([path for each in raised for path in each.paths], reason, tool)
        if edit or any(each.kind in ALWAYS_ASKED for each in raised):
            return Need(reason, way_out=word_verdicts.SENSITIVE_WAY)
        return word_verdicts.command_need(case, reason)
    if not every:
        return None
    if not edit:
        return word_verdicts.command_need(case, f"in mode {case.options.mode} every change is asked for")
    paths = [decode_path(file.path) for file in rehearsal.files if not is_folder(file)]
    open_paths = [path for path in paths if rules.allows_file(case.rules, tool, (path,), sensitive=False) is None]
    return word_verdicts.edit_need(case, open_paths) if open_paths else None
