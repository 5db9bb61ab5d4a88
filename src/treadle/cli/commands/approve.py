"""What can be typed after `treadle approve`."""

import click

SCOPES = ("chat", "project", "user")
"""The same as in `treadle.protocol.permissions`, which a test sees to; written out so that help costs no import."""


@click.command("approve")
@click.argument("asked", metavar="ID")
@click.option("--deny", is_flag=True, help="Refuse instead.")
@click.option("--feedback", default="", metavar="TEXT", help="Tell the model why, with --deny.")
@click.option("--edit", metavar="COMMAND", help="Run this command instead of the one that is asked for.")
@click.option("--remember", type=click.Choice(SCOPES), help="Answer its like in the same way from now on.")
@click.option("--rule", type=click.IntRange(min=1), default=1, metavar="N", help="Which of the offered rules.")
@click.option("--expires", metavar="SPAN", help="How long to remember it, such as 12h or 7d.")
@click.option("--leave", is_flag=True, help="Only write the answer down; someone else goes on with the chat.")
@click.option("--json", "as_json", is_flag=True, help="Print every event as one line of JSON.")
def command(
    asked: str,
    deny: bool,
    feedback: str,
    edit: str | None,
    remember: str | None,
    rule: int,
    expires: str | None,
    leave: bool,
    as_json: bool,
) -> int:
    """Allow or refuse what a chat asks for, and go on with it.

    ID is a chat (as for resume), chat:action as pending shows it, or the action alone if no other chat has it.
    """
    if feedback and not deny:
        raise click.UsageError("--feedback goes with --deny.")
    if edit is not None and deny:
        raise click.UsageError("--edit and --deny exclude each other.")
    if expires and not remember:
        raise click.UsageError("--expires goes with --remember.")
    if edit is not None and remember:
        raise click.UsageError("--edit and --remember exclude each other: a rule is for what was asked for.")
    from treadle.cli.approvals import Reply, approve

    return approve(asked, Reply(deny, feedback, edit, remember, rule, expires, leave), as_json)  # type: ignore[arg-type]
