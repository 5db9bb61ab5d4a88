"""The keys and commands of docs/guide/terminal.md are those of the app (U-10)."""

import re
from pathlib import Path

import pytest
from textual.binding import Binding

from treadle.frontends.tui.app import TreadleApp
from treadle.frontends.tui.commands import ACTS, COMMANDS, KEYS
from treadle.frontends.tui.composer import Composer

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "terminal.md").read_text()
TYPED = {"Enter", "Ctrl-S", "Shift-Enter", "Alt-Enter", "Ctrl-J", "\\ Enter", "Up", "Down", "Tab", "@", "!", "/"}
"""Keys that the composer takes by itself; scenarios press them."""
OF_TEXTUAL = {"Ctrl-V"}


def documented_keys() -> set[str]:
    table = PAGE.partition("## Keys")[2].partition("\n\n")[2].partition("\n\n")[0]
    cells = [line.split("|")[1].strip() for line in table.splitlines()[2:]]
    return {key.strip() for cell in cells for key in cell.replace("`", "").split(", ")}


def helped_keys() -> set[str]:
    return {key.strip() for keys in KEYS for key in keys.split(", ")}


def bound_keys() -> set[str]:
    bindings = [each for each in (*TreadleApp.BINDINGS, *Composer.BINDINGS) if isinstance(each, Binding)]
    return {name for each in bindings for key in each.key.split(",") for name in _names(key)}


def _names(key: str) -> list[str]:
    names = {"escape": "Esc", "pageup": "Page Up", "pagedown": "Page Down", "shift+tab": "Shift-Tab"}
    return [names.get(key) or "-".join(part.capitalize() for part in key.split("+"))]


def test_the_page_and_the_help_name_the_same_keys() -> None:
    assert documented_keys() == helped_keys()


def test_every_documented_key_does_something() -> None:
    assert documented_keys() - TYPED - OF_TEXTUAL <= bound_keys()


def test_every_bound_key_is_documented() -> None:
    undocumented = bound_keys() - documented_keys()
    assert undocumented <= {"Ctrl-Underscore", "Ctrl-Minus"}, undocumented


def test_every_command_does_something_and_those_on_the_page_are_there() -> None:
    assert COMMANDS.keys() == ACTS.keys()
    assert set(re.findall(r"`/(\w+)`", PAGE)) <= COMMANDS.keys()


@pytest.mark.parametrize("name", ["exit", "quit", "clear", "status", "init", "compact", "cost", "permissions", "copy"])
def test_names_that_users_of_other_agents_know(name: str) -> None:
    assert name in COMMANDS
