"""Rules about tools of MCP servers count for the tool that the person knew (S-07, E-01)."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from treadle.adapters.policy.rules import ToolPins, make_pin
from treadle.errors import ConfigError
from treadle.protocol.permissions import Rule
from treadle.protocol.tools import ToolSpec

NOTE = ToolSpec("odd__note", "Write a note.", {"type": "object"}, server="odd")
CHANGED = replace(NOTE, description="Write a note, and more.")
WIDE = Rule("allow", "mcp:odd__*", id="r_wide")
EXACT = Rule("allow", "odd__note", id="r_exact", pin=make_pin(NOTE))


@pytest.mark.parametrize("more", [{"description": "x"}, {"parameters": {"type": "object", "properties": {"a": {}}}}])
def test_a_pinned_rule_holds_for_its_version_alone(tmp_path: Path, more: dict[str, object]) -> None:
    pins = ToolPins(tmp_path)
    assert pins.find_holding([EXACT], NOTE) == EXACT
    assert pins.find_holding([EXACT], replace(NOTE, **more)) is None  # type: ignore[arg-type]
    assert pins.find_holding([EXACT], replace(NOTE, timeout_s=1.0)) == EXACT


def test_a_rule_without_a_pin_is_pinned_at_its_first_use_for_all_processes(tmp_path: Path) -> None:
    assert ToolPins(tmp_path).find_holding([WIDE], NOTE) == WIDE
    later = ToolPins(tmp_path)
    assert later.find_holding([WIDE], NOTE) == WIDE
    assert later.find_holding([WIDE], CHANGED) is None
    assert "-Write a note.\n+Write a note, and more.\n" in later.render_difference(WIDE, CHANGED)
    other_tool = replace(NOTE, name="odd__look")
    assert later.find_holding([WIDE], other_tool) == WIDE  # its own first use


def test_a_wide_rule_does_not_take_a_changed_tool_for_a_new_one(tmp_path: Path) -> None:
    pins = ToolPins(tmp_path)
    assert pins.find_holding([WIDE, EXACT], CHANGED) is None  # the exact rule knows another version
    assert pins.find_holding([WIDE, EXACT], NOTE) == EXACT
    assert pins.find_holding([WIDE], CHANGED) is None  # pinned beside the exact one, also when that is gone
    renewed = replace(EXACT, pin=make_pin(CHANGED))
    assert pins.find_holding([WIDE, renewed], CHANGED) == renewed


def test_without_a_file_pins_last_as_long_as_the_process(tmp_path: Path) -> None:
    (tmp_path / "tool-pins.json.lock").mkdir()  # so that it cannot be written, by root neither
    for pins in (ToolPins(), ToolPins(tmp_path)):
        pins.keep_text(NOTE)
        assert pins.find_holding([WIDE], NOTE) == WIDE
        assert pins.find_holding([WIDE], CHANGED) is None
        assert "+Write a note, and more." in pins.render_difference(WIDE, CHANGED)


def test_damaged_pins_allow_nothing(tmp_path: Path) -> None:
    (tmp_path / "tool-pins.json").write_text("{")
    (tmp_path / "tool-pins.json").chmod(0o600)
    with pytest.raises(ConfigError, match="damaged"):
        ToolPins(tmp_path).find_holding([EXACT], NOTE)


def test_rules_about_other_tools_need_no_pin(tmp_path: Path) -> None:
    own_tool = ToolSpec("deploy", "Bring it somewhere.")
    assert ToolPins(tmp_path).find_holding([WIDE], own_tool) == WIDE
    assert not list(tmp_path.iterdir())
