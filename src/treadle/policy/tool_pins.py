"""Pins rules about tools of MCP servers to what the tools say of themselves (S-07, E-01): a rule counts as long as the
description and the schema of the tool are those that the person knew. A rule with a `pin` names them by their hash; any
other rule (of an older version, made by hand, or for all tools of a server) is pinned for each tool at its first use.

The pins of first uses and the texts behind the hashes lie in a file in Treadle's home; without a home they are kept as
long as the process lives.
"""

from pathlib import Path

import msgspec
from msgspec.structs import replace

from treadle.inert import printable
from treadle.lines.diff import diff
from treadle.policy.home_file import HomeFile
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
        self._kept = _Pins()

    def holds(self, rule: Rule, spec: ToolSpec) -> bool:
        """Whether a rule that names the tool counts for it as it is now. Pins it, if this is the rule's first use.
        ConfigError: the pins cannot be read or written."""
        if not spec.server:
            return True
        if rule.pin:
            return rule.pin == pin_of(spec)
        return self._first_use(rule, spec) == pin_of(spec)

    def difference(self, rule: Rule, spec: ToolSpec) -> str:
        """What has changed about the tool since the rule was pinned, as a diff."""
        pins = self._read()
        before = pins.texts.get(rule.pin or pins.first_uses.get(_key(rule, spec), ""))
        if before is None:
            return "What the tool said of itself before is not known any more. It says now:\n" + _text(spec)
        return diff(spec.name, before, _text(spec)).text

    def keep_text(self, spec: ToolSpec) -> None:
        """Remember what the tool says of itself, for the rule that a person may make now."""
        if spec.server and pin_of(spec) not in self._read().texts:
            self._change(_Pins({}, {pin_of(spec): _text(spec)}))

    def _first_use(self, rule: Rule, spec: ToolSpec) -> str:
        key = _key(rule, spec)
        if (pin := self._read().first_uses.get(key)) is None:
            pin = self._change(_Pins({key: pin_of(spec)}, {pin_of(spec): _text(spec)})).first_uses[key]
        return pin

    def _read(self) -> _Pins:
        return self._kept if self._file is None else self._file.read()

    def _change(self, more: _Pins) -> _Pins:
        def add(pins: _Pins) -> _Pins:
            uses = {**more.first_uses, **pins.first_uses}  # the first use counts, whoever was faster
            texts = {**pins.texts, **more.texts}
            return replace(
                pins,
                first_uses=dict(list(uses.items())[:_MOST_PINS]),
                texts=dict(list(texts.items())[-_MOST_TEXTS:]),
            )

        self._kept = add(self._kept) if self._file is None else self._file.change(add)
        return self._kept


def pin_of(spec: ToolSpec) -> str:
    return digest([spec.name, spec.description, spec.parameters, spec.read_only])


def _text(spec: ToolSpec) -> str:
    schema = msgspec.json.format(msgspec.json.encode(spec.parameters, order="sorted"), indent=2).decode()
    hint = "The server says that it only reads.\n" if spec.read_only else ""
    return printable(f"{spec.description}\n{hint}\n{schema}\n")


def _key(rule: Rule, spec: ToolSpec) -> str:
    return f"{rule.id or rule.tool} {spec.name}"
