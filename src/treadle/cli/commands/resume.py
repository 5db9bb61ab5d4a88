"""What can be typed after `treadle resume`."""

import click


@click.command("resume")
@click.argument("chat", metavar="ID")
@click.option("--approve", is_flag=True, help="Allow what the chat asks for.")
@click.option("--deny", is_flag=True, help="Refuse what the chat asks for.")
@click.option("--feedback", default="", metavar="TEXT", help="Tell the model why, with --deny.")
@click.option("--answer", metavar="TEXT", help="Answer the chat's question.")
@click.option("--results", metavar="FILE", help="Hand in the results of client tools, as JSON; - reads standard input.")
@click.option("--json", "as_json", is_flag=True, help="Print every event as one line of JSON.")
def command(
    chat: str, as_json: bool, approve: bool, deny: bool, feedback: str, answer: str | None, results: str | None
) -> int:
    """Go on with a chat that was cut off or waits for someone.

    ID is a chat's id, the beginning of it, or last.
    """
    if sum([approve, deny, answer is not None, results is not None]) > 1:
        raise click.UsageError("--approve, --deny, --answer and --results exclude each other.")
    if feedback and not deny:
        raise click.UsageError("--feedback goes with --deny.")
    from treadle.cli.resume import Reply, resume

    return resume(chat, Reply(approve, deny, feedback, answer, results), as_json)
