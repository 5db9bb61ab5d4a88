"""Taking quotes off: what a backslash means outside quotes, inside double quotes, and in `$'…'`."""

import re

_ANSI = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL
)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}
_PLAIN = re.compile(r"\\(.)", re.DOTALL)
_DOUBLE = re.compile(r"\\([$`\"\\])")


def unescape_plain(text: str) -> str:
    return _PLAIN.sub(r"\1", text)


def unescape_double(text: str) -> str:
    return _DOUBLE.sub(r"\1", text)


def unescape_ansi(text: str) -> str:
    """`\\x72\\155` and the like. A NUL ends the string, as it does in bash."""
    return _ANSI.sub(_ansi, text).split("\0", 1)[0]


def unescape_printed(text: str, *, zero: bool) -> str:
    """The same for what is printed, where a shell that reads it passes over a NUL; with `zero`, as in `echo -e`, an
    octal number begins with a zero of its own."""
    if zero:
        text = re.sub(r"\\0([0-7]{0,3})", lambda match: _char(int(match[1] or "0", 8) & 0xFF), text)
    return _ANSI.sub(_ansi, text).replace("\0", "")


def _ansi(match: re.Match[str]) -> str:
    hexadecimal = match[1] or match[2] or match[3]
    if hexadecimal:
        return _char(int(hexadecimal, 16))
    if match[4]:
        return _char(int(match[4], 8) & 0xFF)
    if match[5]:
        return _char(ord(match[5].upper()) & 0x1F)
    letter = match[6]
    return _LETTERS.get(letter, letter if letter in "\\'\"?" else f"\\{letter}")


def _char(code: int) -> str:
    """Surrogates, and the characters that mean something here, are shown as one that stands for none."""
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE003 else "\ufffd"
