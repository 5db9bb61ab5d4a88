"""`treadle trust` and `treadle untrust`: files of a repository that Treadle may honour, by their content (S-09).
`treadle skills`: the skills, own commands and custom agents of the user and of the project (E-03)."""

import hashlib
import os
from typing import TYPE_CHECKING

import click

from treadle.base.inert import inert, inert_line
from treadle.errors import ConfigError, InvalidInput
from treadle.frontends.cli.group import in_agent
from treadle.frontends.cli.lazy import Agent, chat_options, mcp_settings, session, trust_book
from treadle.frontends.cli.options import FILE, json_option, present_root, project_root
from treadle.frontends.cli.terminal import Terminal, write_list
from treadle.frontends.presentation.styled import Span, spans

if TYPE_CHECKING:
    from treadle.library.skills.places import Kind

_SHOWN_LINES = 40


@click.command("trust")
@click.argument("paths", nargs=-1, metavar="[FILE]...", type=FILE)
@json_option("Print the list as one JSON object a line.")
def trust(paths: tuple[str, ...], as_json: bool) -> None:
    """Trust a file of a repository, such as its hooks, skills and agents.

    It is trusted as long as its content stays the same. Without FILE it lists what is trusted, and what this project
    has that is not."""
    for path in paths:
        _trust(_book(), path)
    if paths:
        return
    states = {file.path: _state(file) for file in _book().all()}
    states |= {path: "not trusted" for path in _find_candidates() if path not in states}
    rows = []
    for path, state in states.items():
        mark = Span(f"{state:12}", ("green" if state == "trusted" else "yellow",))
        rows.append(({"path": path, "state": state}, spans(mark, f" {inert_line(path)}")))
    write_list(rows, "nothing is trusted, and this project has nothing to trust", as_json=as_json)


@click.command("untrust")
@click.argument("paths", nargs=-1, required=True, metavar="FILE...", type=FILE)
def untrust(paths: tuple[str, ...]) -> None:
    """Withdraw the trust in a file of a repository."""
    book = _book()
    for path in paths:
        Terminal().line(f"no longer trusted: {inert_line(book.remove(path).path)}")


def _book() -> "trust_book.Trust":
    return trust_book.Trust(session.load_config().home)


def _trust(book: "trust_book.Trust", path: str) -> None:
    """Shows what it trusts, before it does."""
    terminal = Terminal()
    content = trust_book.read(path, mcp_settings.MOST_BYTES)
    lines = inert(content.decode("utf-8", "backslashreplace")).split("\n")
    terminal.note(f"{inert_line(path)}:", "bold")
    for line in lines[:_SHOWN_LINES]:
        terminal.note(f"  │ {inert_line(line, 200)}")
    if len(lines) > _SHOWN_LINES:
        terminal.note(f"  │ … {len(lines) - _SHOWN_LINES} more lines")
    trusted_file = book.add(path, content)
    terminal.line(f"trusted {inert_line(trusted_file.path)} {trusted_file.sha256[:16]} until its content changes")
    for executed in _find_executed_files(trusted_file.path, content):
        _trust(book, executed)


def _find_executed_files(path: str, content: bytes) -> list[str]:
    """The files of the project that the MCP servers of a declaration run: to trust one is to trust them."""
    root = next((path.removesuffix(f"/{name}") for name in mcp_settings.PROJECT_FILES if path.endswith(f"/{name}")), "")
    try:
        servers = mcp_settings.read_project(content, path, root) if root else ()
    except ConfigError:
        return []
    files = (file for each in servers for file in mcp_settings.executed_files(each.server, root, os.environ))
    return [file for file in dict.fromkeys(files) if file != path]


def _state(file: "trust_book.Trusted") -> str:
    try:
        content = trust_book.read(file.path, mcp_settings.MOST_BYTES)
    except InvalidInput:
        return "gone"
    return "trusted" if hashlib.sha256(content).hexdigest() == file.sha256 else "changed"


def _find_candidates() -> list[str]:
    try:
        root = project_root(None, force=True)
    except InvalidInput:
        return []
    candidates = [root / name for name in trust_book.CANDIDATES]
    for folder in trust_book.FOLDERS:
        candidates += sorted((root / folder / "skills").rglob("SKILL.md"))
        candidates += sorted(path for kind in ("commands", "agents") for path in (root / folder / kind).rglob("*.md"))
    return [str(path) for path in candidates if path.is_file()]


@click.command("skills")
@json_option("Print one JSON object a line.")
@in_agent()
async def skills(agent: "Agent", as_json: bool) -> None:
    """List the skills, commands and custom agents of this project and yours.

    Those of a project count only once you have trusted their content, with treadle trust."""
    from treadle.library.skills.reading import line, split

    project = chat_options.Project(present_root())
    kinds: tuple[Kind, ...] = ("skills", "commands", "agents")
    rows = []
    documents = [(kind, each) for kind in kinds for each in agent.documents.all(kind, project)]
    for kind, each in documents:
        about = inert_line(line(split(each.text)[0].get("description")), 300)
        state = "" if each.trusted else f" (not trusted: treadle trust {inert_line(each.path)})"
        name = Span(inert_line(each.name, 64), ("bold",))
        value = {"kind": kind, "name": each.name, "description": about, "path": each.path, "trusted": each.trusted}
        row_text = spans(f"{kind.removesuffix('s'):8} ", name, f" {inert_line(about, 100)}", Span(state, ("yellow",)))
        rows.append((value, row_text))
    none = "there are no skills, commands or custom agents, neither yours nor of this project"
    write_list(rows, none, as_json=as_json)
