"""Reads one JSON value as models write it: with single, smart or no quotes, Python's literals, trailing commas,
comments, raw newlines, and Gemma's tokens for quotes. Knows nothing of calls.

One pass, no recursion; every character is read a bounded number of times. Unusual but clear input is read exactly
(`whole`). Other states: `guessed` if a part was guessed but the value ended, `cut` if the text ended first, `broken` if
a character fits nowhere. A cut or broken value is closed where it stands: its complete parts are kept, an incomplete
escape and a key without a value are dropped (P-04)."""

import math
import re
from typing import Literal, NamedTuple

import msgspec

from treadle.adapters.models.wire.json import map_texts

QUOTES = '"', "'", "“”„‟", "‘’‚‛", "`"  # noqa: RUF001
CLOSERS = {char: group for group in QUOTES for char in group}
_ESCAPE = re.compile(r"\\(?:(u[0-9a-fA-F]{4})|(.))", re.S)
_PYTHON_ESCAPE = re.compile(r"\\(?:(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|U[0-9a-fA-F]{8})|(.))", re.S)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\", "\n": ""}
_WHOLE_ESCAPES = re.compile(r"(?:[^\\]++|\\[^u]|\\u(?![0-9a-fA-F]{0,3}\Z))*+", re.S)
_SURROGATE = re.compile(r"[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")


def unescape(body: str, *, python: bool = False) -> str:
    """The text of a string without its quotes. An escape that JSON does not know stays as it is: `\\d` is a regex.
    Python's own escapes are read where Python's quotes are."""
    if "\\" not in body:
        return body
    return join_surrogates((_PYTHON_ESCAPE if python else _ESCAPE).sub(_unescape_match, body))


def _unescape_match(match: re.Match[str]) -> str:
    code, char = match.groups()
    if code:
        return chr(min(int(code[1:], 16), 0x10FFFF))
    if char in _ESCAPED:
        return _ESCAPED[char]
    return char if char in CLOSERS else f"\\{char}"


def join_surrogates(text: str) -> str:
    """Pairs of surrogates as one character; halves, which no log can store, as the replacement character."""
    return _SURROGATE.sub(lambda m: m[0].encode("utf-16", "surrogatepass").decode("utf-16", "replace"), text)


def open_end(body: str) -> str:
    """A string that the end of the text cut off, without half an escape and without half a pair of surrogates."""
    match = _WHOLE_ESCAPES.match(body)
    raw = _ESCAPE.sub(_unescape_match, match[0] if match else "")
    return join_surrogates(raw[:-1] if "\ud800" <= raw[-1:] <= "\udbff" else raw)


def measure_partial(text: str, word: str) -> int:
    """How many characters at the end of the text may be the beginning of the word."""
    return next((length for length in range(len(word) - 1, 0, -1) if text.endswith(word[:length])), 0)


def parse_number(text: str) -> object:
    plain = text.replace("_", "")
    try:
        if plain.lstrip("+-").isdecimal():
            return int(plain)
        value = float(plain)
    except ValueError:  # more digits than Python turns into a number
        return text
    return value if math.isfinite(value) else text


def parse_json_or_text(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return text


def make_storable(value: dict[str, object]) -> dict[str, object]:
    """The value without halves of surrogate pairs, which no encoder takes."""
    try:
        msgspec.json.encode(value)
        return value
    except UnicodeEncodeError:
        cleaned: dict[str, object] = map_texts(value, join_surrogates)
        return cleaned


State = Literal["whole", "guessed", "cut", "broken"]

MAX_DEPTH = 72  # The deepest nesting. Deeper than any tool needs; code that uses the value may recurse
QUOTES_TRIED = 24
WINDOW = 2_000  # the limits for reading a string with unescaped quotes, in quotes and in characters
LOOKED_AT = 80  # the number of characters after a quote that are examined


class ParsedValue(NamedTuple):
    value: object
    end: int  # where reading stopped: behind the value, or at what did not fit
    state: State


_SKIP = re.compile(r"(?:\s++|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/|#[^\n]*+)*+")
_UNCLOSED = re.compile(r"/(?:\Z|\*)")
_WORD = re.compile(r"[^\W\d][\w$-]*+")
_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*+(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?+")
_NUMBER_TAIL = re.compile(r"[-+.\d][-+.\d_eE]*+\Z")  # A number that could continue, because the text ends there
_LITERALS: dict[str, object] = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_GUESSED_LITERALS: dict[str, object] = {"undefined": None, "NaN": None, "Infinity": None, "nil": None}

_BODIES = {group: re.compile(rf"[^{group}\\]*+(?:\\.[^{group}\\]*+)*+", re.S) for group in QUOTES}
# The text that may follow a string value; otherwise the quote was part of the string. If the comma between two pairs is
# missing, the next key is recognised by its colon.
_BEHIND = re.compile(
    r"""\s*+(?:[,}\])]|\Z|</|<[|\uff5c]|```|//|/\*|\#|\[/?[A-Z]|(?<=\s)["'“][\w-]{1,64}+["'”]\s*+:)""", re.X
)

_QUOTE_TOKENS = ('<|"|>', "<escape>")  # of Gemma 4 and FunctionGemma, with nothing escaped between two of them

_CLOSING = {"{": "}", "[": "]", "(": ")"}


def read(text: str, at: int, *, final: bool = True) -> ParsedValue:
    """Read the object, array or list of keyword arguments that begins at `at` with `{`, `[` or `(`. Unless `final`,
    more text may come: then what depends on it is `cut`."""
    return _ValueReader(text, at, final).run()


class _Stop(Exception):
    """Reading cannot go on: the text ended, or something does not fit."""

    def __init__(self, state: State, at: int) -> None:
        self.state: State = state
        self.at = at


class _Frame:
    __slots__ = ("closer", "key", "needs_comma", "value")

    def __init__(self, value: dict[str, object] | list[object], closer: str) -> None:
        self.value, self.closer = value, closer
        self.key = ""
        self.needs_comma = False

    def put(self, value: object) -> None:
        if isinstance(self.value, list):
            self.value.append(value)
        else:
            self.value[self.key] = value
        self.needs_comma = True

    def replace(self, value: object) -> None:
        if isinstance(self.value, list):
            self.value.pop()
        self.put(value)


class _ValueReader:
    def __init__(self, text: str, at: int, final: bool) -> None:
        self._text, self._at, self._final = text, at, final
        self._guessed = False
        self._frames: list[_Frame] = []

    def run(self) -> ParsedValue:
        root = self._open(self._text[self._at])
        try:
            while self._frames:
                self._step(self._frames[-1])
        except _Stop as stop:
            return ParsedValue(root, stop.at, stop.state)
        return ParsedValue(root, self._at, "guessed" if self._guessed else "whole")

    def _open(self, char: str) -> dict[str, object] | list[object]:
        if len(self._frames) >= MAX_DEPTH:
            raise _Stop("broken", self._at)
        container: dict[str, object] | list[object] = [] if char == "[" else {}
        if self._frames:
            self._frames[-1].put(container)
        self._frames.append(_Frame(container, _CLOSING[char]))
        self._at += 1
        return container

    def _step(self, frame: _Frame) -> None:
        char = self._peek_char()
        if char == ",":
            frame.needs_comma = False
            self._at += 1
        elif char in "}])":
            self._close(char)
        elif isinstance(frame.value, list):
            if frame.needs_comma:
                raise _Stop("broken", self._at)
            self._read_value(frame)
        else:
            if frame.needs_comma:
                if char not in CLOSERS:
                    raise _Stop("broken", self._at)
                self._guessed = True
            frame.key = self._read_key(frame.closer == ")")
            if self._peek_char() in ",}])" and frame.closer == "}":
                frame.put(None)  # a colon with nothing behind it
                self._guessed = True
            else:
                self._read_value(frame)

    def _peek_char(self) -> str:
        """The next character that is no space or comment."""
        match = _SKIP.match(self._text, self._at)
        self._at = match.end() if match else self._at
        if self._at >= len(self._text) or _UNCLOSED.match(self._text, self._at):
            raise _Stop("cut", len(self._text))
        return self._text[self._at]

    def _close(self, char: str) -> None:
        """Close the innermost container, and with it those inside that were left open."""
        frame_indexes = [number for number, frame in enumerate(self._frames) if frame.closer == char]
        if not frame_indexes:
            raise _Stop("broken", self._at)
        self._guessed = self._guessed or frame_indexes[-1] != len(self._frames) - 1
        del self._frames[frame_indexes[-1] :]
        self._at += 1

    def _read_key(self, keyword: bool) -> str:
        begin, is_closed = self._at, True
        if self._text[begin] in CLOSERS and not keyword:
            body, is_closed = self._read_string()
        elif (token := self._quote_token()) is not None:
            body, is_closed = self._read_between(token)
        elif (word := _WORD.match(self._text, begin)) is not None:
            body, self._at = word[0], word.end()
        else:
            raise _Stop("broken", begin)
        if not is_closed:
            raise _Stop("cut", len(self._text))
        if self._peek_char() != ("=" if keyword else ":"):
            raise _Stop("broken", begin)
        self._at += 1
        return body

    def _read_value(self, frame: _Frame) -> None:
        char, is_closed = self._peek_char(), True
        if char in "{[":
            self._open(char)
        elif char in CLOSERS:
            begin = self._at
            value, is_closed = self._read_string()
            frame.put(value)
            if is_closed and _BEHIND.match(self._text, self._at) is None:
                self._follow(frame, begin)
        elif (token := self._quote_token()) is not None:
            value, is_closed = self._read_between(token)
            frame.put(value)
        else:
            digits = _NUMBER.match(self._text, self._at)
            if digits is not None:
                frame.put(parse_number(digits[0]))
            if (tail := _NUMBER_TAIL.match(self._text, self._at)) is not None and tail[0]:
                raise _Stop("cut", len(self._text))
            if digits is not None:
                self._at = digits.end()
            else:
                self._read_literal(frame)
        if not is_closed:
            raise _Stop("cut", len(self._text))

    def _read_literal(self, frame: _Frame) -> None:
        word = _WORD.match(self._text, self._at + (self._text[self._at] in "+-"))
        if word is None:
            raise _Stop("broken", self._at)
        literal = word[0]
        if word.end() == len(self._text):
            if values := [value for name, value in _LITERALS.items() if name.startswith(literal)]:
                frame.put(values[0])
            raise _Stop("cut", len(self._text))
        if literal in _GUESSED_LITERALS:
            self._guessed = True
        elif literal not in _LITERALS:
            raise _Stop("broken", self._at)
        frame.put(_LITERALS.get(literal))
        self._at = word.end()

    def _read_string(self) -> tuple[str, bool]:
        """Return the string at the current position up to a quote that may end it, and True if there is one."""
        text, begin = self._text, self._at
        python = text[begin] == "'" or self._frames[0].closer == ")"
        if text.startswith(('"""', "'''"), begin):
            end = text.find(text[begin : begin + 3], begin + 3)
            if end >= 0:
                self._at = end + 3
                return unescape(text[begin + 3 : end], python=True), True
            self._at = len(text)
            return open_end(text[begin + 3 :]), False
        match = _BODIES[CLOSERS[text[begin]]].match(text, begin + 1)
        end = match.end() if match else begin + 1
        if end >= len(text) or text[end] == "\\":  # a backslash is left over only at the end of the text
            self._at = len(text)
            return open_end(text[begin + 1 :]), False
        self._at = end + 1
        return unescape(text[begin + 1 : end], python=python), True

    def _quote_token(self) -> str | None:
        text, at = self._text, self._at
        if text[at] != "<":
            return None
        if not self._final and any(token.startswith(text[at:]) for token in _QUOTE_TOKENS):
            raise _Stop("cut", len(text))
        return next((token for token in _QUOTE_TOKENS if text.startswith(token, at)), None)

    def _read_between(self, token: str) -> tuple[str, bool]:
        """Return the string between two tokens, and True if the second token has arrived."""
        begin = self._at + len(token)
        end = self._text.find(token, begin)
        self._at = len(self._text) if end < 0 else end + len(token)
        if end >= 0:
            return join_surrogates(self._text[begin:end]), True
        remaining = self._text[begin:]
        return join_surrogates(remaining[: len(remaining) - measure_partial(remaining, token)]), False

    def _follow(self, frame: _Frame, begin: int) -> None:
        """The quote was not the last one, because nothing that may follow a string stands behind it: find the one
        that is. Not far, because every string that is broken in this way is followed once."""
        text, at, first = self._text, self._at, self._at
        body = _BODIES[CLOSERS[text[begin]]]
        edge = min(len(text), first + WINDOW)
        for _ in range(QUOTES_TRIED):
            match = body.match(text, at, edge)
            at = match.end() if match else edge
            if at >= edge:
                break
            at += 1
            if _BEHIND.match(text, at) is not None:
                frame.replace(unescape(text[begin + 1 : at - 1]))
                self._guessed = True
                self._at = at
                return
        if not self._final and len(text) - at <= LOOKED_AT and edge == len(text):
            raise _Stop("cut", len(text))
        raise _Stop("broken", first)
