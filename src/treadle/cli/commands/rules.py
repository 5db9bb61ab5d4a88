"""What can be typed after `treadle rules`."""

import click

from treadle.cli.commands.approve import SCOPES


@click.group("rules", invoke_without_command=True)
@click.option("--chat", metavar="ID", help="List the rules of this chat, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@click.pass_context
def command(context: click.Context, chat: str | None, as_json: bool) -> int:
    """List, make and take back standing answers.

    With add and revoke; alone, or with list, it lists them.
    """
    if context.invoked_subcommand is not None:
        return 0
    from treadle.cli.rules import list_rules

    return list_rules(chat, as_json)


@command.command("list")
@click.option("--chat", metavar="ID", help="List the rules of this chat, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def list_command(chat: str | None, as_json: bool) -> int:
    """List the rules."""
    from treadle.cli.rules import list_rules

    return list_rules(chat, as_json)


@command.command("add")
@click.option("--allow", is_flag=True, help="Let it pass without asking.")
@click.option("--ask", is_flag=True, help="Ask for it, whatever else allows it.")
@click.option("--deny", is_flag=True, help="Refuse it, whatever else allows it.")
@click.argument("pattern", default="")
@click.option("--tool", default="run_command", help="The tool; the pattern of a file tool is a glob.")
@click.option("--scope", type=click.Choice(SCOPES), default="project", help="How far it reaches.")
@click.option("--root", metavar="DIR", help="The project, if it is not the present one.")
@click.option("--chat", metavar="ID", help="The chat, for that scope.")
@click.option("--expires", metavar="SPAN", help="How long it holds, such as 12h or 7d.")
def add(
    allow: bool,
    ask: bool,
    deny: bool,
    pattern: str,
    tool: str,
    scope: str,
    root: str | None,
    chat: str | None,
    expires: str | None,
) -> int:
    """Make a rule.

    PATTERN is the words of one command; a * as the last word stands for any further ones.
    """
    if allow + ask + deny != 1:
        raise click.UsageError("Choose one of --allow, --ask and --deny.")
    if (scope == "chat") != (chat is not None):
        raise click.UsageError("--chat goes with --scope chat.")
    from treadle.cli.rules import Wish, add_rule

    effect = "allow" if allow else "ask" if ask else "deny"
    return add_rule(Wish(effect, pattern, tool, scope, root, chat, expires))  # type: ignore[arg-type]


@command.command("revoke")
@click.argument("id")
@click.option("--chat", metavar="ID", help="The chat, for a rule of a chat.")
def revoke(id: str, chat: str | None) -> int:
    """Take a rule back."""
    from treadle.cli.rules import revoke_rule

    return revoke_rule(id, chat)
