r"""Text that may be shown (S-12, S-22): `InertText`, made by `inert` and by nothing else, and the writers to standard
output and standard error that take no other type. A terminal obeys no part of it, and no part of it hides or reorders
another. Terminals, logs and screens accept any text and make it inert themselves: a caller cannot forget it.

| characters                               | shown as       | why                                                    |
|------------------------------------------|----------------|--------------------------------------------------------|
| newline, tab                             | themselves     | they lay text out; `make_inert_line` escapes them      |
| CR before a newline                      | nothing        | the line end of Windows                                |
| other C0 controls, DEL                   | `\x1b`, `\x7f` | ESC begins ANSI, OSC and DCS; CR and BS overwrite text |
| C1 controls                              | `\x9b`         | some terminals obey them like ESC sequences            |
| bidi controls and marks                  | `\u202e`       | they reorder what is read (Trojan Source)              |
| line and paragraph separators            | `\u2028`       | some viewers begin a new line there                    |
| zero-width space, soft hyphen, BOM       | `\u200b`       | they hide a difference between two names               |
| zero-width joiners                       | themselves     | Indic and Persian scripts and emoji are written so     |
| tags, supplementary variation selectors  | `\U000e0041`   | they carry text that only a model sees                 |
| lone surrogates                          | `\ud800`       | no encoding can write them                             |
| private use                              | `\ue000`       | the font decides what is seen, also one of our signs   |
| an escape that stands in the text        | itself         | `inert` twice is the same as once                      |

Length: a line about something (a name, a title, a reason) is cut by `make_inert_line`; an answer is shown whole."""

import re
import sys
from collections.abc import Iterable
from typing import NewType, TextIO

InertText = NewType("InertText", str)

_LIVELY = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"  # format characters
    "\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, line ends, text direction
    "\ud800-\udfff\ue000-\uf8ff"  # half characters, private use
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff\U000f0000-\U0010ffff"  # tags and private use: invisible text
    "]"
)
ERASE_LINE = InertText("\r\x1b[2K")
ERASE_LETTER = InertText("\b \b")

# fmt: off
LEXERS = frozenset({
    "Bash", "Bash Session", "Batchfile", "C", "C#", "C++", "CMake", "CSS", "Clojure", "Common Lisp", "Dart", "Diff",
    "Docker", "Elixir", "Elm", "Erlang", "F#", "Fish", "Fortran", "GDScript", "GLSL", "Go", "GraphQL", "Groovy", "HTML",
    "HTTP", "Haskell", "INI", "JSON", "JSON-LD", "JavaScript", "JSX", "Julia", "Kotlin", "LLVM", "Lua",
    "Makefile", "Markdown", "MySQL", "Nginx configuration file", "Nix", "NumPy", "OCaml", "Objective-C", "PHP",
    "PL/pgSQL", "Perl", "PostgreSQL SQL dialect", "PowerShell", "Properties", "Protocol Buffer", "Python",
    "Python Traceback", "Python console session", "Ruby", "Rust", "S", "SCSS", "SQL", "Sass", "Scala", "Solidity",
    "Swift", "TOML", "TSX", "TeX", "Terraform", "Text only", "TypeScript", "VimL", "Vue", "XML", "YAML", "Zig",
    "reStructuredText",
})
# fmt: on
"""The languages that are coloured: an allow list of lexers, by their pygments names. A lexer is foreign code of regular
expressions that runs on foreign text, and those of rare languages are seldom reviewed (S-20)."""


def _escape_character(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def make_inert(text: str) -> InertText:
    """Text of several lines. Line ends of Windows become plain ones; joiners within words and emoji stay."""
    if text.isascii() and text.isprintable():
        return InertText(text)
    return InertText(_LIVELY.sub(lambda match: _escape_character(match[0]), text.replace("\r\n", "\n")))


def escape_unprintable(text: str, keep: str = "\n\t") -> str:
    """Every character that is not printable as an escape, joiners and spaces other than the plain one too: stricter
    than `inert`, for text that is recorded or compared."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escape_character(c) for c in text)


def make_inert_line(text: str, width: int = 0) -> InertText:
    """Text for one line: line ends and tabs are escaped too, and what does not fit into `width` is cut."""
    line = make_inert(text).replace("\n", "\\n").replace("\t", "\\t")
    return InertText(f"{line[: width - 1]}…" if 0 < width < len(line) else line)


def paint(text: str, codes: Iterable[str]) -> InertText:
    """Text in colours of a terminal, by the codes of SGR; as it is without any."""
    sequence = ";".join(codes)
    return InertText(f"\x1b[{sequence}m{make_inert(text)}\x1b[0m") if sequence and text else make_inert(text)


def join_inert(parts: Iterable[InertText]) -> InertText:
    return InertText("".join(parts))


def make_inert_json(data: bytes) -> bytes:
    """JSON in which the same characters are escapes of JSON: the value is the same, and a terminal obeys none of it."""
    if data.isascii() and b"\x7f" not in data:  # JSON has no C0 control as it is
        return data

    def escape(match: re.Match[str]) -> str:
        units = match[0].encode("utf-16-be", "surrogatepass").hex()
        return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))

    return _LIVELY.sub(escape, data.decode()).encode()


def fence_block(text: str) -> str:
    """Text as a block of Markdown that it cannot close."""
    mark = "`" * max((len(ticks) + 1 for ticks in re.findall(r"^\s*(`{3,})", text, re.MULTILINE)), default=3)
    return f"{mark}\n{text.rstrip()}\n{mark}"


# -- writers ----------------------------------------------------------------------------------------------------------


def write_inert(stream: TextIO, text: InertText) -> None:
    """Every text that a person reads on a standard stream is written here."""
    stream.write(text)
    stream.flush()


def print_line(text: str) -> None:
    write_inert(sys.stdout, make_inert(f"{text}\n"))


def print_note(text: str) -> None:
    """On standard error."""
    write_inert(sys.stderr, make_inert(f"{text}\n"))
