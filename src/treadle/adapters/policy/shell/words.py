"""Words without quotes. Parts that are not literal are UNKNOWN: only `~` and the home directory are expanded.

Substitutions are passed to the reader of the text. Text that the shell evaluates (arithmetic, subscripts, any expansion
that is more than a name) is reported, because it may contain any command.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from treadle.adapters.policy.shell.model import UNKNOWN
from treadle.adapters.policy.shell.parse import decoded, text_of

if TYPE_CHECKING:
    from tree_sitter import Node

_SIMPLE = re.compile(r"[\w./:=@%+,-]+")
_GIVEN = {"HOME": "~", "PWD": "."}
_TILDE = re.compile(r"~([A-Za-z_][\w.-]*)?([+-]?)(?=/|:|$)")
_VARIABLE = re.compile(r"(?<!\\)\$([A-Za-z_]\w*|[0-9@*#?!$-])")
_HIDDEN = re.compile(r"(?<!\\)(?:\$[({\[]|`|[<>]\()")
_BRACES = re.compile(r"(?<![\\$])\{.*(?:,|\.\.).*\}", re.S)
_PLAIN = re.compile(r"\\(.)", re.S)
_DOUBLE = re.compile(r"\\([$`\"\\])")
_ANSI = re.compile(r"(?:[^\\]|\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[0-7]{1,3}|[abfnrtv\\'\"]))*")


class WordReader(Protocol):
    """The reader of the text that contains a word."""

    def substituted(self, node: "Node") -> None:
        """Called for commands inside the word."""
        ...

    def evaluated(self, text: str) -> None:
        """Called for text that the shell evaluates, which may run commands."""
        ...

    def confused(self) -> None:
        """Something in a word could not be read."""
        ...


def word(nodes: "list[Node]", reader: WordReader) -> str:
    """Nodes that touch, as one word."""
    if len(nodes) == 1 and nodes[0].type in ("word", "command_name") and _SIMPLE.fullmatch(plain := text_of(nodes[0])):
        return plain
    leaves = [leaf for node in nodes for leaf in _flatten(node)]
    braces = any(not _quoted(leaf) and "{" in text_of(leaf) for leaf in leaves) and _BRACES.search(
        "".join("x" if _quoted(leaf) else text_of(leaf) for leaf in leaves)
    )
    pieces = []
    for at, leaf in enumerate(leaves):
        if text_of(leaf) == "$" and at + 1 < len(leaves) and leaves[at + 1].type == "string":
            continue  # $"…"
        pieces.append(_piece(leaf, reader, at == 0))
    text = "".join(pieces)
    return text[: text.index("{")] + UNKNOWN + text[text.rindex("}") + 1 :] if braces else text


def _flatten(node: "Node") -> "Iterator[Node]":
    if node.type in ("concatenation", "command_name", "translated_string"):
        for child in node.children:
            yield from _flatten(child)
    else:
        yield node


def _quoted(node: "Node") -> bool:
    return node.type not in ("word", "number", "brace_expression", "{", "}")


def _piece(node: "Node", reader: WordReader, first: bool) -> str:
    match node.type:
        case "raw_string":
            return _literal(text_of(node)[1:-1], first)
        case "ansi_c_string":
            return _literal(_ansi(text_of(node)[2:-1]), first)
        case "string":
            return _string(node, reader, first)
        case "simple_expansion":
            return _GIVEN.get(text_of(node)[1:], UNKNOWN)
        case "expansion" if re.fullmatch(r"\$\{\w+\}", text_of(node)):
            return _GIVEN.get(text_of(node)[2:-1], UNKNOWN)
        case "expansion" | "arithmetic_expansion":
            arithmetic(node, reader)
            return UNKNOWN
        case "command_substitution" | "process_substitution":
            reader.substituted(node)
            return UNKNOWN
    if node.named_child_count and node.type != "brace_expression":
        descend(node, reader)
        return UNKNOWN
    return _plain(text_of(node), reader, first)


def _plain(text: str, reader: WordReader, first: bool) -> str:
    if first and text[:1] == "~" and (home := _TILDE.match(text)):
        user = f"/home/{home[1]}" if home[1] and home[1] != "root" else "/root" if home[1] else "~"
        text = (UNKNOWN if home[2] else user) + text[home.end() :]
    if re.search(r"(?<!\\)[ \t\n]", text) or _HIDDEN.search(text):
        reader.confused()
        return UNKNOWN
    return _PLAIN.sub(r"\1", _VARIABLE.sub(lambda match: _GIVEN.get(match[1], UNKNOWN), text))


def arithmetic(node: "Node", reader: WordReader) -> None:
    """A name in an expression is evaluated, and so is its value."""
    descend(node, reader)
    reader.evaluated(text_of(node))


def descend(node: "Node", reader: WordReader) -> None:
    """Reads the substitutions anywhere below a node whose value does not matter."""
    for child in node.children:
        if child.type in ("command_substitution", "process_substitution"):
            reader.substituted(child)
        elif child.named_child_count:
            descend(child, reader)
        elif child.is_named and child.type != "raw_string" and _HIDDEN.search(text_of(child)):
            reader.confused()


def _string(node: "Node", reader: WordReader, first: bool) -> str:
    """The inside of double quotes. The grammar leaves some spaces out of its pieces, so gaps are filled."""
    source = node.text or b""
    begin = node.start_byte
    at, end = 1, len(source) - 1 if source.endswith(b'"') else len(source)
    pieces: list[str] = []
    for child in node.named_children:
        if child.type == "string_content":
            continue
        pieces.append(_DOUBLE.sub(r"\1", decoded(source[at : child.start_byte - begin])))
        pieces.append(_piece(child, reader, False))
        at = child.end_byte - begin
    pieces.append(_DOUBLE.sub(r"\1", decoded(source[at:end])))
    return _literal(pieces[0], first) + "".join(pieces[1:])


def _literal(text: str, first: bool) -> str:
    """A quoted tilde is a name, not a home."""
    return f"./{text}" if first and text[:1] == "~" else text


def _ansi(text: str) -> str:
    """`$'…'`, up to a NUL. Escapes that Python does not have and characters with a meaning here are unknown."""
    if not _ANSI.fullmatch(text):
        return UNKNOWN
    plain = text.encode("latin-1", "backslashreplace").decode("unicode_escape").split("\0", 1)[0]
    return UNKNOWN if re.search("[\ud800-\ue002]", plain) else plain
