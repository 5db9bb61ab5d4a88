"""Permission by mode alone (S-07): what a mode lets pass, what it asks for, what it denies. Knows no commands and no
files; how dangerous a call is, is not judged here."""

import hashlib

import msgspec

from treadle.ports.policy import Verdict
from treadle.ports.toolset import Invocation
from treadle.protocol.options import ChatOptions
from treadle.protocol.tools import ToolSpec

_SHOWN_CHARS = 20_000


class BasicPolicy:
    """Implements `treadle.ports.policy.Policy`."""

    async def review(self, spec: ToolSpec, invocation: Invocation, options: ChatOptions) -> Verdict:
        reason = _reason_to_ask(spec, options)
        if spec.kind == "function" and options.mode == "read-only" and not spec.read_only:
            return Verdict(
                "deny",
                f"{spec.name} changes or executes something, and this chat is read-only. Do without it: use tools "
                "that only read, and describe the change instead of making it.",
            )
        if not reason:
            return Verdict("allow")
        if not options.interactive:
            return Verdict(
                "deny",
                f"{spec.name} needs a person's approval ({reason}), and nobody is here to give it. It was not run; "
                "go on without it, or say in your answer what should be done by hand.",
            )
        return Verdict("ask", reason, shown=shown(invocation))


def _reason_to_ask(spec: ToolSpec, options: ChatOptions) -> str:
    if spec.needs_approval:
        return "this tool always asks"
    if spec.kind == "function" and not spec.read_only and options.mode == "ask":
        return "in mode ask everything that writes or executes is asked for"
    return ""


def shown(invocation: Invocation) -> str:
    """A call as a person reads it: the name, then each argument, long texts as indented blocks."""
    lines = [invocation.name]
    for name, value in invocation.arguments.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        text = _inert(text)
        if len(text) > _SHOWN_CHARS:  # the hash, because an approval is bound to what was shown, and to all of it
            whole = hashlib.sha256(text.encode(errors="replace")).hexdigest()
            text = f"{text[:_SHOWN_CHARS]}\n[{len(text) - _SHOWN_CHARS:,} more characters; SHA-256 of all: {whole}]"
        if "\n" in text:
            lines += [f"  {_inert(name)}:", *(f"    {line}" for line in text.split("\n"))]
        else:
            lines.append(f"  {_inert(name)}: {text}")
    return "\n".join(lines)


def _inert(text: str) -> str:
    """Nothing that a terminal would obey or that hides text: such characters are shown as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode("ascii") for c in text)
