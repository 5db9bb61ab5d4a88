"""Bash text to a syntax tree, by tree-sitter. The only module that knows the parser; it is loaded when first used.

The grammar's scanner asks C's `isalnum` and its kin about whole code points, which reads outside their tables and can
end the process: `{` before a far character is enough. So it gets ASCII only, with the rest spelled out.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from treadle.adapters.policy.shell.model import names

if TYPE_CHECKING:
    from tree_sitter import Language, Node

SPELLED = "%Uz"
"""Begins the spelling of a character that is not ASCII. A text that has it already is suspicious."""
_FAR = re.compile(r"[^\x00-\x7f]")
_SPELLED = re.compile(SPELLED + r"([0-9a-f]{2,5}|10[0-9a-f]{4})%")
WORDS = names(
    """
    word number raw_string ansi_c_string string translated_string concatenation simple_expansion expansion
    command_substitution process_substitution arithmetic_expansion brace_expression extglob_pattern regex test_operator
    variable_name special_variable_name
    """
)
"""Kinds of nodes that are words or pieces of words."""


@lru_cache(maxsize=1)
def _language() -> "Language":
    import tree_sitter_bash  # late, because most commands of the program never judge a shell command
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())


def parse(text: str) -> "Node":
    from tree_sitter import Parser

    if not text.isascii():
        text = _FAR.sub(lambda match: f"{SPELLED}{ord(match[0]):x}%", text)
    return Parser(_language()).parse(text.encode("ascii")).root_node


def text_of(node: "Node") -> str:
    return decoded(node.text or b"")


def decoded(source: bytes) -> str:
    """A piece of a parsed text, as it was written."""
    text = source.decode("ascii", "replace")
    return _SPELLED.sub(lambda match: chr(int(match[1], 16)), text) if SPELLED in text else text


def comments_of(root: "Node", text: str) -> list[str]:
    """All comments, in their order; without recursion, because a text can nest deeper than Python."""
    if "#" not in text:
        return []
    comments = [(node.start_byte, text_of(node)) for node in _below(root) if node.type == "comment"]
    return [comment for _, comment in sorted(comments)]


def has_fork(node: "Node", kinds: Sequence[str] = ("&", "pipeline", "subshell", "command_substitution")) -> bool:
    return any(each.type in kinds for each in _below(node))


def _below(root: "Node") -> "Iterator[Node]":
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(node.children)


def group(nodes: "Sequence[Node]") -> "list[list[Node]]":
    """Group adjacent nodes: nodes that touch are one word, even if the grammar splits them."""
    groups: list[list[Node]] = []
    for node in nodes:
        if groups and groups[-1][-1].end_byte == node.start_byte:
            groups[-1].append(node)
        else:
            groups.append([node])
    return groups
