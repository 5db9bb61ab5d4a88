"""What can be typed after `treadle try`."""

import click


@click.command("try")
@click.argument("line", metavar="CMD")
@click.option("--root", metavar="DIR", help="The project; without it the git root, else the working directory.")
@click.option("--force-root", is_flag=True, help="Allow the whole disk or the home folder as the project.")
@click.option("--network", is_flag=True, help="Let the command use the network, where it may really do things.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0, min_open=True, max=600), default=120, metavar="S")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(line: str, root: str | None, force_root: bool, network: bool, timeout_s: float, as_json: bool) -> int:
    """See what a command would do to the project, and change nothing.

    CMD runs for real, in the sandbox, on a copy-on-write view of the project: it sees what it writes, and the project
    stays as it is. Its output comes first, then what it created, changed and deleted. It is stopped after S seconds
    (120). The exit code is 0 when it could be tried, whatever its own was, and 1 when it could not.
    """
    from treadle.cli.try_ import Wanted, try_

    return try_(Wanted(line, root, force_root, network, timeout_s), as_json)
