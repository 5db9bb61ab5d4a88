"""Standing answers (S-07): the parts of a rule, the files and tools that it covers (commands: `command_rules`), the
pins of tools of MCP servers, and the book of rules in Treadle's home, by the project's real path, never in the project
(S-09)."""

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice
from operator import attrgetter
from pathlib import Path

import msgspec
from msgspec.structs import replace

from treadle.adapters.policy.command_rules import check_command_pattern
from treadle.adapters.policy.sensitive_files import is_literal, matches_path
from treadle.base.file_system import is_below
from treadle.base.home_file import HomeFile
from treadle.base.host_patterns import ALL
from treadle.base.host_patterns import check_pattern as check_host
from treadle.base.inert import escape_unprintable
from treadle.base.types import Clock, SystemClock, make_id
from treadle.diff.diff import diff_texts
from treadle.errors import ConfigError, InvalidInput, NotFound
from treadle.protocol.options import ChatOptions
from treadle.protocol.permissions import LATEST_EXPIRY_MS, NETWORK_TOOL, Rule, RuleEffect, check_standing
from treadle.protocol.tools import COMMAND_TOOL, EDIT_TOOL, EDIT_TOOLS, INPUT_TOOL, MCP_PREFIX, ToolSpec, compute_digest


def check_rule(rule: Rule) -> None:
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
def find_file_rule(
    rules: Iterable[Rule], effect: RuleEffect, tool: str, names: Sequence[str], *, edits: bool
) -> Rule | None:
    """The rule about a call that touches a file, by any of its names: with a pattern for every call that `edits` it."""
    for rule in rules:
        covers_tool = rule.tool == tool or (rule.pattern and rule.tool in EDIT_TOOLS and edits)
        covers_file = not rule.pattern or any(matches_path(rule.pattern, name) for name in names)
        if rule.effect == effect and covers_tool and covers_file:
            return rule
    return None


def find_rule_allowing_file(rules: Iterable[Rule], tool: str, names: Sequence[str], *, sensitive: bool) -> Rule | None:
    """The rule that allows a change of this file under each of its names. For a sensitive one it must name the file."""
    usable = [rule for rule in rules if rule.pattern and (is_literal(rule.pattern) or not sensitive)]
    allowing = [find_file_rule(usable, "allow", tool, (name,), edits=True) for name in names]
    return allowing[-1] if all(allowing) and allowing else None


def find_tool_rule(rules: Iterable[Rule], effect: RuleEffect, spec: ToolSpec) -> Rule | None:
    return next(
        (rule for rule in rules if rule.effect == effect and matches_tool(rule, spec) and not rule.pattern), None
    )


def matches_tool(rule: Rule, spec: ToolSpec) -> bool:
    """True if the rule applies to this tool: by its name, or by a pattern of the tools of MCP servers."""
    return rule.tool == spec.name or (rule.tool.startswith(MCP_PREFIX) and fnmatchcase(spec.rule_name, rule.tool))


def describe_rule(rule: Rule) -> str:
    subject = f"{rule.tool} {rule.pattern}" if rule.pattern and rule.tool != COMMAND_TOOL else rule.pattern
    return f"the {rule.scope} rule `{rule.effect} {subject or rule.tool}`"


PINS_FILE = "tool-pins.json"
_MOST_PINS = 2_000
_MOST_TEXTS = 500


class _Pins(msgspec.Struct, frozen=True):
    first_uses: dict[str, str] = {}  # by rule and tool: the pin of the tool when the rule first answered for it
    texts: dict[str, str] = {}  # by pin: the description and the schema, to show what has changed
    version: int = 1


class ToolPins:
    """A rule about a tool of an MCP server counts while the tool's description and schema are those that the person
    knew (S-07, E-01): by its `pin`, else by the pin at its first use. Without a home, pins end with the process."""

    def __init__(self, home: Path | None = None) -> None:
        self._file = None if home is None else HomeFile(home / PINS_FILE, _Pins)
        self._unsaved = _Pins()

    def find_holding(self, rules: Sequence[Rule], spec: ToolSpec) -> Rule | None:
        """The rule made for the tool as it is. Unpinned ones are pinned to it, unless another shows a change."""
        if not spec.server:
            return next(iter(rules), None)
        pins, now = self._read(), make_pin(spec)
        rule_pins = [(rule, rule.pin or pins.first_uses.get(_make_pin_key(rule, spec), "")) for rule in rules]
        holding = next((rule for rule, pin in rule_pins if pin == now), None)
        unpinned = [rule for rule, pin in rule_pins if not pin]
        if holding is None and len(unpinned) < len(rule_pins):
            return None
        if unpinned:
            self._add(_Pins({_make_pin_key(rule, spec): now for rule in unpinned}, {now: _render_tool(spec)}))
        return holding or next(iter(unpinned), None)

    def render_difference(self, rule: Rule, spec: ToolSpec) -> str:
        pins = self._read()
        old_text = pins.texts.get(rule.pin or pins.first_uses.get(_make_pin_key(rule, spec), ""))
        if old_text is None:
            return "The earlier description of the tool is no longer known. It says now:\n" + _render_tool(spec)
        return diff_texts(spec.name, old_text, _render_tool(spec)).text

    def keep_text(self, spec: ToolSpec) -> None:
        """Remember the description and the schema, for the rule that a person may make now."""
        if spec.server and make_pin(spec) not in self._read().texts:
            self._add(_Pins({}, {make_pin(spec): _render_tool(spec)}))

    def _read(self) -> _Pins:
        return self._unsaved if self._file is None else _merge(self._unsaved, self._file.read())

    def _add(self, more: _Pins) -> None:
        with suppress(ConfigError):  # a home that cannot be written
            if self._file is not None:
                self._file.change(lambda saved: _merge(more, saved))
                return
        self._unsaved = _merge(more, self._unsaved)


def _merge(more: _Pins, saved: _Pins) -> _Pins:
    """Of two first uses the saved one counts. The newest come first, and the oldest are dropped."""
    uses, texts = {**more.first_uses, **saved.first_uses}, {**more.texts, **saved.texts}
    return replace(
        saved, first_uses=dict(islice(uses.items(), _MOST_PINS)), texts=dict(islice(texts.items(), _MOST_TEXTS))
    )


def make_pin(spec: ToolSpec) -> str:
    return compute_digest([spec.name, spec.description, spec.parameters, spec.read_only])


def _render_tool(spec: ToolSpec) -> str:
    schema = msgspec.json.format(msgspec.json.encode(spec.parameters, order="sorted"), indent=2).decode()
    hint = "The server says that it only reads.\n" if spec.read_only else ""
    return escape_unprintable(f"{spec.description}\n{hint}\n{schema}\n")


def _make_pin_key(rule: Rule, spec: ToolSpec) -> str:
    return f"{rule.id or rule.tool} {spec.name}"


RULES_FILE = "rules.json"
USE_FOLDER = "rules-used"  # one empty file a rule; its time is the rule's last use, noted without lock and sync
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class _Rules(msgspec.Struct, frozen=True):
    rules: tuple[Rule, ...] = ()
    version: int = 1

    def __post_init__(self) -> None:
        """A time out of range, as older versions saved it, becomes the nearest: so the file can be written."""
        if any(_clamp_times(rule) != rule for rule in self.rules):
            msgspec.structs.force_setattr(self, "rules", tuple(map(_clamp_times, self.rules)))


class _RawRules(msgspec.Struct, frozen=True):
    rules: tuple[msgspec.Raw, ...] = ()


class RuleBook:
    """Any number of processes may read and write it at once."""

    def __init__(self, home: Path | str, clock: Clock | None = None) -> None:
        self._home = Path(home)
        self._file = HomeFile(self._home / RULES_FILE, _Rules)
        self._clock = clock or SystemClock()
        self.pins = ToolPins(self._home)

    def list_rules(self) -> tuple[Rule, ...]:
        return self._file.read().rules

    def list_readable(self) -> tuple[list[Rule], str]:
        """The rules that can be read, for a person to see, and what is wrong with the file; empty if it is sound."""
        rules: list[Rule] = []
        try:
            return list(self.list_rules()), ""
        except ConfigError as error:
            with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
                for entry in msgspec.json.decode(self._file.path.read_bytes(), type=_RawRules).rules:
                    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                        rules.append(_clamp_times(msgspec.json.decode(entry, type=Rule)))
            return rules, str(error)

    def list_applicable(self, root: str) -> tuple[Rule, ...]:
        """The rules in force in a project. Commands can write a home inside of it: then no rule there allows."""
        rules = select_live(self.list_rules(), self._clock.now_ms())
        if not rules:
            return ()
        real = os.path.realpath(root)
        allows = not is_below(os.path.realpath(self._home), real)
        in_scope = (rule for rule in rules if rule.scope == "user" or (rule.scope == "project" and rule.root == real))
        return tuple(rule for rule in in_scope if allows or rule.effect != "allow")

    def add(self, rule: Rule) -> Rule:
        """Keep a rule; the same one again only moves its expiry. InvalidInput if it is none."""
        check_rule(rule)
        new_rule = stamp_rule(rule, self._clock.now_ms())
        if new_rule.scope == "project":
            new_rule = replace(new_rule, root=os.path.realpath(new_rule.root))
        key = attrgetter("effect", "tool", "pattern", "scope", "root")
        self._file.change(
            lambda book: replace(book, rules=(*(old for old in book.rules if key(old) != key(new_rule)), new_rule))
        )
        return new_rule

    def revoke(self, id: str) -> Rule:
        """Take a rule away. NotFound if there is none of this id."""
        revoked: list[Rule] = []

        def drop_rule(book: _Rules) -> _Rules:
            revoked.extend(rule for rule in book.rules if rule.id == id)
            return replace(book, rules=tuple(rule for rule in book.rules if rule.id != id))

        if any(rule.id == id for rule in self.list_rules()):
            self._file.change(drop_rule)
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

    def forget_use(self, id: str) -> None:
        if (path := self._use_file(id)) is not None:
            with suppress(OSError):
                path.unlink()

    def read_last_use_ms(self, id: str) -> int:
        with suppress(OSError):
            return 0 if (path := self._use_file(id)) is None else round(path.stat().st_mtime * 1000)
        return 0

    def _use_file(self, id: str) -> Path | None:
        """None for an id that is no plain name: rules of a chat come with ids that clients chose."""
        return self._home / USE_FOLDER / id if _ID.fullmatch(id) else None


def select_live(rules: tuple[Rule, ...], now_ms: int) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if not rule.expires_ms or rule.expires_ms > now_ms)


def stamp_rule(rule: Rule, now_ms: int) -> Rule:
    return replace(rule, id=rule.id or make_id("r"), created_ms=rule.created_ms or now_ms)


def _clamp_times(rule: Rule) -> Rule:
    expires_ms = min(rule.expires_ms, LATEST_EXPIRY_MS) if rule.expires_ms >= 0 else 1
    created_ms = max(0, min(rule.created_ms, LATEST_EXPIRY_MS))
    return replace(rule, expires_ms=expires_ms, created_ms=created_ms)


def collect_rules(book: RuleBook | None, root: str, options: ChatOptions, now_ms: int) -> tuple[Rule, ...]:
    """A chat's own rules, those of the project, those of the user. ConfigError if the stored ones cannot be read."""
    stored_rules = book.list_applicable(root) if book is not None and root else ()
    return (*select_live(options.rules, now_ms), *stored_rules)
