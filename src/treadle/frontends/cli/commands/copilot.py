"""`treadle copilot`: a runtime for programs that use the Copilot SDKs. The SDKs start it themselves and bring along
options of their own command line, which are understood or left aside."""

import os
from typing import Any

import click

from treadle.base.inert import print_note
from treadle.frontends.cli.group import in_loop
from treadle.frontends.cli.options import store_option

TOKEN = "COPILOT_CONNECTION_TOKEN"
_THEIRS = ("--headless", "--no-auto-update", "--no-auto-login", "--yolo")
_THEIRS_WITH_VALUE = ("--log-level", "--auth-token-env", "--session-idle-timeout")


@click.command("copilot")
@click.option("--stdio", is_flag=True, help="Speak on standard input and output instead of a port.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="The port; by default a free one.")
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="The address to listen on.")
@click.option("--model", metavar="PROVIDER:NAME", help="The model of sessions that name none.")
@store_option
@in_loop
async def copilot(stdio: bool, port: int, host: str, **flags: Any) -> None:
    """Serve programs that use a Copilot SDK.

    Let the SDK start it (path to treadle, arguments `copilot`; or COPILOT_CLI_PATH=treadle-copilot), or start it
    yourself and give the SDK its address. Programs that come by the port must show the token in
    COPILOT_CONNECTION_TOKEN; if there is none, one is made and told on standard error.
    """
    import msgspec

    from treadle.adapters.models.registry import ModelRegistry
    from treadle.base.jsonrpc.connection import serve_stdio, serve_tcp
    from treadle.frontends.cli.session import configured, open_agent, project_root
    from treadle.frontends.copilot.hooks import ProgramHooks
    from treadle.frontends.copilot.server import Runtime

    config = configured(flags)
    hooks = ProgramHooks()
    async with open_agent(config, works=True, hooks=[hooks]) as agent:
        models = agent.deps.models
        assert isinstance(models, ModelRegistry)
        here = os.getcwd()
        token = "" if stdio else _token()
        options = config.settings.chat_options("")
        if not options.model and (choice := await agent.choose_model()) is not None:
            options = msgspec.structs.replace(options, model=choice.model)
        runtime = Runtime(agent, models, options, hooks, lambda root: str(project_root(root or here)), token)
        if stdio:
            await serve_stdio(runtime)
        else:
            await serve_tcp(runtime, host, port)


for _name in _THEIRS:
    copilot.params.append(click.Option([_name], is_flag=True, hidden=True, expose_value=False))
for _name in _THEIRS_WITH_VALUE:
    copilot.params.append(click.Option([_name], hidden=True, expose_value=False))


def _token() -> str:
    import secrets

    token = os.environ.get(TOKEN, "")
    if not token:
        token = secrets.token_urlsafe(24)
        print_note(f"treadle: programs connect with the token {token}")
    return token
