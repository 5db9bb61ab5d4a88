"""`treadle mcp`: the MCP servers whose tools models may call, and Treadle as such a server (E-01)."""

from functools import wraps
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal

import click

from treadle.base.inert import make_inert_line
from treadle.errors import InvalidInput, NotFound, ToolError
from treadle.frontends.cli import options as o
from treadle.frontends.cli.group import pass_agent, run_in_loop
from treadle.frontends.cli.lazy import Agent, mcp_settings, msgspec, session, webbrowser
from treadle.frontends.cli.terminal import Terminal, write_json, write_list
from treadle.frontends.presentation.styled import Span, join_spans
from treadle.protocol.choices import MODES

if TYPE_CHECKING:
    from treadle.library.mcp_hub.hub import Link
    from treadle.library.mcp_hub.settings import Declared
    from treadle.library.mcp_hub.setup import McpServers


@click.group("mcp")
def mcp() -> None:
    """List, add and test MCP servers, whose tools models may call; or run as one.

    Servers of a project's .mcp.json count once that file is trusted, with treadle trust .mcp.json."""


@mcp.command("add", context_settings={"ignore_unknown_options": False})
@click.argument("name")
@click.argument("command", nargs=-1, metavar="[-- COMMAND [ARG]...]")
@click.option("--url", default="", help="The address of a server that is reached by HTTP.")
@click.option("--transport", type=click.Choice(["http", "sse"]), help="sse: the older transport HTTP+SSE of a --url.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Sent with each request.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Given to the program; ${NAME} is filled in.")
@click.option("--tool", "tools", multiple=True, metavar="PATTERN", help="Offer only these of its tools.")
@click.option("--accept-hints", is_flag=True, help="Trust its hints about which tools only read or can be repeated.")
@click.option(
    "--sandbox/--no-sandbox", default=None, help="Run it in the sandbox; by default only servers of projects are."
)
@click.option("--write", is_flag=True, help="Let a confined program write in the project.")
@click.option(
    "--timeout", "timeout_s", type=o.SECONDS, default=120.0, metavar="SECONDS", help="How long a call may take."
)
@click.option("--scope", default="", metavar="SCOPES", help="The scopes to request when signing in.")
@click.option("--client-id", default="", metavar="ID", help="The id of a client that you registered there.")
@click.option("--client-secret", default="", metavar="SECRET", help="Of the client; ${NAME} is filled in.")
@click.option(
    "--callback-port",
    type=o.PORT,
    default=0,
    metavar="PORT",
    help="Of the client's redirect, http://127.0.0.1:PORT/callback.",
)
@click.option(
    "--sampling",
    type=click.Choice(["refuse", "ask", "allow"]),
    default="refuse",
    show_default=True,
    help="Let it call the chat's model, at your cost.",
)
def add(
    name: str,
    command: tuple[str, ...],
    transport: Literal["http", "sse"] | None,
    env: tuple[str, ...],
    headers: tuple[str, ...],
    tools: tuple[str, ...],
    client_id: str,
    client_secret: str,
    callback_port: int,
    **fields: Any,
) -> None:
    """Add a server, or change one: a program, or an address with --url."""
    from treadle.library.mcp_hub.setup import Declarations

    if (client_secret or callback_port) and not client_id:
        raise click.UsageError("--client-secret and --callback-port belong to a --client-id.")
    program, *args = command or ("",)
    server = mcp_settings.Server(
        command=program,
        args=tuple(args),
        type=transport or "",
        env=_parse_pairs(env, "--env"),
        headers=_parse_pairs(headers, "--header"),
        tools=tools or None,
        oauth=mcp_settings.OAuthClient(client_id, client_secret, callback_port) if client_id else None,
        **fields,
    )
    Declarations(session.load_config().home).add(name, server)
    Terminal().write_line(f"added {make_inert_line(name)}: {make_inert_line(server.place)}")
    Terminal().write_note(f"see whether it works: treadle mcp test {make_inert_line(name)}", "dim")


def _parse_pairs(assignments: tuple[str, ...], option: str) -> dict[str, str]:
    pairs = [each.partition("=") for each in assignments]
    if any(not sign or not name for name, sign, _ in pairs):
        raise click.UsageError(f"{option} takes NAME=VALUE.")
    return {name: value for name, _, value in pairs}


def _pass_servers(body: o.Body) -> o.Body:
    """Make a coroutine function a command; its first arguments: the servers and the folder of this project, if any."""

    async def run_body(agent: "Agent", root: str | None, force_root: bool, **flags: Any) -> Any:
        return await body(agent.mcp, str(o.resolve_project_root(root, force=root is None or force_root)), **flags)

    return o.add_root_options(wraps(body)(pass_agent(works=True)(run_body)))


@mcp.command("list")
@_pass_servers
@o.add_json_option("Print one JSON object a line.")
async def list_servers(servers: "McpServers", place: str, as_json: bool) -> None:
    """List the servers that chats of this project have."""
    declarations, warnings = servers.list_declared(place)
    rows = []
    for each in declarations:
        state = "off" if each.server.disabled else "confined" if each.confined else "on"
        text = f" {make_inert_line(each.name):20} {make_inert_line(each.server.place, 80)}"
        value = {"name": each.name, "place": each.server.place, "source": each.source}
        rows.append((value, join_spans(Span(f"{state:9}", ("dim",)), text)))
    write_list(rows, "", as_json=as_json)
    for text in warnings:
        Terminal().write_note(make_inert_line(text), "yellow")
    if not declarations and not as_json:
        Terminal().write_note("no servers; add one with: treadle mcp add NAME -- COMMAND", "dim")


@mcp.command("show")
@click.argument("name")
@_pass_servers
@o.add_json_option("Print one JSON object.")
async def show(servers: "McpServers", place: str, name: str, as_json: bool) -> None:
    """Show how a server is declared, and the tools that it had when it last ran."""
    link = await _require_link(servers, name, place)
    fields = {"source": link.declared.source, **_redact_declaration(link.declared)}
    if as_json:
        return write_json({"name": name, **fields})
    terminal = Terminal()
    for key, value in fields.items():
        if isinstance(value, dict):
            value = ", ".join(f"{name}={each}" for name, each in value.items())
        elif isinstance(value, list | tuple):
            value = " ".join(map(str, value))
        terminal.write_line(f"{key:14} {make_inert_line(str(value))}")
    _tell_tools(terminal, link)


def _redact_declaration(declared: "Declared") -> dict[str, Any]:
    """Without the values of variables and headers: they may be secrets."""
    fields = msgspec.to_builtins(declared.server)
    for key in ("env", "headers"):
        if key in fields:
            fields[key] = {name: value if value.startswith("${") else "…" for name, value in fields[key].items()}
    client = fields.get("oauth", {})
    if not client.get("clientSecret", "${").startswith("${"):
        client["clientSecret"] = "…"
    return {**fields, "confined": declared.confined}


def _tell_tools(terminal: Terminal, link: "Link") -> None:
    from treadle.library.mcp_hub.search import make_tool_name

    for tool in link.known.tools if link.known is not None else ():
        trait = "only reads" if tool.read_only else "destructive" if tool.destructive else ""
        name = make_tool_name(link.declared.name, tool.name)
        marker = "" if link.declared.server.accepts_tool(tool.name) else "not offered; "
        about = make_inert_line(tool.description.strip().partition("\n")[0], 70)
        hint = Span(f"[{marker}says: {trait}] " if trait else "", ("dim",))
        terminal.write_line(join_spans(f"  {make_inert_line(name):40} ", hint, about))


@mcp.command("test")
@click.argument("name")
@_pass_servers
async def try_server(servers: "McpServers", place: str, name: str) -> int:
    """Start a server and list its tools, prompts and resources."""
    link = await _require_link(servers, name, place)
    terminal = Terminal()
    connection, _ = await servers.hub.connect_server(name, place)
    await connection.wait_until_started()
    if connection.state != "ready":
        terminal.write_note(f"{make_inert_line(name)} does not work: {make_inert_line(connection.why)}", "red")
        return o.EXIT_ERROR
    await connection.ensure_client()
    prompts, resources = await servers.prompts(place, server=name), await servers.resources(place, server=name)
    terminal.write_line(f"{make_inert_line(link.known.title if link.known else name)} works")
    _tell_tools(terminal, link)
    for prompt in prompts:
        terminal.write_line(f"  {make_inert_line(prompt.command):40} {make_inert_line(prompt.description, 70)}")
    for resource in resources:
        terminal.write_line(f"  {make_inert_line(resource.mention, 120)}")
    return o.EXIT_OK


@mcp.command("remove")
@click.argument("name")
def remove(name: str) -> None:
    """Remove a server from your own file."""
    from treadle.library.mcp_hub.setup import Declarations

    book = Declarations(session.load_config().home)
    if name not in book.read_servers():
        raise NotFound(f"there is no server {name!r} of yours; see them with: treadle mcp list")
    book.remove(name)
    Terminal().write_line(f"removed {make_inert_line(name)}")


@mcp.command("login")
@click.argument("name")
@_pass_servers
async def login(servers: "McpServers", place: str, name: str) -> None:
    """Sign in to a server in the browser (OAuth)."""

    async def show_address(address: str) -> None:
        Terminal().write_note(f"open this page to sign in:\n{make_inert_line(address)}")
        # Some browsers return only when they are closed, and the page comes back to this process before.
        Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    await _require_link(servers, name, place)
    has_signed_in = await servers.login(name, show_address, place)
    shown_name = make_inert_line(name)
    Terminal().write_line(f"signed in to {shown_name}" if has_signed_in else f"{shown_name} asks for no sign-in")


@mcp.command("serve")
@o.add_root_options
@click.option("--mode", default=None, metavar="MODE", help="The mode: what needs no approval.")
@click.option("--model", default="", metavar="MODEL", help="The model, as provider:name.")
@run_in_loop
async def serve(root: str | None, force_root: bool, mode: str | None, model: str) -> None:
    """Run as an MCP server on standard input and output, so that another agent can hand over work."""
    if mode is not None and mode not in MODES:
        raise InvalidInput(f"there is no mode {mode!r}; there is: {', '.join(MODES)}")
    place = str(o.resolve_project_root(root, force=force_root))
    config = session.load_config({"mode": mode, "model": model or None})
    async with session.open_agent(config, works=True) as agent:
        from treadle.frontends.mcp_server.server import TaskTools

        agent.options = config.settings.make_chat_options(place)
        await TaskTools(agent, [place]).make_server().run_stdio_async()


async def _require_link(servers: "McpServers", name: str, place: str) -> "Link":
    try:
        return await servers.hub.get_link(name, place)
    except ToolError:
        raise NotFound(f"there is no server {name!r} here; see them with: treadle mcp list") from None
