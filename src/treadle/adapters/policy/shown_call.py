"""A call as shown to a person, complete and inert. An approval is bound to this text (S-08, S-12)."""

import hashlib
from collections.abc import Iterator

import msgspec

from treadle.adapters.policy.acts import Act
from treadle.base.inert import printable
from treadle.ports.toolset import Invocation

_SHOWN_CHARS = 20_000


def render_call(invocation: Invocation, act: Act) -> str:
    """The name, then each argument, long texts as indented blocks; of a command also the folder and the variables that
    earlier commands left it."""
    lines = [invocation.name]
    for name, value in (*invocation.arguments.items(), *_inherited(invocation, act)):
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        text = _bounded(printable(text))
        if "\n" in text:
            lines += [f"  {printable(name)}:", *(f"    {line}" for line in text.split("\n"))]
        else:
            lines.append(f"  {printable(name)}: {text}")
    return "\n".join(lines)


def _bounded(text: str) -> str:
    """An approval is bound to what was shown, and by the hash to all of it."""
    if len(text) <= _SHOWN_CHARS:
        return text
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    return f"{text[:_SHOWN_CHARS]}\n[{len(text) - _SHOWN_CHARS:,} more characters; SHA-256 of all: {digest}]"


def _inherited(invocation: Invocation, act: Act) -> Iterator[tuple[str, str]]:
    if act.folder != "." and not invocation.arguments.get("cwd"):
        yield "in the folder", act.folder
    for name, value in act.variables.items():
        yield "set by an earlier command", f"{name} is unset" if value is None else f"{name}={value}"
