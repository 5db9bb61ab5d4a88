"""Programs that serve: `treadle serve` (the web app and the HTTP API), `web` (the same with a browser opened on it),
`worker`, `copilot` and `acp`; and `tokens`, the access tokens of the server's users."""

import os
import signal
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from treadle.base.inert import make_inert_line, print_line, print_note
from treadle.errors import ConfigError, TreadleError
from treadle.frontends.cli.group import run_in_loop

from treadle.frontends.cli.lazy import (  # isort: skip
    asyncio, collecting, demo_project, drive, model_registry, msgspec, retention, session, webbrowser, wire,
)  # fmt: skip
from treadle.frontends.cli import options as o
from treadle.frontends.cli.terminal import Terminal, write_list
from treadle.protocol.choices import MODES

if TYPE_CHECKING:
    from treadle.frontends.server.tokens import Tokens

UNENCRYPTED = (
    "other machines can reach the server, and connections are not encrypted; put a proxy with TLS in front of it"
)


@click.command("serve")
@click.option("--host", "serve_host", metavar="ADDRESS", help="The address to listen on; by default only this machine.")
@click.option("--port", "serve_port", type=o.PORT, metavar="N", help="The port; 0 takes a free one.")
@o.store_option
@click.option("--model", metavar="PROVIDER:NAME", help="The model of chats that name none; by default one is found.")
@click.option("--workers", "concurrency", type=o.POSITIVE, metavar="N", help="Chats driven at once.")
@click.option("--no-worker", is_flag=True, help="Drive no chats here; others do it with treadle worker.")
@click.option("--token-file", "serve_tokens", type=o.FILE, help="The file of tokens, as treadle tokens writes it.")
@click.option("--allow-host", "serve_hosts", multiple=True, metavar="NAME", help="A name that the server answers to.")
@click.option("--allow-root", "serve_roots", multiple=True, type=o.FOLDER, help="A folder where projects may lie.")
@run_in_loop
async def serve(no_worker: bool, serve_hosts: tuple[str, ...], serve_roots: tuple[str, ...], **flags: Any) -> None:
    """Serve the web app and the HTTP API, and drive chats.

    Without any tokens it makes one and prints it with the address: opened in a browser, that address is the web app,
    signed in. SIGTERM ends it in good order; a second one at once."""
    many = {"serve_hosts": serve_hosts or None, "serve_roots": serve_roots or None}
    await _serve({**flags, **many}, works=not no_worker)


async def _serve(flags: dict[str, Any], *, works: bool = True, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve until a signal comes; `on_ready` is told the address as soon as requests are taken."""
    from treadle.frontends.server.admission import Admission
    from treadle.frontends.server.running import bind, find_outside_address, format_address, is_loopback, run
    from treadle.frontends.server.service import Service, SignIn
    from treadle.frontends.server.tokens import LOCAL, Tokens, ensure_own_token, get_tokens_file, read_own_token

    config = session.load_config(flags)
    settings = config.settings
    if not is_loopback(settings.serve_host):
        session.warn([UNENCRYPTED])
    mcp = is_loopback(settings.serve_host)  # the operator's own servers are not for others
    async with session.open_agent(config, works=works, mcp=mcp, concurrency=settings.concurrency, stays=True) as agent:
        tokens = Tokens(get_tokens_file(config.home, settings.serve_tokens), config.home)
        local_token = read_own_token(config.home) if tokens.list_tokens() else ensure_own_token(config.home)
        # The default options of a chat, and those that users may choose. The project is the present one, for the user
        # of this machine.
        options = msgspec.structs.replace(settings.make_chat_options(o.find_present_root()), interactive=True)
        permissions = settings.serve_roots, settings.serve_models, agent.deps.shared, settings.serve_operators
        admission = Admission(options, *permissions, settings.serve_network)
        codes = SignIn(tokens, renewed=_print_code)
        service = Service(agent, tokens, admission, works=works, hosts=settings.serve_hosts, sign_in=codes)
        listening = bind(settings.serve_host, settings.serve_port)
        address = format_address(listening)

        def announce_address() -> None:
            link = f"{address}/" + (f"#token={local_token}" if local_token else "")
            print_line(f"serving {link}")
            if local_token:
                print_note(f"open that address in a browser; its token is kept in {config.home}")
            elif all(token.user != LOCAL for token in tokens.list_tokens()):
                print_note(f"none of the tokens is yours; make one with: treadle tokens add {LOCAL}")
            if outside := find_outside_address(settings.serve_host):
                print_note(f"from another device: {address.replace(f'//{settings.serve_host}:', f'//{outside}:')}/")
            print_note(f"the HTTP API: {address}/api/docs")
            _print_code(codes.code)
            if on_ready is not None:
                on_ready(link)

        keeping = retention.make_retention(settings)
        async with collecting.run_housekeeping(agent.deps.store, config.home, keeping, agent.job_registry):
            await run(service, listening, announce_address, settings.drain_s)


def _print_code(code: str) -> None:
    print_note(f"a code to sign in with, good once: {code}")


@click.command("web")
@click.option("--host", "serve_host", metavar="ADDRESS", help="The address to listen on; by default only this machine.")
@click.option("--port", "serve_port", type=o.PORT, metavar="N", help="The port; 0 takes a free one.")
@o.store_option
@click.option("--model", metavar="PROVIDER:NAME", help="The model of chats that name none; by default one is found.")
@click.option("--no-open", is_flag=True, help="Only print the address.")
@click.option("--demo", is_flag=True, help="A small project in a temporary folder; without a key, a scripted model.")
def web(no_open: bool, demo: bool, **flags: Any) -> None:
    """Open the web app in a browser: the same chats, live.

    Serves as treadle serve does, for the project of this folder, until Ctrl-C; chats go on where they were next time.
    """
    on_ready = None if no_open else _open_browser
    if not demo:
        asyncio.run(_serve(flags, on_ready=on_ready))
        return
    with demo_project.open_demo_folder("web") as folder:
        asyncio.run(_serve(_make_demo_flags(folder, flags), on_ready=on_ready))


def _open_browser(link: str) -> None:
    """A browser with a window; one that would take over the terminal is none."""
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform in ("darwin", "win32"):
        webbrowser.open(link)


def _make_demo_flags(folder: Path, flags: dict[str, Any]) -> dict[str, Any]:
    """A project with a home of its own. The model is the one that is set up here, if it can be used, else a script."""
    from treadle.library.model_choice import ModelChoice, choose_model

    config = session.load_config({"model": flags.get("model")})
    registry = model_registry.ModelRegistry(os.environ, home=config.home)

    async def choose() -> ModelChoice | None:
        try:
            return await choose_model(registry, os.environ, config.home)
        finally:
            await registry.close()

    model = config.settings.model
    try:
        if model:
            registry.get(model)
        else:
            choice = asyncio.run(choose())
            model = "" if choice is None else choice.model
    except TreadleError:
        model = ""
    project, script = demo_project.make_demo(folder)
    os.environ["TREADLE_HOME"] = str(folder / "home")
    os.chdir(project)
    if not model:
        print_note("there is no key for a model, so a script plays one; say anything to it")
    store = flags.get("store") or str(folder / "home" / "treadle.db")
    return {**flags, "store": store, "model": model or script, "mode": "ask"}


@click.group("tokens", invoke_without_command=True)
@click.option("--file", type=o.FILE, help="The file of tokens, if it is not the usual one.")
@o.add_json_option("Print one JSON object a line.")
@click.pass_context
def tokens(context: click.Context, file: str | None, as_json: bool) -> None:
    """List, create and revoke tokens of the server.

    With add and revoke; alone it lists them. A token itself is shown once, when it is made."""
    context.obj = file
    if context.invoked_subcommand is not None:
        return
    rows = []
    for token in _open_tokens(file).list_tokens():
        created = wire.format_time(token.created_ms) if token.created_ms else ""
        cells = (token.id, make_inert_line(token.user), created, make_inert_line(token.label))
        value = {"id": token.id, "user": token.user, "label": token.label, "created": created}
        rows.append((value, "  ".join(part for part in cells if part)))
    write_list(rows, "", as_json=as_json)


@tokens.command("add")
@click.argument("user")
@click.option("--label", default="", help="A note on its purpose.")
@click.pass_obj
def add(file: str | None, user: str, label: str) -> None:
    """Make a token for a user and print it.

    USER is a name of your choice; local is the user of this machine, whose chats are those of the command line."""
    token, secret = _open_tokens(file).add(user, label)
    Terminal().write_note(f"token {token.id} of {user}; it is shown only now")
    print_line(secret)


@tokens.command("revoke")
@click.argument("id")
@click.pass_obj
def revoke(file: str | None, id: str) -> None:
    """Take a token back."""
    revoked = _open_tokens(file).revoke(id)
    Terminal().write_line(f"revoked: {revoked.id} of {make_inert_line(revoked.user)}")


def _open_tokens(file: str | None) -> "Tokens":
    from treadle.frontends.server.tokens import Tokens, get_tokens_file

    config = session.load_config({"serve_tokens": file})
    return Tokens(get_tokens_file(config.home, config.settings.serve_tokens), config.home)


@click.command("worker")
@o.store_option
@click.option("--concurrency", type=o.POSITIVE, metavar="N", help="How many chats to drive at once.")
@click.option("--drain-s", type=o.AMOUNT, metavar="S", help="How long to let steps end on SIGTERM.")
@run_in_loop
async def worker(**flags: Any) -> None:
    """Drive the chats that need a worker, until stopped.

    SIGTERM or Ctrl-C drains: nothing more is taken, and what is under way is brought to its record. A second one leaves
    at once. Either way the chats can be taken up by another worker."""
    from treadle.engine.pool import WorkerPool

    config = session.load_config(flags)
    settings = config.settings
    most = settings.concurrency
    async with session.open_agent(config, works=True, concurrency=most, relays=True, stays=True) as agent:
        pool = WorkerPool(agent.worker)
        to_drain, to_leave = asyncio.Event(), asyncio.Event()
        for number in (signal.SIGINT, *drive.list_ending_signals()):
            asyncio.get_running_loop().add_signal_handler(
                number, lambda: (to_leave if to_drain.is_set() else to_drain).set()
            )
        pool.start()
        print_note(f"treadle: worker {agent.worker.name} takes up to {most} chats at once")
        keeping = retention.make_retention(settings)
        async with collecting.run_housekeeping(agent.deps.store, config.home, keeping, agent.job_registry):
            await to_drain.wait()
        print_note("treadle: draining; a second signal leaves at once")
        await pool.drain(settings.drain_s, to_leave)


@click.command("copilot")
@click.option("--stdio", is_flag=True, help="Speak on standard input and output instead of a port.")
@click.option("--port", type=o.PORT, default=0, metavar="N", help="The port; by default a free one.")
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="The address to listen on.")
@click.option("--model", metavar="PROVIDER:NAME", help="The model of sessions that name none.")
@o.store_option
@run_in_loop
async def copilot(stdio: bool, port: int, host: str, **flags: Any) -> None:
    """Serve programs that use a Copilot SDK.

    Let the SDK start it (path to treadle, arguments `copilot`; or COPILOT_CLI_PATH=treadle-copilot), or start it
    yourself and give the SDK its address. Programs that come by the port must show the token in
    COPILOT_CONNECTION_TOKEN; if there is none, one is made and told on standard error."""
    import secrets

    from treadle.base.jsonrpc import serve_stdio, serve_tcp
    from treadle.frontends.copilot.requests import ProgramHooks
    from treadle.frontends.copilot.server import Runtime

    config = session.load_config(flags)
    hooks = ProgramHooks()
    async with session.open_agent(config, works=True, hooks=[hooks]) as agent:
        models = agent.deps.models
        assert isinstance(models, model_registry.ModelRegistry)
        here = os.getcwd()
        token = "" if stdio else os.environ.get("COPILOT_CONNECTION_TOKEN", "")
        if not (stdio or token):
            token = secrets.token_urlsafe(24)
            print_note(f"treadle: programs connect with the token {token}")
        options = config.settings.make_chat_options("")
        if not options.model and (choice := await agent.choose_model()) is not None:
            options = msgspec.structs.replace(options, model=choice.model)
        runtime = Runtime(agent, models, options, hooks, lambda root: str(o.resolve_project_root(root or here)), token)
        await (serve_stdio(runtime) if stdio else serve_tcp(runtime, host, port))


# The SDKs bring along options of their own command line, which are left aside.
for _name in ("--headless", "--no-auto-update", "--no-auto-login", "--yolo"):
    copilot.params.append(click.Option([_name], is_flag=True, hidden=True, expose_value=False))
for _name in ("--log-level", "--auth-token-env", "--session-idle-timeout"):
    copilot.params.append(click.Option([_name], hidden=True, expose_value=False))


@click.command("acp")
@click.option("--model", metavar="PROVIDER:NAME", help="The model of new sessions.")
@click.option("--mode", type=click.Choice(MODES), help="What the model may do without asking, in new sessions.")
@click.option("--max-turns", type=o.POSITIVE, metavar="N", help="How many model calls a run may make.")
@o.effort_option
@run_in_loop
async def acp(**flags: Any) -> None:
    """Serve an editor that speaks the Agent Client Protocol.

    The editor starts this and talks to it by standard input and output; each of its sessions is a chat, which survives
    the editor. How to set it up: docs/guide/editors.md."""
    if find_spec("acp") is None:
        raise ConfigError("editors need the package agent-client-protocol; install it with: pip install 'treadle[acp]'")
    from acp import Agent as AcpAgent
    from acp import run_agent

    from treadle.adapters.tools.hooks import UnsavedFiles
    from treadle.adapters.workspace.root import make_plain_root
    from treadle.base.jsonrpc import open_stdio
    from treadle.frontends.acp.agent import LONGEST_LINE, CheckedLines, EditorAgent

    config = session.load_config(flags)
    unsaved = UnsavedFiles(make_plain_root)
    if sys.stdin.isatty():
        print_note("treadle: this is for editors: it waits for requests in JSON (see: treadle acp --help)")
    async with session.open_agent(config, works=True, hooks=[unsaved], stays=True) as agent:
        door = EditorAgent(agent, config.settings.make_chat_options, lambda cwd: o.resolve_project_root(cwd), unsaved)
        try:
            lines = CheckedLines(*await open_stdio(LONGEST_LINE))
            await run_agent(cast("AcpAgent", door), lines, use_unstable_protocol=True)
        finally:
            await door.close()
