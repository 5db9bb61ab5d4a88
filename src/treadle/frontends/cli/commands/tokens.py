"""`treadle tokens`: the access tokens of the users of the server."""

from typing import TYPE_CHECKING

import click

from treadle.base.inert import inert_line, print_line
from treadle.frontends.cli.options import json_option
from treadle.frontends.cli.terminal import Terminal, write_json

if TYPE_CHECKING:
    from treadle.frontends.server.tokens import Tokens


@click.group("tokens", invoke_without_command=True)
@click.option("--file", metavar="FILE", help="The file of tokens, if it is not the usual one.")
@json_option("Print one JSON object a line.")
@click.pass_context
def tokens(context: click.Context, file: str | None, as_json: bool) -> None:
    """List, create and revoke tokens of the server.

    With add and revoke; alone it lists them. A token itself is shown once, when it is made.
    """
    context.obj = file
    if context.invoked_subcommand is not None:
        return
    from treadle.protocol.wire import iso_time

    terminal = Terminal()
    for token in _tokens(file).all():
        created = iso_time(token.created_ms) if token.created_ms else ""
        if as_json:
            write_json({"id": token.id, "user": token.user, "label": token.label, "created": created})
        else:
            cells = (token.id, inert_line(token.user), created, inert_line(token.label))
            terminal.line("  ".join(part for part in cells if part))


@tokens.command("add")
@click.argument("user")
@click.option("--label", default="", help="A note on its purpose.")
@click.pass_obj
def add(file: str | None, user: str, label: str) -> None:
    """Make a token for a user and print it.

    USER is a name of your choice; local is the user of this machine, whose chats are those of the command line.
    """
    token, secret = _tokens(file).add(user, label)
    Terminal().note(f"token {token.id} of {user}; it is shown only now")
    print_line(secret)


@tokens.command("revoke")
@click.argument("id")
@click.pass_obj
def revoke(file: str | None, id: str) -> None:
    """Take a token back."""
    revoked = _tokens(file).revoke(id)
    Terminal().line(f"revoked: {revoked.id} of {inert_line(revoked.user)}")


def _tokens(file: str | None) -> "Tokens":
    from treadle.frontends.cli.session import configured
    from treadle.frontends.server.tokens import Tokens, tokens_file

    config = configured({"serve_tokens": file})
    return Tokens(tokens_file(config.home, config.settings.serve_tokens), config.home)
