"""`treadle skills`: the skills, own commands and custom agents of the user and of the project (E-03)."""

from typing import TYPE_CHECKING

import click

from treadle.base.inert import inert_line
from treadle.frontends.cli.group import in_agent
from treadle.frontends.cli.options import json_option
from treadle.frontends.cli.terminal import Terminal, write_list
from treadle.frontends.presentation.styled import Span, spans

if TYPE_CHECKING:
    from treadle.library.agent import Agent
    from treadle.library.skills.places import Document, Kind


@click.command("skills")
@json_option("Print one JSON object a line.")
@in_agent()
async def skills(agent: "Agent", as_json: bool) -> None:
    """List the skills, commands and custom agents of this project and yours.

    Those of a project count only once you have trusted their content, with treadle trust.
    """
    from treadle.frontends.cli.session import present_root
    from treadle.library.skills.front_matter import line, split
    from treadle.protocol.options import Project

    terminal, project = Terminal(), Project(present_root())
    kinds: tuple[Kind, ...] = ("skills", "commands", "agents")
    documents: list[tuple[Kind, Document]] = [
        (kind, each) for kind in kinds for each in agent.documents.all(kind, project)
    ]
    rows = []
    for kind, each in documents:
        about = inert_line(line(split(each.text)[0].get("description")), 300)
        state = "" if each.trusted else f" (not trusted: treadle trust {inert_line(each.path)})"
        name = Span(inert_line(each.name, 64), ("bold",))
        value = {"kind": kind, "name": each.name, "description": about, "path": each.path, "trusted": each.trusted}
        row_text = spans(f"{kind.removesuffix('s'):8} ", name, f" {inert_line(about, 100)}", Span(state, ("yellow",)))
        rows.append((value, row_text))
    write_list(
        terminal,
        rows,
        "there are no skills, commands or custom agents, neither yours nor of this project",
        as_json=as_json,
    )
