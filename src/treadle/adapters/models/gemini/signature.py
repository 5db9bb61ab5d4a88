"""Signed thinking between a Gemini stream and its return (M-10). The provider signs parts of an answer: a call, a piece
of text, often an empty one, or a thought; a signature counts only on the very part that carried it. An entry has no
parts, so every signature is recorded as a block of thinking that says where it stood."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from treadle.adapters.models.wire.signed_thinking import SignedBlock, seal
from treadle.protocol.content import Thinking

On = Literal["call", "text", "thought"]


class _Mark(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    on: On
    thought_signature: str
    length: int = 0
    """Characters of the signed text or thought."""


class ThoughtSignature(NamedTuple):
    """A signature and the part that carried it."""

    on: On
    value: str
    text: int = 0
    """Characters of text before the part."""
    calls: int = 0
    """Calls before the part."""
    length: int = 0
    thought_text: str = ""
    """The thoughts since the previous signature; a signed thought is their end."""

    def record(self) -> Thinking:
        mark = msgspec.json.encode(_Mark(self.on, self.value, self.length))
        return Thinking(self.thought_text, seal(SignedBlock(mark, self.text, self.calls)))


class Piece(NamedTuple):
    """One part of an answer as it goes back: a call by its number, a text or a thought."""

    on: On
    content: str | int
    signature: str = ""


def signatures(blocks: Iterable[tuple[Thinking, SignedBlock]]) -> Iterator[ThoughtSignature]:
    """Read signatures from the record. Blocks that `record` did not write are skipped."""
    for block, sealed in blocks:
        try:
            mark = msgspec.json.decode(sealed.block, type=_Mark)
        except msgspec.MsgspecError:
            continue
        yield ThoughtSignature(mark.on, mark.thought_signature, sealed.text, sealed.calls, mark.length, block.text)


def lay_out(text: str, calls: int, signed: Sequence[ThoughtSignature]) -> Iterator[Piece]:
    """The parts of an answer in their order. A signed part is never joined with one that is not."""
    by_call = {signature.calls: signature.value for signature in signed if signature.on == "call"}
    between = [signature for signature in signed if _among_calls(signature)]
    at = 0
    for signature in signed:
        if signature.on == "call" or _among_calls(signature):
            continue
        if piece := text[at : signature.text]:
            yield Piece("text", piece)
        yield _signed(signature, text)
        at = max(at, signature.text + (signature.length if signature.on == "text" else 0))
    if remaining := text[at:]:
        yield Piece("text", remaining)
    for number in range(calls):
        yield from (_signed(signature, text) for signature in between if signature.calls == number)
        yield Piece("call", number, by_call.get(number, ""))
    yield from (_signed(signature, text) for signature in between if signature.calls >= calls)


def _among_calls(signature: ThoughtSignature) -> bool:
    """True if a part is sent back after a call. Never true for text: an entry has all its text before its calls."""
    return signature.on != "call" and signature.calls > 0 and not (signature.on == "text" and signature.length)


def _signed(signature: ThoughtSignature, text: str) -> Piece:
    if signature.on == "text":
        return Piece("text", text[signature.text : signature.text + signature.length], signature.value)
    return Piece(
        "thought", signature.thought_text[max(0, len(signature.thought_text) - signature.length) :], signature.value
    )
