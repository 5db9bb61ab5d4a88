"""What can be typed after `treadle models`."""

import click


@click.group("models")
def command() -> None:
    """Get models that run on this machine."""


@command.command("fetch")
@click.argument("name")
def fetch(name: str) -> int:
    """Download a model to run it on this machine, without any key.

    NAME is smollm2 (0.1 GB) or qwen-coder (1.1 GB). What was downloaded before an interruption is kept.
    """
    from treadle.cli.models import fetch_model

    return fetch_model(name)
