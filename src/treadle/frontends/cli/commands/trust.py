"""`treadle trust` and `treadle untrust`: files of a repository that Treadle may honour, by their content (S-09).
`treadle skills`: the skills, own commands and custom agents of the user and of the project (E-03)."""

import hashlib
import os
from typing import TYPE_CHECKING

import click

from treadle.base.inert import make_inert, make_inert_line
from treadle.errors import ConfigError, InvalidInput
from treadle.frontends.cli.group import pass_agent
from treadle.frontends.cli.lazy import Agent, chat_options, mcp_settings, session, trust_book
from treadle.frontends.cli.options import FILE, add_json_option, find_present_root, resolve_project_root
from treadle.frontends.cli.terminal import Terminal, write_list
from treadle.frontends.presentation.styled import Span, join_spans

if TYPE_CHECKING:
    from treadle.library.skills.places import Kind

_SHOWN_LINES = 40


@click.command("trust")
@click.argument("paths", nargs=-1, metavar="[FILE]...", type=FILE)
@add_json_option("Print the list as one JSON object a line.")
def trust(paths: tuple[str, ...], as_json: bool) -> None:
    """Trust a file of a repository, such as its hooks, skills and agents.

    It is trusted as long as its content stays the same. Without FILE it lists what is trusted, and what this project
    has that is not."""
    for path in paths:
        _trust(_open_book(), path)
    if paths:
        return
    states = {file.path: _compute_state(file) for file in _open_book().list_trusted()}
    states |= {path: "not trusted" for path in _find_candidates() if path not in states}
    rows = []
    for path, state in states.items():
        mark = Span(f"{state:12}", ("green" if state == "trusted" else "yellow",))
        rows.append(({"path": path, "state": state}, join_spans(mark, f" {make_inert_line(path)}")))
    write_list(rows, "nothing is trusted, and this project has nothing to trust", as_json=as_json)


@click.command("untrust")
@click.argument("paths", nargs=-1, required=True, metavar="FILE...", type=FILE)
def untrust(paths: tuple[str, ...]) -> None:
    """Withdraw the trust in a file of a repository."""
    book = _open_book()
    for path in paths:
        Terminal().write_line(f"no longer trusted: {make_inert_line(book.remove(path).path)}")


def _open_book() -> "trust_book.Trust":
    return trust_book.Trust(session.load_config().home)


def _trust(book: "trust_book.Trust", path: str) -> None:
    """Shows what it trusts, before it does."""
    terminal = Terminal()
    content = trust_book.read(path, mcp_settings.MOST_BYTES)
    lines = make_inert(content.decode("utf-8", "backslashreplace")).split("\n")
    terminal.write_note(f"{make_inert_line(path)}:", "bold")
    for line in lines[:_SHOWN_LINES]:
        terminal.write_note(f"  │ {make_inert_line(line, 200)}")
    if len(lines) > _SHOWN_LINES:
        terminal.write_note(f"  │ … {len(lines) - _SHOWN_LINES} more lines")
    trusted_file = book.add(path, content)
    place = make_inert_line(trusted_file.path)
    terminal.write_line(f"trusted {place} {trusted_file.sha256[:16]} until its content changes")
    for executed in _find_executed_files(trusted_file.path, content):
        _trust(book, executed)


def _find_executed_files(path: str, content: bytes) -> list[str]:
    """The files of the project that the MCP servers of a declaration run: to trust one is to trust them."""
    root = next((path.removesuffix(f"/{name}") for name in mcp_settings.PROJECT_FILES if path.endswith(f"/{name}")), "")
    try:
        servers = mcp_settings.read_project(content, path, root) if root else ()
    except ConfigError:
        return []
    files = (file for each in servers for file in mcp_settings.find_executed_files(each.server, root, os.environ))
    return [file for file in dict.fromkeys(files) if file != path]


def _compute_state(file: "trust_book.Trusted") -> str:
    try:
        content = trust_book.read(file.path, mcp_settings.MOST_BYTES)
    except InvalidInput:
        return "gone"
    return "trusted" if hashlib.sha256(content).hexdigest() == file.sha256 else "changed"


def _find_candidates() -> list[str]:
    try:
        root = resolve_project_root(None, force=True)
    except InvalidInput:
        return []
    candidates = [root / name for name in trust_book.CANDIDATES]
    for folder in trust_book.FOLDERS:
        candidates += sorted((root / folder / "skills").rglob("SKILL.md"))
        candidates += sorted(path for kind in ("commands", "agents") for path in (root / folder / kind).rglob("*.md"))
    return [str(path) for path in candidates if path.is_file()]


@click.command("skills")
@add_json_option("Print one JSON object a line.")
@pass_agent()
async def skills(agent: "Agent", as_json: bool) -> None:
    """List the skills, commands and custom agents of this project and yours.

    Those of a project count only once you have trusted their content, with treadle trust."""
    from treadle.library.skills.reading import format_line, split_front_matter

    project = chat_options.Project(find_present_root())
    kinds: tuple[Kind, ...] = ("skills", "commands", "agents")
    rows = []
    documents = [(kind, each) for kind in kinds for each in agent.documents.read_all(kind, project)]
    for kind, each in documents:
        about = make_inert_line(format_line(split_front_matter(each.text)[0].get("description")), 300)
        state = "" if each.trusted else f" (not trusted: treadle trust {make_inert_line(each.path)})"
        name = Span(make_inert_line(each.name, 64), ("bold",))
        value = {"kind": kind, "name": each.name, "description": about, "path": each.path, "trusted": each.trusted}
        shown_kind = f"{kind.removesuffix('s'):8} "
        row_text = join_spans(shown_kind, name, f" {make_inert_line(about, 100)}", Span(state, ("yellow",)))
        rows.append((value, row_text))
    none = "there are no skills, commands or custom agents, neither yours nor of this project"
    write_list(rows, none, as_json=as_json)
