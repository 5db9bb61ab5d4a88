"""`treadle serve`: the web app and the HTTP API on this machine, with a worker beside them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from treadle.base.inert import print_line, print_note
from treadle.frontends.cli.group import in_loop
from treadle.frontends.cli.options import store_option

if TYPE_CHECKING:
    from treadle.frontends.server.admission import Admission
    from treadle.frontends.server.tokens import Tokens
    from treadle.library.agent import Agent
    from treadle.library.config import Config

NOT_ALONE = (
    "other machines can reach the server, and connections are not encrypted; put a proxy with TLS in front of it"
)


@click.command("serve")
@click.option("--host", "serve_host", metavar="ADDRESS", help="The address to listen on; by default only this machine.")
@click.option("--port", "serve_port", type=click.IntRange(0, 65535), metavar="N", help="The port; 0 takes a free one.")
@store_option
@click.option("--model", metavar="PROVIDER:NAME", help="The model of chats that name none; by default one is found.")
@click.option("--workers", "concurrency", type=click.IntRange(min=1), metavar="N", help="Chats driven at once.")
@click.option("--no-worker", is_flag=True, help="Drive no chats here; others do it with treadle worker.")
@click.option("--token-file", "serve_tokens", metavar="FILE", help="The file of tokens, as treadle tokens writes it.")
@click.option("--allow-host", "serve_hosts", multiple=True, metavar="NAME", help="A name that the server answers to.")
@click.option("--allow-root", "serve_roots", multiple=True, metavar="DIR", help="A folder where projects may lie.")
@in_loop
async def serve(no_worker: bool, serve_hosts: tuple[str, ...], serve_roots: tuple[str, ...], **flags: Any) -> None:
    """Serve the web app and the HTTP API, and drive chats.

    Without any tokens it makes one and prints it with the address: opened in a browser, that address is the web app,
    signed in. SIGTERM ends it in good order; a second one at once.
    """
    many = {"serve_hosts": serve_hosts or None, "serve_roots": serve_roots or None}
    await serve_until_told({**flags, **many}, works=not no_worker)


async def serve_until_told(
    flags: dict[str, Any], *, works: bool = True, on_ready: Callable[[str], None] | None = None
) -> None:
    """Serve until a signal comes; `opened` is told the address as soon as requests are taken."""
    from treadle.frontends.cli.session import configured, open_agent, warn
    from treadle.frontends.server.running import address_of, bind, is_loopback, run
    from treadle.frontends.server.service import Service
    from treadle.frontends.server.sign_in import SignIn
    from treadle.frontends.server.tokens import Tokens, kept_token, own_token, tokens_file
    from treadle.library.housekeeping.retention import retention_of
    from treadle.library.housekeeping.tending import tended

    config = configured(flags)
    settings = config.settings
    if not is_loopback(settings.serve_host):
        warn([NOT_ALONE])
    mcp = is_loopback(settings.serve_host)  # the operator's own servers are not for others
    async with open_agent(config, works=works, mcp=mcp, concurrency=settings.concurrency, stays=True) as agent:
        file = tokens_file(config.home, settings.serve_tokens)
        tokens = Tokens(file, config.home)
        local_token = kept_token(config.home) if tokens.all() else own_token(config.home)
        admission = _admission(config, agent)
        codes = SignIn(tokens, renewed=_say_code)
        service = Service(agent, tokens, admission, works=works, hosts=settings.serve_hosts, sign_in=codes)
        listening = bind(settings.serve_host, settings.serve_port)
        address = address_of(listening)

        def ready() -> None:
            link = f"{address}/" + (f"#token={local_token}" if local_token else "")
            print_line(f"serving {link}")
            _explain(config, tokens, local_token, address)
            _say_code(codes.code)
            if on_ready is not None:
                on_ready(link)

        async with tended(agent.deps.store, config.home, retention_of(settings), agent.job_registry):
            await run(service, listening, ready, settings.drain_s)


def _explain(config: "Config", tokens: "Tokens", local_token: str, address: str) -> None:
    from treadle.frontends.server.running import outside_address
    from treadle.frontends.server.tokens import LOCAL

    if local_token:
        _say(f"open that address in a browser; its token is kept in {config.home}")
    elif all(token.user != LOCAL for token in tokens.all()):
        _say(f"none of the tokens is yours; make one with: treadle tokens add {LOCAL}")
    if outside := outside_address(config.settings.serve_host):
        _say(f"from another device: {address.replace(f'//{config.settings.serve_host}:', f'//{outside}:')}/")
    _say(f"the HTTP API: {address}/api/docs")


def _say_code(code: str) -> None:
    _say(f"a code to sign in with, good once: {code}")


def _say(text: str) -> None:
    print_note(text)


def _admission(config: "Config", agent: "Agent") -> "Admission":
    """Return the default options of a chat and the options that users may choose. The project is the present one, for
    the user of this machine."""
    import msgspec

    from treadle.frontends.cli.session import present_root
    from treadle.frontends.server.admission import Admission

    settings = config.settings
    options = msgspec.structs.replace(settings.chat_options(present_root()), interactive=True)
    permissions = settings.serve_roots, settings.serve_models, agent.deps.shared, settings.serve_operators
    return Admission(options, *permissions, settings.serve_network)
