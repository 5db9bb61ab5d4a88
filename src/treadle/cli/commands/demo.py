"""What can be typed after `treadle demo`."""

import click


@click.command("demo")
@click.option("--keep", is_flag=True, help="Keep the folder with the project and the log.")
def command(keep: bool) -> int:
    """See a run killed in the middle and resumed; needs no key.

    A real loop repairs a small project in a temporary folder. Only the model is a script.
    """
    from treadle.cli.demo import play

    return play(keep)
