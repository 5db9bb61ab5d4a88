"""What can be typed after `treadle run`."""

import os
from typing import Any

import click

MODES = ("read-only", "ask", "review", "auto-edit", "autopilot")
ON_LIMIT = ("ask", "answer", "error")
COMPLETION = ("tool", "marker")
PRESETS = ("strict",)
RUNGS = ("native", "text", "plain")
"""The same as in `treadle.protocol.options`, which a test sees to; written out so that help costs no import."""


@click.command("run")
@click.argument("prompt")
@click.option("--model", metavar="PROVIDER:NAME", help="The model to work with.")
@click.option("--root", metavar="DIR", help="The project; without it the git root, else the working directory.")
@click.option("--force-root", is_flag=True, help="Allow the whole disk or the home folder as the project.")
@click.option("--preset", type=click.Choice(PRESETS), help="Options under one name; other flags win over it.")
@click.option("--mode", type=click.Choice(MODES), help="What the model may do without asking.")
@click.option("--max-turns", type=click.IntRange(min=1), metavar="N", help="How many model calls the run may make.")
@click.option("--on-limit", type=click.Choice(ON_LIMIT), help="What happens when they are used up.")
@click.option("--budget-usd", type=click.FloatRange(min=0), metavar="X", help="What the run may cost; 0 is no limit.")
@click.option("--budget-tokens", type=click.IntRange(min=0), metavar="N", help="How many tokens it may use.")
@click.option("--budget-wall-s", type=click.FloatRange(min=0), metavar="S", help="How many seconds it may work.")
@click.option("--budget-turns", type=click.IntRange(min=0), metavar="N", help="How many turns; no last answer follows.")
@click.option("--budget-tool-calls", type=click.IntRange(min=0), metavar="N", help="How many calls of tools.")
@click.option("--check", "checks", multiple=True, metavar="CMD", help="A command that must succeed at the end.")
@click.option("--tools", metavar="A,B", help="The only tools that the model may use.")
@click.option("--system", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="The system prompt.")
@click.option("--completion", type=click.Choice(COMPLETION), help="How the model says that it is done.")
@click.option("--tool-calls", "rung", type=click.Choice(RUNGS), help="How the model calls tools; else found out.")
@click.option("--git-branch", is_flag=True, default=None, help="Work on a git branch of its own.")
@click.option("--auto-approve-commands", is_flag=True, default=None, help="Let commands pass, except critical ones.")
@click.option(
    "--interactive/--headless",
    default=None,
    help="Let approvals and questions wait for an answer, or refuse them; on a terminal they are asked there.",
)
@click.option("--chat", metavar="ID", help="Go on with this chat instead of beginning one.")
@click.option("--json", "as_json", is_flag=True, help="Print every event as one line of JSON.")
def command(
    prompt: str,
    root: str | None,
    force_root: bool,
    tools: str | None,
    system: str | None,
    interactive: bool | None,
    chat: str | None,
    as_json: bool,
    checks: tuple[str, ...],
    **flags: Any,
) -> int:
    """Give a model a task in a project and watch it work.

    PROMPT is the task; with - it is read from standard input. ID is a chat's id, the beginning of it, or last.
    """
    from treadle.models.providers import preload_http

    preload_http(flags["model"] or os.environ.get("TREADLE_MODEL", ""))  # before the next line, which takes long, too
    from treadle.cli.run import Wanted, run

    wanted = Wanted(prompt, chat, root, force_root, system, tools, interactive)
    return run(wanted, {**flags, "checks": checks or None}, as_json)
