"""Words as bash would expand them, as far as the text says: quotes, escapes, variables, tildes, substitutions.

A word may have several readings (a variable set in two branches); each reading is one string, in which UNKNOWN stands
for what cannot be known and NEXT for the border between two words.
"""

import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from treadle.policy.shell.model import NEXT, UNKNOWN
from treadle.policy.shell.parameters import Operation, apply, read_operation
from treadle.policy.shell.parse import decoded, text_of
from treadle.policy.shell.quotes import unescape_ansi, unescape_double, unescape_plain

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_READINGS = 6
_PIECE = re.compile(r"\\.|\$(?P<name>[A-Za-z_]\w*|[0-9@*#?!$-])|\$[({]|`|\$|[^\\$`]+", re.S)
_GAP = re.compile(r"(\\.)|[ \t\n]+", re.S)
_TILDE = re.compile(r"~([A-Za-z_][\w.-]*)?([+-]?)(?=/|:|$)")


class Surroundings(Protocol):
    """What an expansion needs of the shell it happens in."""

    def value(self, name: str) -> tuple[str, ...]:
        """The readings of a variable; (UNKNOWN,) if the text does not say."""
        ...

    def assign(self, name: str, values: tuple[str, ...]) -> None: ...

    def capture(self, node: "Node") -> str:
        """What a command or process substitution gives; the commands in it are judged on the way."""
        ...

    def inspect(self, node: "Node") -> None:
        """Judge whatever substitutions stand in an expression whose value does not matter."""
        ...

    def expand_text(self, text: str) -> tuple[str, ...]:
        """A piece of source as one word inside double quotes."""
        ...

    def confused(self) -> None:
        """Something in a word could not be read."""
        ...

    def prompt(self, text: str) -> None:
        """The text is expanded as a prompt, which runs the substitutions in it."""
        ...


def fields(nodes: "list[Node]", around: Surroundings) -> list[tuple[str, ...]]:
    """Each reading of one word, as the words it becomes."""
    readings = expand(nodes, around)
    keep = any(_has_quotes(node) for node in nodes)
    result: list[tuple[str, ...]] = []
    for reading in readings:
        parts = tuple(part for part in reading.split(NEXT) if part)
        split = parts if parts or not keep else ("",)
        if split not in result:
            result.append(split)
    return result


def expand(nodes: "list[Node]", around: Surroundings, *, first: bool = True) -> tuple[str, ...]:
    if len(nodes) == 1 and nodes[0].type not in ("concatenation", "command_name"):
        return _node(nodes[0], around, first)
    nodes = [leaf for node in nodes for leaf in _flatten(node)]
    pieces = []
    dollar = False  # the grammar leaves some dollars alone: those of $"…", and of a variable close behind another
    for at, node in enumerate(nodes):
        if not node.is_named and text_of(node) == "$" and at + 1 < len(nodes):
            dollar = True
            continue
        if dollar and node.type != "string":
            pieces.append(_overlooked("$" + text_of(node), around))
        else:
            pieces.append(_node(node, around, first and at == 0))
        dollar = False
    return _product(pieces)


def _flatten(node: "Node") -> "Iterator[Node]":
    if node.type in ("concatenation", "command_name"):
        for child in node.children:
            yield from _flatten(child)
    else:
        yield node


def _product(pieces: list[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple("".join(each) for each in itertools.islice(itertools.product(*pieces), MOST_READINGS))


def _has_quotes(node: "Node") -> bool:
    if node.type in ("concatenation", "command_name"):
        return any(_has_quotes(child) for child in node.children)
    return node.type in ("string", "raw_string", "ansi_c_string", "translated_string")


def _node(node: "Node", around: Surroundings, first: bool) -> tuple[str, ...]:
    match node.type:
        case "word" | "number" | "extglob_pattern" | "regex" if not node.named_child_count:
            return _word(text_of(node), first, around)
        case "raw_string":
            return (_literal(text_of(node)[1:-1], first),)
        case "ansi_c_string":
            return (_literal(unescape_ansi(text_of(node)[2:-1]), first),)
        case "string":
            return _string(node, around, first)
        case "translated_string":
            return expand(list(node.named_children), around, first=first)
        case "simple_expansion" | "expansion":
            return tuple(split(text, around) for text in parameter(node, around))
        case "command_substitution" | "process_substitution":
            return (split(around.capture(node), around),)
        case "arithmetic_expansion":
            around.inspect(node)
            return (UNKNOWN,)
    around.inspect(node)
    return _word(text_of(node), first, around)


def _word(text: str, first: bool, around: Surroundings) -> tuple[str, ...]:
    if first and text[:1] == "~" and (home := _TILDE.match(text)):
        text = _home(home) + text[home.end() :]
    if "\t" in text or " " in text or "\n" in text:
        text = _GAP.sub(lambda match: match[1] or NEXT, text)  # the grammar takes `]` and what follows for one word
    if "$" in text or "`" in text:
        return _overlooked(text, around)
    return (unescape_plain(text) if "\\" in text else text,)


def _overlooked(text: str, around: Surroundings) -> tuple[str, ...]:
    """The grammar sometimes leaves an expansion inside a word: `rm$IFS-rf$IFS/`."""
    pieces: list[tuple[str, ...]] = []
    for match in _PIECE.finditer(text):
        piece = match[0]
        if match["name"]:
            pieces.append(tuple(split(value, around) for value in around.value(match["name"])))
        elif piece[0] in "$`" and len(text) > 1 and piece != "$":
            around.confused()
            pieces.append((UNKNOWN,))
        else:
            pieces.append((unescape_plain(piece),))
    return _product(pieces)


def _home(match: re.Match[str]) -> str:
    user, sign = match[1], match[2]
    if sign:
        return "." if sign == "+" else UNKNOWN
    if user:
        return "/root" if user == "root" else f"/home/{user}"
    return "~"


def _literal(text: str, first: bool) -> str:
    """A quoted tilde is a name, not a home."""
    return f"./{text}" if first and text[:1] == "~" else text


def _string(node: "Node", around: Surroundings, first: bool) -> tuple[str, ...]:
    """The inside of double quotes. The grammar leaves some spaces out of its pieces, so gaps are filled."""
    source = node.text or b""
    begin = node.start_byte
    at, end = 1, len(source) - 1 if source.endswith(b'"') else len(source)
    pieces: list[tuple[str, ...]] = []
    for child in node.named_children:
        if child.type == "string_content":
            continue
        pieces.append((_between(source[at : child.start_byte - begin]),))
        if child.type in ("simple_expansion", "expansion"):
            pieces.append(parameter(child, around))
        elif child.type == "command_substitution":
            pieces.append((around.capture(child),))
        else:
            around.inspect(child)
            pieces.append((UNKNOWN,))
        at = child.end_byte - begin
    pieces.append((_between(source[at:end]),))
    pieces[0] = (_literal(pieces[0][0], first),)
    return _product(pieces)


def _between(source: bytes) -> str:
    text = decoded(source)
    return unescape_double(text) if "\\" in text else text


def split(text: str, around: Surroundings) -> str:
    """Word splitting of what was not quoted."""
    for separator in around.value("IFS")[0]:
        if separator in text:
            text = text.replace(separator, NEXT)
    return text


def parameter(node: "Node", around: Surroundings) -> tuple[str, ...]:
    """The readings of `$x` or `${x…}`."""
    source = text_of(node)
    if node.type == "simple_expansion":
        return around.value(source[1:])
    operation = read_operation(source)
    if operation is None:
        around.inspect(node)
        return (UNKNOWN,)
    return _operate(operation, around)


def _operate(operation: Operation, around: Surroundings) -> tuple[str, ...]:
    values = around.value(operation.name)
    if operation.indirect:
        values = tuple(v for name in values for v in (around.value(name) if UNKNOWN not in name else (UNKNOWN,)))
    operator = operation.operator
    if operator == "@P":
        for value in values:
            around.prompt(value)
        return (UNKNOWN,)
    if not operator:
        return values
    operands = around.expand_text(operation.operand) if operation.operand else ("",)
    results: list[str] = []
    for value, operand in itertools.islice(itertools.product(values, operands), MOST_READINGS):
        results += [each for each in apply(operator, value, operand) if each not in results]
    if operator in (":=", "="):
        around.assign(operation.name, tuple(results))
    return tuple(results[:MOST_READINGS])
