"""A call as a person is shown it, whole and inert: what an approval is bound to (S-08, S-12)."""

import hashlib

import msgspec

from treadle.inert import printable
from treadle.ports.toolset import Invocation

_SHOWN_CHARS = 20_000


def shown(invocation: Invocation) -> str:
    """The name, then each argument, long texts as indented blocks."""
    lines = [invocation.name]
    for name, value in invocation.arguments.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        text = printable(text)
        if len(text) > _SHOWN_CHARS:  # the hash, because an approval is bound to what was shown, and to all of it
            whole = hashlib.sha256(text.encode(errors="replace")).hexdigest()
            text = f"{text[:_SHOWN_CHARS]}\n[{len(text) - _SHOWN_CHARS:,} more characters; SHA-256 of all: {whole}]"
        if "\n" in text:
            lines += [f"  {printable(name)}:", *(f"    {line}" for line in text.split("\n"))]
        else:
            lines.append(f"  {printable(name)}: {text}")
    return "\n".join(lines)
