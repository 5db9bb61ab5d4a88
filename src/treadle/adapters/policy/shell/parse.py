"""Bash text to a syntax tree. The only module that knows the parser, tree-sitter; it is loaded when first used.

First come the steps of bash before it splits a text into words (`normalise`): joining continued lines and extracting
here-documents. Here-documents and here-strings become redirections from a placeholder, because the grammar parses some
of them differently from bash. Quotes are recognised, nesting is not: `sure` is False where bash may read the text
differently, and the caller then assumes the worst.

The grammar's scanner asks C's `isalnum` and its kin about whole code points, which reads outside their tables and can
end the process: `{` before a far character is enough. So it gets ASCII only, with the rest spelled out."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import msgspec

from treadle.adapters.policy.shell.model import UNKNOWN, parse_names

if TYPE_CHECKING:
    from tree_sitter import Language, Node

SPELLED = "%Uz"  # begins the spelling of a character that is not ASCII. A text that has it already is suspicious.
_FAR = re.compile(r"[^\x00-\x7f]")
_SPELLED = re.compile(SPELLED + r"([0-9a-f]{2,5}|10[0-9a-f]{4})%")
WORDS = parse_names(
    """
    word number raw_string ansi_c_string string translated_string concatenation simple_expansion expansion
    command_substitution process_substitution arithmetic_expansion brace_expression extglob_pattern regex test_operator
    variable_name special_variable_name
    """
)  # kinds of nodes that are words or pieces of words


@lru_cache(maxsize=1)
def _load_language() -> "Language":
    import tree_sitter_bash  # late, because most commands of the program never judge a shell command
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())


def parse(text: str) -> "Node":
    from tree_sitter import Parser

    if not text.isascii():
        text = _FAR.sub(lambda match: f"{SPELLED}{ord(match[0]):x}%", text)
    return Parser(_load_language()).parse(text.encode("ascii")).root_node


def get_text(node: "Node") -> str:
    return decode_source(node.text or b"")


def decode_source(source: bytes) -> str:
    text = source.decode("ascii", "replace")
    return _SPELLED.sub(lambda match: chr(int(match[1], 16)), text) if SPELLED in text else text


def list_comments(root: "Node", text: str) -> list[str]:
    """All comments, in their order; without recursion, because a text can nest deeper than Python."""
    if "#" not in text:
        return []
    comments = [(node.start_byte, get_text(node)) for node in _iterate_nodes(root) if node.type == "comment"]
    return [comment for _, comment in sorted(comments)]


def has_fork(node: "Node", kinds: Sequence[str] = ("&", "pipeline", "subshell", "command_substitution")) -> bool:
    return any(each.type in kinds for each in _iterate_nodes(node))


def _iterate_nodes(root: "Node") -> "Iterator[Node]":
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(node.children)


def group_nodes(nodes: "Sequence[Node]") -> "list[list[Node]]":
    """Group adjacent nodes: nodes that touch are one word, even if the grammar splits them."""
    groups: list[list[Node]] = []
    for node in nodes:
        if groups and groups[-1][-1].end_byte == node.start_byte:
            groups[-1].append(node)
        else:
            groups.append([node])
    return groups


# -- before words ----------------------------------------------------------------------------------------------------
MARK = "\ue000"
_TOKEN = re.compile(
    r"\\\n|\\.?|`(?:\\.|[^`\\])*`?|\$'(?:\\.|[^'\\])*'?|'[^']*'?|\"(?:\\.|[^\"\\])*\"?|\$?\(\((?:[^()]|\([^()]*\))*\)\)|\$\{[^}]*\}?"
    r"|(?P<comment>(?<![^\s;&|()<>])#[^\n]*)|<<<[ \t]*|<<|[^\\`$\"'(#<>;&|)\s]+|.",
    re.S,
)
_PLACEHOLDER = re.compile(f"{MARK}([0-9]+){MARK}")
_NEEDED = re.compile(r"\\\n|<<|#|" + MARK)
_DELIMITER = re.compile(r"[ \t]*((?:\\.|'[^']*'|\"[^\"]*\"|[^\s;&|()<>\\'\"])+)", re.S)
_QUOTED = re.compile(r"\\(.)|'([^']*)'|\"([^\"]*)\"", re.S)
_CLOSED = re.compile(r"\\.|\$\([^()]*\)|\$\{[^{}'\"]*\}|`[^`]*`", re.S)
_OPEN = re.compile(r"[\"$].*(?:\$[({]|`)|\$\{", re.S)


class Heredoc(msgspec.Struct, frozen=True):
    body: str
    literal: bool  # its delimiter was quoted: nothing in it is expanded


class Normal(msgspec.Struct, frozen=True):
    text: str
    heredocs: tuple[Heredoc, ...] = ()
    comments: tuple[str, ...] = ()
    sure: bool = True


def normalise(text: str) -> Normal:
    return _Scanner(text).scan() if _NEEDED.search(text) else Normal(text)


def parse_placeholder(word: str) -> int | None:
    match = _PLACEHOLDER.fullmatch(word)
    return int(match[1]) if match else None


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.out: list[str] = []
        self.pending: list[tuple[int, str, bool]] = []
        self.heredocs: list[Heredoc] = []
        self.comments: list[str] = []
        self.nests = False  # a quote may stand inside of what stands in quotes: then they cannot be told apart here
        self.sure = MARK not in text

    def scan(self) -> Normal:
        while self.at < len(self.text):
            match = _TOKEN.match(self.text, self.at)
            self._scan_token(match[0], match["comment"] is not None) if match else self._scan_token(self.text[self.at])
        if self.pending:
            self.sure = False
            self._scan_bodies()
        sure = self.sure and not (self.nests and (self.heredocs or self.comments))
        return Normal("".join(self.out), tuple(self.heredocs), tuple(self.comments), sure)

    def _scan_token(self, token: str, comment: bool = False) -> None:
        self.at += len(token)
        self.nests |= token[0] in '"$' and _OPEN.match(_CLOSED.sub("", token)) is not None
        if token == "<<":
            self._scan_heredoc()
        elif token.startswith("<<<"):
            self.out.append(f"< {MARK}")
        elif token != "\\\n":
            self.out.append(token.replace("\\\n", "") if token[0] == '"' else token)
            self.comments += [token] if comment else []
        if token == "\n" and self.pending:
            self._scan_bodies()

    def _scan_heredoc(self) -> None:
        tabs = self.text.startswith("-", self.at)
        match = _DELIMITER.match(self.text, self.at + tabs)
        word = match[1] if match else ""
        self.sure &= match is not None and not re.search(r"[$`]", word)
        delimiter = _QUOTED.sub(lambda each: next(part for part in each.groups() if part is not None), word)
        self.pending.append((len(self.heredocs), delimiter, tabs))
        self.out.append(f"< {MARK}{len(self.heredocs)}{MARK} ")
        self.heredocs.append(Heredoc("", bool(re.search(r"[\\'\"]", word))))
        self.at = match.end() if match else self.at + tabs

    def _scan_bodies(self) -> None:
        for number, delimiter, tabs in self.pending:
            line = ("^\t*" if tabs else "^") + re.escape(delimiter)
            match = re.compile(line + r"(?:\n|\Z)", re.M).search(self.text, self.at)
            body = self.text[self.at : match.start() if match else len(self.text)]
            # bash ends it at `EOF)` in a substitution, with a warning
            self.sure &= match is not None and not ("(" in self.text and re.search(line, body, re.M))
            self.at = match.end() if match else len(self.text)
            body = re.sub(r"^\t+", "", body, flags=re.M) if tabs else body
            self.heredocs[number] = Heredoc(body, self.heredocs[number].literal)
        self.pending = []


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
    def walk_substitution(self, node: "Node") -> None: ...

    def note_evaluation(self, text: str) -> None: ...

    def mark_unreadable(self) -> None: ...


def read_word(nodes: "list[Node]", reader: WordReader) -> str:
    if len(nodes) == 1 and nodes[0].type in ("word", "command_name") and _SIMPLE.fullmatch(plain := get_text(nodes[0])):
        return plain
    leaves = [leaf for node in nodes for leaf in _flatten(node)]
    braces = any(not _is_quoted(leaf) and "{" in get_text(leaf) for leaf in leaves) and _BRACES.search(
        "".join("x" if _is_quoted(leaf) else get_text(leaf) for leaf in leaves)
    )
    pieces = []
    for at, leaf in enumerate(leaves):
        if get_text(leaf) == "$" and at + 1 < len(leaves) and leaves[at + 1].type == "string":
            continue  # $"…"
        pieces.append(_read_piece(leaf, reader, at == 0))
    text = "".join(pieces)
    return text[: text.index("{")] + UNKNOWN + text[text.rindex("}") + 1 :] if braces else text


def _flatten(node: "Node") -> "Iterator[Node]":
    if node.type in ("concatenation", "command_name", "translated_string"):
        for child in node.children:
            yield from _flatten(child)
    else:
        yield node


def _is_quoted(node: "Node") -> bool:
    return node.type not in ("word", "number", "brace_expression", "{", "}")


def _read_piece(node: "Node", reader: WordReader, first: bool) -> str:
    match node.type:
        case "raw_string":
            return _protect_tilde(get_text(node)[1:-1], first)
        case "ansi_c_string":
            return _protect_tilde(_decode_ansi(get_text(node)[2:-1]), first)
        case "string":
            return _read_string(node, reader, first)
        case "simple_expansion":
            return _GIVEN.get(get_text(node)[1:], UNKNOWN)
        case "expansion" if re.fullmatch(r"\$\{\w+\}", get_text(node)):
            return _GIVEN.get(get_text(node)[2:-1], UNKNOWN)
        case "expansion" | "arithmetic_expansion":
            walk_arithmetic(node, reader)
            return UNKNOWN
        case "command_substitution" | "process_substitution":
            reader.walk_substitution(node)
            return UNKNOWN
    if node.named_child_count and node.type != "brace_expression":
        descend(node, reader)
        return UNKNOWN
    return _read_plain(get_text(node), reader, first)


def _read_plain(text: str, reader: WordReader, first: bool) -> str:
    if first and text[:1] == "~" and (home := _TILDE.match(text)):
        user = f"/home/{home[1]}" if home[1] and home[1] != "root" else "/root" if home[1] else "~"
        text = (UNKNOWN if home[2] else user) + text[home.end() :]
    if re.search(r"(?<!\\)[ \t\n]", text) or _HIDDEN.search(text):
        reader.mark_unreadable()
        return UNKNOWN
    return _PLAIN.sub(r"\1", _VARIABLE.sub(lambda match: _GIVEN.get(match[1], UNKNOWN), text))


def walk_arithmetic(node: "Node", reader: WordReader) -> None:
    """A name in an expression is evaluated, and so is its value."""
    descend(node, reader)
    reader.note_evaluation(get_text(node))


def descend(node: "Node", reader: WordReader) -> None:
    for child in node.children:
        if child.type in ("command_substitution", "process_substitution"):
            reader.walk_substitution(child)
        elif child.named_child_count:
            descend(child, reader)
        elif child.is_named and child.type != "raw_string" and _HIDDEN.search(get_text(child)):
            reader.mark_unreadable()


def _read_string(node: "Node", reader: WordReader, first: bool) -> str:
    """The inside of double quotes. The grammar leaves some spaces out of its pieces, so gaps are filled."""
    source = node.text or b""
    begin = node.start_byte
    at, end = 1, len(source) - 1 if source.endswith(b'"') else len(source)
    pieces: list[str] = []
    for child in (each for each in node.named_children if each.type != "string_content"):
        pieces.append(_DOUBLE.sub(r"\1", decode_source(source[at : child.start_byte - begin])))
        pieces.append(_read_piece(child, reader, False))
        at = child.end_byte - begin
    pieces.append(_DOUBLE.sub(r"\1", decode_source(source[at:end])))
    return _protect_tilde(pieces[0], first) + "".join(pieces[1:])


def _protect_tilde(text: str, first: bool) -> str:
    """A quoted tilde is a name, not a home."""
    return f"./{text}" if first and text[:1] == "~" else text


def _decode_ansi(text: str) -> str:
    """`$'…'`, up to a NUL. Escapes that Python does not have and characters with a meaning here are unknown."""
    if not _ANSI.fullmatch(text):
        return UNKNOWN
    plain = text.encode("latin-1", "backslashreplace").decode("unicode_escape").split("\0", 1)[0]
    return UNKNOWN if re.search("[\ud800-\ue002]", plain) else plain
