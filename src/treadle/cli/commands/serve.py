"""What can be typed after `treadle serve`."""

from typing import Any

import click


@click.command("serve")
@click.option("--host", "serve_host", metavar="ADDRESS", help="The address to listen on; else only this machine.")
@click.option("--port", "serve_port", type=click.IntRange(0, 65535), metavar="N", help="The port; 0 takes a free one.")
@click.option("--store", metavar="PLACE", help="Where chats are kept: a file, or postgresql://USER@HOST/NAME.")
@click.option("--model", metavar="PROVIDER:NAME", help="The model of chats that name none.")
@click.option("--workers", "concurrency", type=click.IntRange(min=1), metavar="N", help="Chats driven at once.")
@click.option("--no-worker", is_flag=True, help="Drive no chats here; others do it with treadle worker.")
@click.option("--token-file", "serve_tokens", metavar="FILE", help="The file of tokens, as treadle tokens writes it.")
@click.option("--allow-host", "serve_hosts", multiple=True, metavar="NAME", help="A name that the server answers to.")
@click.option("--allow-root", "serve_roots", multiple=True, metavar="DIR", help="A folder where projects may lie.")
def command(no_worker: bool, serve_hosts: tuple[str, ...], serve_roots: tuple[str, ...], **flags: Any) -> int:
    """Serve the HTTP API, and drive chats.

    Without any tokens it makes one and prints it with the address. SIGTERM ends it in good order; a second one at once.
    """
    from treadle.cli.serve import serve

    many = {"serve_hosts": serve_hosts or None, "serve_roots": serve_roots or None}
    return serve({**flags, **many}, works=not no_worker)
