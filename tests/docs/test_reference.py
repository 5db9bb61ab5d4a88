"""All commands, options and settings are documented, completely and truly."""

import re
from pathlib import Path

import click
import msgspec
import pytest

from treadle.adapters.models.catalog.lookup import KEYS as MODEL_KEYS
from treadle.adapters.models.providers import ADDRESSES, KEYS, SERVERS
from treadle.adapters.models.registry import PROVIDERS
from treadle.base.types import HOME_VARIABLE
from treadle.frontends.cli import COMMANDS
from treadle.frontends.cli.group import cli
from treadle.library.config import Settings, make_variable_name

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
COMMAND_LINE = (REFERENCE / "command-line.md").read_text(encoding="utf-8")
CONFIGURATION = (REFERENCE / "configuration.md").read_text(encoding="utf-8")


def command(name: str) -> click.Command:
    subcommand = cli.get_command(click.Context(cli), name)
    assert subcommand is not None
    return subcommand


def section(name: str) -> str:
    return re.split(r"^## ", COMMAND_LINE, flags=re.M)[[*headings(COMMAND_LINE)].index(name) + 1]


def headings(text: str) -> list[str]:
    return re.findall(r"^## (.*)$", text, flags=re.M)


def test_every_command_has_a_section_in_the_order_of_the_help() -> None:
    assert headings(COMMAND_LINE)[: len(COMMANDS)] == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented_and_no_other(name: str) -> None:
    options = {
        flag
        for parameter in command(name).params
        if isinstance(parameter, click.Option)
        for flag in parameter.opts
        if flag.startswith("--")
    }
    documented_options = set(re.findall(r"`(--[a-z-]+)", section(name)))
    assert options <= documented_options
    rows = set(re.findall(r"^\| `(--[a-z-]+)", section(name), flags=re.M))
    assert rows <= options


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_made_of_whole_sentences(name: str) -> None:
    texts = [command(name).help or ""]
    texts += [parameter.help or "" for parameter in command(name).params if isinstance(parameter, click.Option)]
    for text in texts:
        for paragraph in filter(None, (part.strip() for part in text.split("\n\n"))):
            assert re.match(r"[A-Z]", paragraph), paragraph
            assert paragraph.endswith("."), paragraph


def test_every_setting_is_documented_with_its_variable_and_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| `?([^|`]+)`? \| (.+) \|$", CONFIGURATION, flags=re.M)
    assert [row[0] for row in rows] == list(Settings.__struct_fields__)
    defaults = msgspec.to_builtins(Settings())
    for name, shown_variable, shown_default, _ in rows:
        assert shown_variable == make_variable_name(name)
        default = defaults[name]
        encoded = msgspec.json.encode(default).decode().strip('"').removesuffix(".0")
        assert shown_default.strip() == ("none" if default in ("", None, ()) else encoded)


def test_every_variable_that_is_read_is_documented() -> None:
    sources = Path(__file__).parents[2] / "src" / "treadle"
    read = {HOME_VARIABLE, *KEYS, *ADDRESSES}
    for file in sources.rglob("*.py"):
        read |= set(re.findall(r"\"(TREADLE_[A-Z_]*[A-Z])\"", file.read_text(encoding="utf-8")))
    assert {name for name in read if f"`{name}`" not in CONFIGURATION} == set()


def test_every_key_of_the_users_own_catalogue_is_documented() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|`]+ \| ", section_of(CONFIGURATION, "Models of your own"), flags=re.M)
    assert rows == list(MODEL_KEYS)


def test_the_guide_has_a_word_on_every_provider() -> None:
    guide = (REFERENCE.parent / "guide" / "models.md").read_text(encoding="utf-8")
    assert [name for name in (*PROVIDERS, *SERVERS) if f"`{name}:" not in guide] == []


def section_of(text: str, heading: str) -> str:
    return re.split(r"^## ", text, flags=re.M)[headings(text).index(heading) + 1]
