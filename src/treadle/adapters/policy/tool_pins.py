"""Pins rules about tools of MCP servers to what the tools say of themselves (S-07, E-01): a rule counts as long as the
description and the schema of the tool are those that the person knew. A rule with a `pin` names them by their hash; any
other rule (of an older version, made by hand, or for all tools of a server) is pinned for each tool at its first use.

The pins of first uses and the texts behind the hashes lie in a file in Treadle's home. Without a home, or where it
cannot be written, they are kept as long as the process lives.
"""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import msgspec
from msgspec.structs import replace

from treadle.base.home_file import HomeFile
from treadle.base.inert import printable
from treadle.diff.diff import diff
from treadle.errors import ConfigError
from treadle.protocol.permissions import Rule
from treadle.protocol.tools import ToolSpec, digest

FILE_NAME = "tool-pins.json"
_MOST_PINS = 2_000
_MOST_TEXTS = 500


class _Pins(msgspec.Struct, frozen=True):
    first_uses: dict[str, str] = {}
    """By the id of a rule and the name of a tool: the pin of the tool when the rule first answered for it."""
    texts: dict[str, str] = {}
    """By pin: the description and the schema, to show what has changed."""
    version: int = 1


class ToolPins:
    def __init__(self, home: Path | None = None) -> None:
        self._file = None if home is None else HomeFile(home / FILE_NAME, _Pins)
        self._unsaved = _Pins()

    def find_holding(self, rules: Sequence[Rule], spec: ToolSpec) -> Rule | None:
        """Of the rules that allow the tool, one that was made for the tool as it is now. Rules without a pin are pinned
        to it, unless another rule shows that the tool has changed. ConfigError: the pins cannot be read."""
        if not spec.server:
            return next(iter(rules), None)
        pins, now = self._read(), pin_of(spec)
        rule_pins = [(rule, rule.pin or pins.first_uses.get(_key(rule, spec), "")) for rule in rules]
        holding = next((rule for rule, pin in rule_pins if pin == now), None)
        unpinned = [rule for rule, pin in rule_pins if not pin]
        if holding is None and len(unpinned) < len(rule_pins):
            return None
        if unpinned:
            self._add(_Pins({_key(rule, spec): now for rule in unpinned}, {now: _text(spec)}))
        return holding or next(iter(unpinned), None)

    def difference(self, rule: Rule, spec: ToolSpec) -> str:
        """The change of the tool since the rule was pinned, as a diff."""
        pins = self._read()
        old_text = pins.texts.get(rule.pin or pins.first_uses.get(_key(rule, spec), ""))
        if old_text is None:
            return "The earlier description of the tool is no longer known. It says now:\n" + _text(spec)
        return diff(spec.name, old_text, _text(spec)).text

    def keep_text(self, spec: ToolSpec) -> None:
        """Remember the description and the schema, for the rule that a person may make now."""
        if spec.server and pin_of(spec) not in self._read().texts:
            self._add(_Pins({}, {pin_of(spec): _text(spec)}))

    def _read(self) -> _Pins:
        return self._unsaved if self._file is None else _merge(self._unsaved, self._file.read())

    def _add(self, more: _Pins) -> None:
        try:
            if self._file is not None:
                self._file.change(lambda saved: _merge(more, saved))
                return
        except ConfigError:  # a home that cannot be written
            pass
        self._unsaved = _merge(more, self._unsaved)


def _merge(more: _Pins, saved: _Pins) -> _Pins:
    """Of two first uses the saved one counts. The newest come first, and the oldest are dropped."""
    uses, texts = {**more.first_uses, **saved.first_uses}, {**more.texts, **saved.texts}
    return replace(
        saved, first_uses=dict(islice(uses.items(), _MOST_PINS)), texts=dict(islice(texts.items(), _MOST_TEXTS))
    )


def pin_of(spec: ToolSpec) -> str:
    return digest([spec.name, spec.description, spec.parameters, spec.read_only])


def _text(spec: ToolSpec) -> str:
    schema = msgspec.json.format(msgspec.json.encode(spec.parameters, order="sorted"), indent=2).decode()
    hint = "The server says that it only reads.\n" if spec.read_only else ""
    return printable(f"{spec.description}\n{hint}\n{schema}\n")


def _key(rule: Rule, spec: ToolSpec) -> str:
    return f"{rule.id or rule.tool} {spec.name}"
