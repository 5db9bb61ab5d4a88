"""`treadle serve`: the HTTP API on this machine, with a worker beside it."""

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from treadle.cli.project import project_root
from treadle.cli.session import configured, open_agent, warn
from treadle.config import Config
from treadle.errors import InvalidInput
from treadle.housekeeping.retention import retention_of
from treadle.housekeeping.tending import tended
from treadle.runtime import Agent
from treadle.server.admission import Admission
from treadle.server.running import address_of, bind, is_loopback, run
from treadle.server.service import Service
from treadle.server.tokens import LOCAL, Tokens, kept_token, own_token, tokens_file

NOT_ALONE = (
    "the server can be reached from other machines, and what is sent to it is not encrypted; put a proxy with TLS in "
    "front of it"
)


def serve(flags: Mapping[str, Any], *, works: bool) -> int:
    return asyncio.run(_serve(configured(flags), works))


async def _serve(config: Config, works: bool) -> int:
    settings = config.settings
    if not is_loopback(settings.serve_host):
        warn([NOT_ALONE])
    async with open_agent(config, works=works, concurrency=settings.concurrency) as agent:
        file = tokens_file(config.home, settings.serve_tokens)
        tokens = Tokens(file, config.home)
        own = kept_token(config.home) if tokens.all() else own_token(config.home)
        service = Service(
            agent,
            tokens,
            admission(config, agent),
            works=works,
            hosts=settings.serve_hosts,
        )
        listening = bind(settings.serve_host, settings.serve_port)
        address = address_of(listening)

        def ready() -> None:
            print(f"serving {address}/" + (f"#token={own}" if own else ""))
            sys.stdout.flush()
            if own:
                _say(f"the token is kept in {config.home}; make others with: treadle tokens add NAME")
            elif all(token.user != LOCAL for token in tokens.all()):
                _say(f"none of the tokens is yours; make one with: treadle tokens add {LOCAL}")
            _say(f"how to use it: {address}/api/docs")

        async with tended(agent.deps.store, config.home, retention_of(settings)):
            await run(service, listening, ready, settings.drain_s)
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def admission(config: Config, agent: Agent) -> Admission:
    """What a chat has unless it says otherwise, and what users may ask for. The project is the present one, for the
    user of this machine."""
    settings = config.settings
    try:
        root = str(project_root(None))
    except InvalidInput:
        root = ""
    options = msgspec.structs.replace(settings.chat_options(root), interactive=True)
    return Admission(options, settings.serve_roots, settings.serve_models, agent.deps.shared, settings.serve_operators)
