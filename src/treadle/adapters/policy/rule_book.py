"""Rules that outlast a chat: a file in Treadle's home, by the project's real path, never in the project (S-09)."""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from treadle.adapters.policy.rules import check
from treadle.adapters.policy.tool_pins import ToolPins
from treadle.base.file_system import is_below
from treadle.base.home_file import HomeFile
from treadle.base.types import Clock, SystemClock, new_id
from treadle.errors import ConfigError, NotFound
from treadle.protocol.options import ChatOptions
from treadle.protocol.permissions import LATEST_EXPIRY_MS, Rule

FILE_NAME = "rules.json"
USE_FOLDER = "rules-used"
"""One empty file a rule; its time is the rule's last use. Noted without lock and sync: losing one costs nothing."""
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class _Rules(msgspec.Struct, frozen=True):
    rules: tuple[Rule, ...] = ()
    version: int = 1

    def __post_init__(self) -> None:
        """An expiry out of range, which older versions saved, becomes the nearest one: else the file could be read and
        not be written again."""
        if any(_in_range(rule) != rule for rule in self.rules):
            msgspec.structs.force_setattr(self, "rules", tuple(map(_in_range, self.rules)))


class _RawRules(msgspec.Struct, frozen=True):
    rules: tuple[msgspec.Raw, ...] = ()


class RuleBook:
    """Any number of processes may read and write it at once."""

    def __init__(self, home: Path | str, clock: Clock | None = None) -> None:
        self._home = Path(home)
        self._file = HomeFile(self._home / FILE_NAME, _Rules)
        self._clock = clock or SystemClock()
        self.pins = ToolPins(self._home)

    def all(self) -> tuple[Rule, ...]:
        """Everything that is written there, expired or not."""
        return self._file.read().rules

    def readable(self) -> tuple[list[Rule], str]:
        """The rules that can be read, for a person to see, and what is wrong with the file; empty if it is sound."""
        try:
            return list(self.all()), ""
        except ConfigError as error:
            damage = str(error)
        rules: list[Rule] = []
        with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
            for entry in msgspec.json.decode(self._file.path.read_bytes(), type=_RawRules).rules:
                with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                    rules.append(_in_range(msgspec.json.decode(entry, type=Rule)))
        return rules, damage

    def of(self, root: str) -> tuple[Rule, ...]:
        """Return the rules in force in a project. If Treadle's home is inside the project, commands that work in the
        project could write it, so its allow rules are ignored."""
        rules = live(self.all(), self._clock.now_ms())
        if not rules:
            return ()
        real = os.path.realpath(root)
        allows = not is_below(os.path.realpath(self._home), real)
        in_scope = (rule for rule in rules if rule.scope == "user" or (rule.scope == "project" and rule.root == real))
        return tuple(rule for rule in in_scope if allows or rule.effect != "allow")

    def add(self, rule: Rule) -> Rule:
        """Keep a rule; the same one again only moves its expiry. InvalidInput if it is none."""
        check(rule)
        new_rule = stamped(rule, self._clock.now_ms())
        if new_rule.scope == "project":
            new_rule = replace(new_rule, root=os.path.realpath(new_rule.root))

        def key(rule: Rule) -> tuple[str, ...]:
            return rule.effect, rule.tool, rule.pattern, rule.scope, rule.root

        def change(book: _Rules) -> _Rules:
            return replace(book, rules=(*(old for old in book.rules if key(old) != key(new_rule)), new_rule))

        self._file.change(change)
        return new_rule

    def revoke(self, id: str) -> Rule:
        """Take a rule away. NotFound if there is none of this id."""
        revoked: list[Rule] = []

        def change(book: _Rules) -> _Rules:
            revoked.extend(rule for rule in book.rules if rule.id == id)
            return replace(book, rules=tuple(rule for rule in book.rules if rule.id != id))

        if any(rule.id == id for rule in self.all()):
            self._file.change(change)
        if not revoked:
            raise NotFound(f"there is no rule {id!r}; see them with: treadle rules")
        self.forget_use(id)
        return revoked[0]

    def note_use(self, rules: Iterable[Rule]) -> None:
        """Record that these rules answered just now. A home that cannot be written records nothing."""
        now = self._clock.now_ms() / 1000
        for rule in rules:
            if (path := self._use_file(rule.id)) is None:
                continue
            with suppress(OSError):
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                path.touch(mode=0o600)
                os.utime(path, (now, now))

    def last_used_ms(self, id: str) -> int:
        """When the rule answered last; 0 if it never did."""
        path = self._use_file(id)
        with suppress(OSError):
            return 0 if path is None else round(path.stat().st_mtime * 1000)
        return 0

    def forget_use(self, id: str) -> None:
        if (path := self._use_file(id)) is not None:
            with suppress(OSError):
                path.unlink()

    def _use_file(self, id: str) -> Path | None:
        """None for an id that is no plain name: rules of a chat come with ids that clients chose."""
        return self._home / USE_FOLDER / id if _ID.fullmatch(id) else None


def live(rules: tuple[Rule, ...], now_ms: int) -> tuple[Rule, ...]:
    """Those that have not expired."""
    return tuple(rule for rule in rules if not rule.expires_ms or rule.expires_ms > now_ms)


def stamped(rule: Rule, now_ms: int) -> Rule:
    """With an id to revoke it by, and the time at which it was made."""
    return replace(rule, id=rule.id or new_id("r"), created_ms=rule.created_ms or now_ms)


def _in_range(rule: Rule) -> Rule:
    if 0 <= rule.expires_ms <= LATEST_EXPIRY_MS:
        return rule
    return replace(rule, expires_ms=LATEST_EXPIRY_MS if rule.expires_ms > 0 else 1)


def rules_of(book: RuleBook | None, root: str, options: ChatOptions, now_ms: int) -> tuple[Rule, ...]:
    """A chat's own rules, those of the project, those of the user. ConfigError if the stored ones cannot be read."""
    stored_rules = book.of(root) if book is not None and root else ()
    return (*live(options.rules, now_ms), *stored_rules)
