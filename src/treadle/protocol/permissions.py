"""Words about permission: standing rules, what a person who is asked may turn into one (S-07), and which variables are
secret."""

import re
from typing import Literal

from msgspec.structs import replace

from treadle.errors import InvalidInput
from treadle.protocol.choices import BEYOND as BEYOND
from treadle.protocol.choices import STANDING as STANDING
from treadle.protocol.choices import RuleEffect as RuleEffect
from treadle.protocol.choices import RuleScope as RuleScope
from treadle.protocol.content import Fingerprint, Value

LATEST_EXPIRY_MS = 253_370_764_800_000  # the beginning of the year 9999
NETWORK_TOOL = "network"  # of rules about hosts: their pattern is one of `treadle.base.host_patterns`, or `all`

SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|PRIVATE|_AUTH$|_PAT$|^PGPASS|DSN$|^TREADLE_STORE$|^OTEL_.*_HEADERS$",
    re.IGNORECASE,
)
"""By their names: variables whose values are secrets. One list, for what commands are not given and for what is not
recorded (M-13, S-11)."""


class Rule(Value, frozen=True):
    """A standing answer. `deny` beats `ask` beats `allow`; of a compound command every part must be covered."""

    effect: RuleEffect
    tool: str  # the tool's name, as the model calls it
    pattern: str = ""
    """For commands: the words of one simple command, where a last `*` stands for any further words. For files: a glob.
    For the network: a host pattern. Empty covers every use of the tool."""
    scope: RuleScope = "chat"
    root: str = ""  # the project, for rules of that scope
    expires_ms: int = 0  # 0: never
    id: str = ""
    created_ms: int = 0
    pin: Fingerprint = ""  # for an MCP tool: the hash of the description and schema for which the rule was made


def check_expiry(rule: Rule) -> None:
    """InvalidInput for an expiry, or a time at which the rule was made, that is no point in time."""
    for time_ms in (rule.expires_ms, rule.created_ms):
        if not 0 <= time_ms <= LATEST_EXPIRY_MS:
            raise InvalidInput(f"a rule can be made and can expire until the year 9999; got {time_ms} ms since 1970")


def check_standing(rule: Rule) -> None:
    """Raise InvalidInput if the rule cannot be kept: the checks that hold for every subject of a rule."""
    check_expiry(rule)
    if rule.scope == "once":
        raise InvalidInput("a rule cannot have the scope once; choose chat, project or user")


class Offer(Value, frozen=True):
    """A rule that would have answered this question, with a description of the calls that it covers and of those that
    it does not."""

    rule: Rule
    covers: str
    leaves: str = ""
    scopes: tuple[RuleScope, ...] = ()  # those that may be chosen; empty in old logs: then by the rule's own scope

    @property
    def open_scopes(self) -> tuple[RuleScope, ...]:
        return self.scopes or (("once",) if self.rule.scope == "once" else STANDING)

    def rule_for(self, scope: RuleScope, decision: Literal["allow", "deny"] = "allow") -> Rule:
        """The rule that an answer makes by this offer. InvalidInput: the scope is wider than what is offered."""
        if scope not in ("once", *self.open_scopes):
            scopes = " or ".join(self.open_scopes)
            raise InvalidInput(f"this is offered with the scope {scopes}, not {scope}: {self.covers}")
        return replace(self.rule, scope=scope, effect=decision)

    def allows_rule(self, rule: Rule, decision: Literal["allow", "deny"]) -> bool:
        """True if an answer may make this rule by this offer. `once` is always narrow enough."""
        if rule.scope not in ("once", *self.open_scopes):
            return False
        offered_rule = self.rule_for(rule.scope, decision)
        return replace(offered_rule, id=rule.id, created_ms=rule.created_ms, expires_ms=rule.expires_ms) == rule
