"""What can be typed after `treadle doctor`."""

import click


@click.group("doctor", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> int:
    """See whether all is well here, and try to get out of the sandbox.

    The exit code is 1 when something that Treadle needs is missing or does not work.
    """
    if context.invoked_subcommand is not None:
        return 0
    from treadle.cli.doctor import overview

    return overview()


@command.command("sandbox")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def sandbox(as_json: bool) -> int:
    """Try every way out of every sandbox, and show which ones are closed.

    All attempts are made for real, against files, listeners and a process that are set up for them. The exit code is 1
    when commands run without a sandbox, or cannot run because the one that is set does not hold here.
    """
    from treadle.cli.doctor import try_sandbox

    return try_sandbox(as_json)
