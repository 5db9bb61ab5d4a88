"""Options that several commands share."""

import click
import pytest
from click.testing import CliRunner

from treadle.frontends.cli.options import NetworkCommand, network_option


@click.command("x", cls=NetworkCommand)
@click.argument("words", nargs=-1)
@network_option
def command(words: tuple[str, ...], network: str | None) -> None:
    click.echo(f"{network} {'|'.join(words)}")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("make", "None make"),
        ("--network make", "all make"),
        ("make --network", "all make"),
        ("--network registries make", "registries make"),
        ("--network pypi,github.com make", "pypi,github.com make"),
        ("--network=x.org make", "x.org make"),
        ("--network none make", "none make"),
        ("-- --network x.org", "None --network|x.org"),
    ],
)
def test_network_with_and_without_hosts(typed: str, expected: str) -> None:
    assert CliRunner().invoke(command, typed.split()).output == expected + "\n"
