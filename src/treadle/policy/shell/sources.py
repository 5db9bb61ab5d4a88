"""Small readings of source: what stands in backquotes, a here-document as a string, what runs in the background."""

from typing import TYPE_CHECKING

from treadle.policy.shell.lexical import skip_escaped, word_end
from treadle.policy.shell.parse import text_of

if TYPE_CHECKING:
    from tree_sitter import Node


def last_of(node: "Node") -> "Node":
    """The last command of a list or pipeline, to which a redirection at its end belongs."""
    while node.type in ("list", "pipeline", "negated_command") and node.named_child_count:
        node = node.named_children[-1]
    return node


def has_background(node: "Node") -> bool:
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if not each.is_named and text_of(each) == "&":
            return True
        waiting.extend(each.children)
    return False


def backquoted(source: str) -> str:
    """Inside backquotes a backslash hides only `$`, a backquote and itself."""
    inner = source[1:-1] if source.endswith("`") and len(source) > 1 else source[1:]
    return inner.replace("\\`", "`").replace("\\\\", "\\").replace("\\$", "$") if "\\" in inner else inner


def as_string(body: str) -> str:
    """The body of a here-document as a double-quoted string: its quotes are plain, its substitutions are not."""
    out, at = [], 0
    while at < len(body):
        char = body[at]
        if body.startswith("$(", at) or char == "`":
            end = word_end(body, at + 1) if char == "$" else skip_escaped(body, at + 1, "`")
            out.append(body[at:end])
            at = end
        elif char == "\\":
            out.append(body[at : at + 2])
            at += 2
        else:
            out.append('\\"' if char == '"' else char)
            at += 1
    return f'"{"".join(out)}"'
