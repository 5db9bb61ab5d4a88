"""The proof that output is safe by type (S-22), which `mypy` makes and nothing runs: every line that is marked gives a
sink text that was not made inert. If a sink took it, `mypy` would call the mark superfluous and fail."""

import sys

from treadle.base.inert import make_inert, write_inert
from treadle.base.logs import _log
from treadle.frontends.cli.terminal import Terminal
from treadle.frontends.presentation.rich_text import Group, Text
from treadle.frontends.tui import code
from treadle.frontends.tui.app import TreadleApp
from treadle.frontends.tui.marks import Static
from treadle.frontends.tui.screens import Reading


def show_foreign(app: TreadleApp, name: str) -> None:
    Terminal()._write(name)  # type: ignore[arg-type]
    write_inert(sys.stdout, name)  # type: ignore[arg-type]
    _log(0, "%s", name)  # type: ignore[arg-type]
    code.render_markdown(name, "")  # type: ignore[arg-type]
    code.render_code(name, "", "")  # type: ignore[arg-type]
    Group(name)  # type: ignore[arg-type]
    Static(name)  # type: ignore[arg-type]
    Static().update(name)  # type: ignore[arg-type]
    Reading("", name)  # type: ignore[arg-type]
    app.write("#status", name)  # type: ignore[arg-type]


def show_inert(app: TreadleApp, name: str) -> None:
    Terminal()._write(make_inert(name))
    Terminal().write_line(name)  # makes it inert
    write_inert(sys.stdout, make_inert(name))
    _log(0, "%s", make_inert(name))
    code.render_markdown(make_inert(name), "")
    code.render_code(make_inert(name), "", "")
    Group(Text(name))
    Static(Text(name))
    Static().update(Text(name))
    Reading("", Text(name))
    app.write("#status", Text(name))
