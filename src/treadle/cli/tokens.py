"""`treadle tokens`: who may use the server."""

import sys

import msgspec

from treadle.cli.inert import inert_line
from treadle.cli.session import configured
from treadle.cli.terminal import Terminal
from treadle.protocol.wire import iso_time
from treadle.server.tokens import Tokens, tokens_file


def _tokens(file: str | None) -> Tokens:
    config = configured({"serve_tokens": file})
    return Tokens(tokens_file(config.home, config.settings.serve_tokens), config.home)


def list_tokens(file: str | None, as_json: bool) -> int:
    terminal = Terminal()
    for token in _tokens(file).all():
        made = iso_time(token.created_ms) if token.created_ms else ""
        if as_json:
            line = {"id": token.id, "user": token.user, "label": token.label, "created": made}
            sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
        else:
            shown = (token.id, inert_line(token.user), made, inert_line(token.label))
            terminal.line("  ".join(part for part in shown if part))
    return 0


def add_token(file: str | None, user: str, label: str) -> int:
    made, secret = _tokens(file).add(user, label)
    Terminal().note(f"token {made.id} of {user}; it is shown only now")
    print(secret)
    return 0


def revoke_token(file: str | None, id: str) -> int:
    gone = _tokens(file).revoke(id)
    Terminal().line(f"revoked: {gone.id} of {inert_line(gone.user)}")
    return 0
