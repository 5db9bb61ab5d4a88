"""Signed thinking between its stream and its return (M-10). A block goes back exactly as it came, at the place where it
stood: models that think between calls sign what came before, too. An entry has no places, so a block that did not come
first carries its own."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

_block = msgspec.json.Decoder(dict[str, Any])
_placed_decoder = msgspec.json.Decoder(tuple[int, int, msgspec.Raw])


class SignedBlock(NamedTuple):
    """A block as the provider wrote it, and how many characters of text and how many calls stood before it."""

    block: bytes
    text: int = 0
    calls: int = 0


def seal(sealed: SignedBlock) -> str:
    """Return the string to record: the block alone, or with its position if text or calls came before it."""
    if not sealed.text and not sealed.calls:
        return sealed.block.decode()
    return f"[{sealed.text},{sealed.calls},{sealed.block.decode()}]"


def unseal(opaque: str) -> SignedBlock | None:
    """None when it is nothing that `seal` wrote: it would break the whole request."""
    try:
        if not opaque.startswith("["):
            _block.decode(opaque)
            return SignedBlock(opaque.encode())
        text, calls, raw = _placed_decoder.decode(opaque)
        _block.decode(raw)
        return SignedBlock(bytes(raw), text, calls)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None


def shift_position(opaque: str, by: int) -> str:
    """Shift the position in a recorded block by the number of characters added before it (negative: removed)."""
    sealed = unseal(opaque) if opaque.startswith("[") else None
    if sealed is None:
        return opaque
    return seal(SignedBlock(sealed.block, max(0, sealed.text + by), sealed.calls))


TEXT_PLACE = b'{"type":"text"}'  # stands for no block: it records that the text from its place on came behind a call


def lay_out(text: str, calls: int, thinking: Sequence[SignedBlock]) -> Iterator[bytes | str | int]:
    """The parts of an answer in their order: blocks of thinking, pieces of text, the numbers of its calls. Text stands
    before the calls that came between the same two blocks. Providers refuse thinking that is followed by nothing of
    its turn: it is left out."""
    text_at = call_count = 0
    waiting: list[bytes] = []
    for sealed in (*thinking, SignedBlock(b"", len(text), calls)):
        piece, text_at = text[text_at : sealed.text], max(text_at, sealed.text)
        parts: list[str | int] = [piece] if piece.strip() else []
        parts += range(call_count, min(sealed.calls, calls))
        call_count = max(call_count, min(sealed.calls, calls))
        if parts:
            yield from waiting
            waiting.clear()
            yield from parts
        waiting.append(sealed.block)
