"""What can be typed after `treadle models`."""

import click


@click.group("models", invoke_without_command=True)
@click.option("--all", "everything", is_flag=True, help="List models that cannot be used now, too.")
@click.option("--remote", is_flag=True, help="Ask the providers' servers what they have.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(context: click.Context, everything: bool, remote: bool, as_json: bool) -> int:
    """List the models that can be used, or get one that runs on this machine.

    Without --remote nothing is asked of any network: it lists the models that are known by name.
    """
    if context.invoked_subcommand is not None:
        return 0
    from treadle.cli.model_list import list_models

    return list_models(everything=everything, remote=remote, as_json=as_json)


@command.command("fetch")
@click.argument("name")
def fetch(name: str) -> int:
    """Download a model to run it on this machine, without any key.

    NAME is smollm2 (0.1 GB) or qwen-coder (1.1 GB). What was downloaded before an interruption is kept.
    """
    from treadle.cli.models import fetch_model

    return fetch_model(name)
