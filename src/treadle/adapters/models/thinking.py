"""Thinking beside the text of an answer (M-10). Knows no provider.

Signed thinking between its stream and its return: a block goes back exactly as it came, at the place where it stood,
because models that think between calls sign what came before, too. An entry has no places, so a block that did not come
first carries its own.

Thinking that a model wrote into its text, as small models and old servers do: told apart, however the deltas are split,
so that it is neither shown nor stored as text. Only what an answer begins with is thinking. A text may speak of these
tags: then they stand somewhere else, or in quotes; and if it does begin with one, it goes on like a sentence and does
not close it."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from treadle.protocol.content import Thinking
from treadle.protocol.deltas import CallDelta, Delta, FinishDelta, TextDelta, ThinkingBlock, ThinkingDelta

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
    return opaque if sealed is None else seal(sealed._replace(text=max(0, sealed.text + by)))


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


TAGS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
    "<mm:think>": "</mm:think>",  # MiniMax M3
    "<|channel>thought\n": "<channel|>",  # Gemma 4
    "<|channel|>analysis<|message|>": "<|end|>",  # gpt-oss
    "<|thought_start|>": "<|thought_end|>",  # MiniCPM 3 and 4
    "<|inner_prefix|>": "<|inner_suffix|>",  # Apertus
    "<|open|>think<|sep|>": "<|close|>think<|sep|>",  # Kimi K3
}
_OPENERS = tuple(TAGS)
_CLOSERS = tuple(TAGS.values())
_STRAY = rf"(?:{'|'.join(map(re.escape, _CLOSERS))})[ \t]*+(\n|\r)?"  # alone on its line: it was opened in the prompt
_BEGUN = frozenset(tag[:end] for pair in TAGS.items() for tag in pair for end in range(1, len(tag)))
_SURE = r"[\w\r\n*#]"  # behind a tag, it shows that the tag is used, not only mentioned
_DOTS = " \t\r\n.…"
_GAP_CAP = 1_000  # the most white space, in characters, that is held back


class TextThinking:
    """Gives the deltas of one answer back with its thinking as such. Once it is `over`, they need it no longer."""

    def __init__(self) -> None:
        self.over = False
        self._out: list[Delta] = []
        self._watching = True  # nothing but white space and thinking has come so far
        self._held = ""  # text that is not decided: white space, and what may be the beginning of a tag
        self._come = 0  # characters of text that have come while watching
        self._taken = 0  # how many of them were taken out, once that is known
        self._trim = False  # something was taken out: the white space behind it goes, too
        self._native: list[str] = []  # thinking that came as such
        self._stretch: _Stretch | None = None

    def take(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        for delta in deltas:
            match delta:
                case TextDelta(text=text) if self._watching:
                    self._come += len(text)
                    text, self._held = self._held + text, ""
                    while text and self._watching:
                        text = (
                            self._read_opening(text)
                            if self._stretch is None
                            else self._read_inside(self._stretch, text)
                        )
                    continue
                case ThinkingDelta(text=text) if self._watching:
                    self._native.append(text)
                case ThinkingBlock(block=block):
                    shift = self._come if self._watching else self._taken
                    self._native = [block.text]
                    if shift and block.opaque:
                        delta = ThinkingBlock(Thinking(block.text, shift_position(block.opaque, -shift), block.model))
                case CallDelta() if self._watching:
                    self._end(is_cut=True)
                case FinishDelta(reason=reason) if self._watching:
                    self._end(is_cut=reason == "length")
            self._out.append(delta)
        out, self._out = self._out, []
        return out

    def _read_opening(self, text: str) -> str:
        """Before the first word; gives back what is left to be read."""
        body = text.lstrip()
        gap = text[: len(text) - len(body)]
        if body.startswith(_OPENERS) and len(gap) <= _GAP_CAP:
            opener = next(tag for tag in _OPENERS if body.startswith(tag))
            self._stretch = _Stretch(gap + opener, TAGS[opener], "".join(self._native))
            return body[len(opener) :]
        stray = re.match(_STRAY, body) if body.startswith(_CLOSERS) else None
        if stray is not None and stray[1]:
            self._trim = True
            return body[stray.end() :]
        if (not body or body in _BEGUN or (stray and stray.end() == len(body))) and len(text) <= _GAP_CAP:
            self._held = text
        else:
            self._say(text)
        return ""

    def _read_inside(self, stretch: "_Stretch", text: str) -> str:
        """In the middle of thinking; gives back what is left to be read."""
        end = text.find(stretch.closer)
        if end < 0:
            # Trailing white space and the beginning of a tag are not sure to be thinking.
            lengths = range(len(stretch.closer) - 1, 0, -1)
            partial = next((size for size in lengths if text.endswith(stretch.closer[:size])), 0)
            sure = text[: len(text) - partial]
            stripped = sure.rstrip()
            sure = stripped if len(sure) - len(stripped) <= _GAP_CAP else sure
            self._out += stretch.add(sure, last=False)
            self._held = text[len(sure) :]
            return ""
        self._out += stretch.add(text[:end], last=True)
        remaining = text[end + len(stretch.closer) :]
        inner = stretch.content.strip()
        if stretch.doubtful and inner and not inner.strip(_DOTS):  # the text only mentions the tags
            self._say(stretch.text + stretch.closer + remaining)
            return ""
        self._close(stretch)
        return remaining

    def _close(self, stretch: "_Stretch") -> None:
        self._out += stretch.end()
        self._stretch, self._trim = None, True

    def _end(self, *, is_cut: bool) -> None:
        """No more text of this kind will come; `is_cut` if what there is was not meant to be the whole."""
        held_text, stretch, self._held = self._held, self._stretch, ""
        if stretch is None:
            stray = held_text.lstrip().startswith(_CLOSERS) and re.fullmatch(_STRAY, held_text.strip())
            return self._say("" if stray else held_text)
        self._out += stretch.add(held_text, last=True)
        if stretch.doubtful and not is_cut:
            return self._say(stretch.text)
        self._close(stretch)
        self._say("")

    def _say(self, text: str) -> None:
        """From here on all is text."""
        text = text.lstrip() if self._trim else text
        if text:
            self._out.append(TextDelta(text))
        self._watching = False
        self._taken = self._come - len(text)
        self.over = not self._taken


class _Stretch:
    """Thinking that is told as it comes, unless it may be a sentence about the tag, or repeat native thinking."""

    def __init__(self, opening: str, closer: str, native: str) -> None:
        self.closer = closer
        self.doubtful = False
        self._opening = opening
        self._native = native.strip()
        self._pieces: list[str] = []
        self._begun = False
        self._told = False

    @property
    def content(self) -> str:
        return "".join(self._pieces)

    @property
    def text(self) -> str:
        return self._opening + self.content

    def add(self, text: str, *, last: bool) -> Sequence[Delta]:
        if text and not self._begun:
            self._begun = True
            self.doubtful = re.match(_SURE, text) is None
        if self.doubtful or self._native:
            self._pieces.append(text)
            return ()
        text = text.rstrip() if last else text
        text = text if self._told else text.lstrip()
        self._told = self._told or bool(text)
        return (ThinkingDelta(text),) if text else ()

    def end(self) -> Sequence[Delta]:
        thinking = self.content.strip()
        return (ThinkingDelta(thinking),) if thinking and thinking != self._native else ()
