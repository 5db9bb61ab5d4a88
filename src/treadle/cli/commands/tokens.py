"""What can be typed after `treadle tokens`."""

import click


@click.group("tokens", invoke_without_command=True)
@click.option("--file", metavar="FILE", help="The file of tokens, if it is not the usual one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@click.pass_context
def command(context: click.Context, file: str | None, as_json: bool) -> int:
    """List, make and take back tokens of the server.

    With add and revoke; alone it lists them. A token itself is shown once, when it is made.
    """
    context.obj = file
    if context.invoked_subcommand is not None:
        return 0
    from treadle.cli.tokens import list_tokens

    return list_tokens(file, as_json)


@command.command("add")
@click.argument("user")
@click.option("--label", default="", help="What it is for.")
@click.pass_obj
def add(file: str | None, user: str, label: str) -> int:
    """Make a token for a user and print it.

    USER is a name of your choice; local is the user of this machine, whose chats are those of the command line.
    """
    from treadle.cli.tokens import add_token

    return add_token(file, user, label)


@command.command("revoke")
@click.argument("id")
@click.pass_obj
def revoke(file: str | None, id: str) -> int:
    """Take a token back."""
    from treadle.cli.tokens import revoke_token

    return revoke_token(file, id)
